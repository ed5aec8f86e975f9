//! The real other side: the registration agent of Open Cluster Management joins a hub on which only Transom's policies run.
//! Two API servers; the controller manager of Kubernetes signs the certificates and does nothing else.

use crate::access::CLUSTERS;
use crate::inputs::REQUEST;
use crate::stage::{DEADLINE, MANAGED, NAMESPACE, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::{Cluster, Options, controller_manager, registration, wait};

/// The policies of the hub.
const POLICIES: [&str; 4] = [
    "availability",
    "built-in-taints",
    "client-certificates",
    "cluster-access",
];
/// What the registration agent needs of the hub beside ManagedClusters.
const HUB_CRDS: [&str; 2] = [
    "managedclusteraddons.addon.open-cluster-management.io",
    "manifestworks.work.open-cluster-management.io",
];
const SPOKE_CRD: &str = "clusterclaims.cluster.open-cluster-management.io";
/// Where the agent keeps its credential on the spoke.
const HOME: &str = "open-cluster-management-agent";
const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
const AVAILABLE: &str = "ManagedClusterConditionAvailable";
/// What whoever brings new clusters may do on the hub, as the hub of Open Cluster Management grants it.
const BOOTSTRAP: &str = "
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

/// The hosting side of the test: where the agent runs, and how it reaches the hub.
struct Spoke {
    cluster: Cluster,
    name: String,
    bootstrap: PathBuf,
}

impl Spoke {
    async fn start(stage: &Stage, name: &str) -> Result<Self> {
        let cluster = Cluster::start(&Options::default()).await?;
        cluster.install_crds(&[SPOKE_CRD]).await?;
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}});
        cluster.objects().create(home).await?;
        let claim = json!({"apiVersion": "cluster.open-cluster-management.io/v1alpha1", "kind": "ClusterClaim",
            "metadata": {"name": "id.k8s.io"}, "spec": {"value": "spoke"}});
        cluster.objects().create(claim).await?;
        let joiner = stage.cluster.user("joiner", &["joiners"])?;
        let bootstrap = cluster.folder().join("bootstrap.kubeconfig");
        fs::write(&bootstrap, stage.cluster.kubeconfig(&joiner)?)?;
        Ok(Self {
            cluster,
            name: name.to_owned(),
            bootstrap,
        })
    }

    /// Starts the registration agent; it stops when the handle is dropped.
    fn agent(&self, log: &str) -> Result<Agent> {
        let admin = self.cluster.user("spoke-admin", &["system:masters"])?;
        let kubeconfig = self.cluster.write_kubeconfig(&admin)?;
        let hub = self.cluster.folder().join("hub-kubeconfig");
        fs::create_dir_all(&hub)?;
        let mut command = registration()?;
        command.args(["agent", "--disable-leader-election", "--agent-id", "agent"]);
        command.args(["--cluster-name", &self.name, "--namespace", HOME]);
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
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Starts the signer of the hub; it stops when the handle is dropped.
fn signer(stage: &Stage) -> Result<Agent> {
    let admin = stage.cluster.user("signer", &["system:masters"])?;
    let kubeconfig = stage.cluster.write_kubeconfig(&admin)?;
    let (certificate, key) = stage.cluster.write_authority()?;
    let mut command = controller_manager()?;
    command.args(["--controllers=csrsigning", "--leader-elect=false"]);
    command.args(["--secure-port=0", "--cluster-signing-duration=1h"]);
    for (flag, path) in [
        ("--kubeconfig", &kubeconfig),
        ("--cluster-signing-cert-file", &certificate),
        ("--cluster-signing-key-file", &key),
    ] {
        command.arg(flag).arg(path);
    }
    Agent::start(&mut command, stage.cluster.folder().join("signer.log"))
}

/// The policies of the hub, in one folder.
fn put_policies(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for name in POLICIES {
        let mut policy: Value = serde_yaml::from_str(&fs::read_to_string(program::policy(name))?)?;
        if name == "client-certificates" {
            policy["spec"]["guests"]["decide"]["settings"] =
                json!({"bootstrap": {"groups": ["joiners"]}});
        }
        policy["spec"]["limits"] = program::unlimited();
        fs::write(folder.join(format!("{name}.yaml")), policy.to_string())?;
    }
    Ok(())
}

/// Waits until the ManagedCluster is as it should be, and returns it.
async fn wait_for(
    stage: &Stage,
    name: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let mut last = Value::Null;
    let came = wait::until(what, DEADLINE, async || {
        last = stage.get(MANAGED, None, name).await?.unwrap_or_default();
        Ok(is(&last).then(|| last.clone()))
    });
    came.await.with_context(|| format!("{what}: {last:#}"))
}

fn says(cluster: &Value, kind: &str, status: &str) -> bool {
    let mut conditions = cluster["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == status)
}

fn is_tainted(cluster: &Value) -> bool {
    let mut taints = cluster["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|one| one["key"] == UNREACHABLE)
}

#[test]
fn the_registration_agent_joins_is_watched_denied_and_removed() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&HUB_CRDS).await?;
        stage.objects().apply_manifest(BOOTSTRAP).await?;
        let folder = stage.cluster.folder().join("policies-joining");
        put_policies(&folder)?;
        let words = [
            "--policies",
            folder.to_str().context("the folder has another name")?,
        ];
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let transom = stage.start_at_real_time(&words)?;
        let signer = signer(stage)?;
        let name = format!("{CLUSTERS}spoke");
        let spoke = Spoke::start(stage, &name).await?;
        let agent = spoke.agent("registration-1.log")?;
        // It registers, and its request is approved; nothing else happens before somebody accepts it.
        wait_for(stage, &name, "the ManagedCluster", Value::is_object).await?;
        ensure!(stage.get(NAMESPACE, None, &name).await?.is_none());
        let accepts = |accepts: bool| json!({"spec": {"hubAcceptsClient": accepts, "leaseDurationSeconds": 1}});
        stage.patch(MANAGED, None, &name, accepts(true)).await?;
        let joined = wait_for(stage, &name, "an available cluster", |cluster| {
            let all = [
                "ManagedClusterJoined",
                AVAILABLE,
                "ManagedClusterConditionClockSynced",
            ];
            all.iter().all(|kind| says(cluster, kind, "True")) && !is_tainted(cluster)
        });
        let joined = joined
            .await
            .with_context(|| format!("{}\n{}", agent.tail(), transom.tail()))?;
        let claims = joined["status"]["clusterClaims"]
            .as_array()
            .context("no claims")?;
        ensure!(
            claims.iter().any(|claim| claim["value"] == "spoke"),
            "{joined:#}"
        );
        // Its certificate is lost, so it asks for the next one under its own name, and gets it.
        let secrets = spoke
            .cluster
            .objects()
            .api("v1", "Secret", Some(HOME))
            .await?;
        secrets
            .delete("hub-kubeconfig-secret", &DeleteParams::default())
            .await?;
        let renewer = format!("system:open-cluster-management:{name}:agent");
        wait::until("a renewed certificate", DEADLINE, async || {
            let requests = stage.list(REQUEST).await?;
            let renewed = requests.iter().any(|request| {
                let certificate = &request.data["status"]["certificate"];
                request.data["spec"]["username"] == *renewer && certificate.is_string()
            });
            Ok(renewed.then_some(()))
        })
        .await
        .with_context(|| agent.tail())?;
        // It stops, and is noticed; it starts again.
        drop(agent);
        wait_for(stage, &name, "an unreachable cluster", |cluster| {
            says(cluster, AVAILABLE, "Unknown") && is_tainted(cluster)
        })
        .await?;
        let agent = spoke.agent("registration-2.log")?;
        wait_for(stage, &name, "an available cluster again", |cluster| {
            says(cluster, AVAILABLE, "True") && !is_tainted(cluster)
        })
        .await?;
        // It is denied, and accepted again.
        stage.patch(MANAGED, None, &name, accepts(false)).await?;
        wait_for(stage, &name, "a denied cluster", |cluster| {
            says(cluster, "HubAcceptedManagedCluster", "False")
                && says(cluster, AVAILABLE, "Unknown")
        })
        .await?;
        stage.patch(MANAGED, None, &name, accepts(true)).await?;
        let again = wait_for(
            stage,
            &name,
            "the cluster available after the denial",
            |cluster| {
                says(cluster, "HubAcceptedManagedCluster", "True")
                    && says(cluster, AVAILABLE, "True")
            },
        );
        again.await.with_context(|| agent.tail())?;
        drop(agent);
        stage.delete(MANAGED, None, &name).await?;
        wait::until("the roles are gone", DEADLINE, async || {
            let role = format!("{}{name}", crate::access::PREFIX);
            let found = stage
                .get(("rbac.authorization.k8s.io/v1", "ClusterRole"), None, &role)
                .await?;
            Ok(found.is_none().then_some(()))
        })
        .await?;
        transom.stop()?;
        drop(signer);
        stage.nothing_denied(mark).await?;
        for request in stage.list(REQUEST).await? {
            stage.delete(REQUEST, None, &request.name_any()).await?;
        }
        for crd in HUB_CRDS {
            stage.remove_crd(crd).await?;
        }
        Ok(())
    })
}
