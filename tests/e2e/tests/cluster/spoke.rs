//! The real other side of a hub: the registration agent of Open Cluster Management on a server of its own, and the
//! controller manager of Kubernetes, which signs certificates and ends namespaces.

use crate::inputs::REQUEST;
use crate::stage::{DEADLINE, SECRET, Stage, policies_at};
use anyhow::Result;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::{Cluster, Mark, Options, controller_manager, registration, wait};

/// What the registration agent needs of the hub beside ManagedClusters.
pub(crate) const HUB_CRDS: [&str; 2] = [
    "managedclusteraddons.addon.open-cluster-management.io",
    "manifestworks.work.open-cluster-management.io",
];
/// What a hub has for sets of clusters.
pub(crate) const SET_CRDS: [&str; 2] = [
    "managedclustersets.cluster.open-cluster-management.io",
    "managedclustersetbindings.cluster.open-cluster-management.io",
];
const SPOKE_CRD: &str = "clusterclaims.cluster.open-cluster-management.io";
/// Where the agent keeps its credential on the spoke.
pub(crate) const HOME: &str = "open-cluster-management-agent";
/// The credential with which the agent registers; it stands in a file, too, as kubelet would mount it.
const BOOTSTRAP_SECRET: &str = "bootstrap-hub-kubeconfig";
/// The credential that the agent got.
pub(crate) const HUB_SECRET: &str = "hub-kubeconfig-secret";
pub(crate) const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
pub(crate) const AVAILABLE: &str = "ManagedClusterConditionAvailable";
/// Who brings new clusters.
pub(crate) const JOINER: &str = "joiner";
/// The group of those who bring new clusters.
pub(crate) const JOINERS: &str = "joiners";
/// What whoever brings new clusters may do on the hub, as the hub of Open Cluster Management grants it.
pub(crate) const BOOTSTRAP: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bootstrap}
rules:
- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create, get, list, watch]}
- {apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bootstrap}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: joiners}]
";

/// The policies of the hub.
const POLICIES: [&str; 4] = [
    "availability",
    "built-in-taints",
    "client-certificates",
    "cluster-access",
];

/// The hosting side of the test: where the agent runs, and how it reaches the hub.
pub(crate) struct Spoke {
    pub(crate) cluster: Cluster,
    name: String,
    bootstrap: PathBuf,
}

impl Spoke {
    pub(crate) async fn start(stage: &Stage, name: &str) -> Result<Self> {
        let cluster = Cluster::start(&Options::default()).await?;
        cluster.install_crds(&[SPOKE_CRD]).await?;
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}});
        cluster.objects().create(home).await?;
        let claim = json!({"apiVersion": "cluster.open-cluster-management.io/v1alpha1", "kind": "ClusterClaim",
            "metadata": {"name": "id.k8s.io"}, "spec": {"value": "spoke"}});
        cluster.objects().create(claim).await?;
        let joiner = stage.cluster.user(JOINER, &[JOINERS])?;
        let bootstrap = cluster.folder().join("bootstrap.kubeconfig");
        fs::write(&bootstrap, stage.cluster.kubeconfig(&joiner)?)?;
        Ok(Self {
            cluster,
            name: name.to_owned(),
            bootstrap,
        })
    }

    /// Has the agent register with this kubeconfig: in the file that it reads when it starts, and in the Secret by
    /// whose change it notices that it has to start again. `touched` makes it a change.
    pub(crate) async fn points_to(&self, kubeconfig: &str, touched: usize) -> Result<()> {
        fs::write(&self.bootstrap, kubeconfig)?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": BOOTSTRAP_SECRET, "namespace": HOME},
            "stringData": {"kubeconfig": kubeconfig, "touched": touched.to_string()}});
        self.cluster.objects().apply(secret).await.map(drop)
    }

    /// Starts the registration agent; it stops when the handle is dropped.
    pub(crate) fn agent(&self, log: &str) -> Result<Agent> {
        self.agent_as(&self.name, log)
    }

    /// Starts the registration agent of a cluster of another name.
    pub(crate) fn agent_as(&self, name: &str, log: &str) -> Result<Agent> {
        let admin = self.cluster.user("spoke-admin", &["system:masters"])?;
        let kubeconfig = self.cluster.write_kubeconfig(&admin)?;
        let hub = self.cluster.folder().join("hub-kubeconfig");
        fs::create_dir_all(&hub)?;
        let mut command = registration()?;
        command.args(["agent", "--disable-leader-election", "--agent-id", "agent"]);
        command.args(["--cluster-name", name, "--namespace", HOME]);
        command.args(["--cluster-healthcheck-period", "1s"]);
        for (flag, path) in [
            ("--kubeconfig", &kubeconfig),
            ("--spoke-kubeconfig", &kubeconfig),
            ("--bootstrap-kubeconfig", &self.bootstrap),
            ("--hub-kubeconfig-dir", &hub),
        ] {
            command.arg(flag).arg(path);
        }
        command.args(["--listen", &free_address()?]);
        Agent::start(&mut command, self.cluster.folder().join(log))
    }

    /// The certificate of the agent is lost, so it asks the hub for the next one under its own name, and gets it.
    pub(crate) async fn renews(&self, hub: &Stage) -> Result<()> {
        let objects = self.cluster.objects();
        let secrets = objects.api(SECRET.0, SECRET.1, Some(HOME)).await?;
        secrets.delete(HUB_SECRET, &DeleteParams::default()).await?;
        let agent = format!("system:open-cluster-management:{}:agent", self.name);
        wait::until("a renewed certificate", DEADLINE, async || {
            let requests = hub.list(REQUEST).await?;
            let renewed = requests.iter().any(|request| {
                let certificate = &request.data["status"]["certificate"];
                request.data["spec"]["username"] == *agent && certificate.is_string()
            });
            Ok(renewed.then_some(()))
        })
        .await
    }
}

/// An address on loopback that nobody uses.
pub(crate) fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Starts some controllers of Kubernetes, with this validity of what they sign; they stop when the handle is dropped.
pub(crate) fn controllers(cluster: &Cluster, names: &str, validity: &str) -> Result<Agent> {
    let admin = cluster.user("controllers", &["system:masters"])?;
    let kubeconfig = cluster.write_kubeconfig(&admin)?;
    let (certificate, key) = cluster.write_authority()?;
    let mut command = controller_manager()?;
    command.arg(format!("--controllers={names}"));
    command.arg("--leader-elect=false");
    command.args(["--secure-port=0", "--cluster-signing-duration", validity]);
    for (flag, path) in [
        ("--kubeconfig", &kubeconfig),
        ("--cluster-signing-cert-file", &certificate),
        ("--cluster-signing-key-file", &key),
    ] {
        command.arg(flag).arg(path);
    }
    Agent::start(&mut command, cluster.folder().join("controllers.log"))
}

/// A hub with Transom's policies, and somebody who signs.
pub(crate) struct Hub<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) transom: Agent,
    pub(crate) signer: Agent,
    pub(crate) mark: Mark,
}

impl<'a> Hub<'a> {
    /// Starts the policies, and somebody who signs certificates of this validity.
    pub(crate) async fn start(stage: &'a Stage, validity: &str) -> Result<Self> {
        stage.cluster.install_crds(&HUB_CRDS).await?;
        stage.objects().apply_manifest(BOOTSTRAP).await?;
        let folder = stage.cluster.folder().join("policies-hub");
        put_policies(&folder)?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        Ok(Self {
            stage,
            mark: stage.mark()?,
            transom: stage.start_at_real_time(&words)?,
            signer: controllers(&stage.cluster, "csrsigning", validity)?,
        })
    }

    /// Removes what later tests on this server would find.
    pub(crate) async fn end(self) -> Result<()> {
        self.transom.stop()?;
        drop(self.signer);
        self.stage.nothing_denied(self.mark).await?;
        remove_requests(self.stage).await?;
        for crd in HUB_CRDS {
            self.stage.remove_crd(crd).await?;
        }
        Ok(())
    }
}

/// Puts the policies of the hub into one folder.
fn put_policies(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for name in POLICIES {
        let mut policy = program::unlimited_manifest(name)?;
        if name == "client-certificates" {
            policy["spec"]["guests"]["decide"]["settings"] =
                json!({"bootstrap": {"groups": [JOINERS]}});
        }
        fs::write(folder.join(format!("{name}.yaml")), policy.to_string())?;
    }
    Ok(())
}

/// Removes all requests for a certificate.
pub(crate) async fn remove_requests(stage: &Stage) -> Result<()> {
    for request in stage.list(REQUEST).await? {
        stage.delete(REQUEST, None, &request.name_any()).await?;
    }
    Ok(())
}

/// Whether a cluster has a condition with this status.
pub(crate) fn says(cluster: &Value, kind: &str, status: &str) -> bool {
    let mut conditions = cluster["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == status)
}

/// Whether a cluster has the taint of one that is not reachable.
pub(crate) fn is_tainted(cluster: &Value) -> bool {
    let mut taints = cluster["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|one| one["key"] == UNREACHABLE)
}
