//! The test cluster itself: it starts, distinguishes users, logs every request, accepts the real CRDs with the fleet,
//! and keeps its data when its servers are killed. Runs no agent.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use transom_support::fleet::{self, Fleet};
use transom_test_cluster::{Cluster, Line, Mark, Options, User, wait};

/// The deadline for short waits.
const DEADLINE: Duration = Duration::from_secs(300);
const HOSTED: &str = "hypershift.openshift.io/v1beta1";
const MANAGED: &str = "cluster.open-cluster-management.io/v1";
const CRDS: [&str; 3] = [
    "hostedclusters.hypershift.openshift.io",
    "managedclusters.cluster.open-cluster-management.io",
    "klusterlets.operator.open-cluster-management.io",
];

/// Whether the API server lets a user read a secret.
async fn may_read(cluster: &Cluster, user: &User, name: &str) -> Result<bool> {
    let client = cluster.client(user).await?;
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(client, "default");
    match secrets.get_opt(name).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(error).context("the API server answered neither yes nor no"),
    }
}

async fn line(cluster: &Cluster, since: Mark, wanted: impl Fn(&Line) -> bool) -> Result<Line> {
    wait::until("a line of the audit log", DEADLINE, async || {
        Ok(cluster
            .audit()
            .since(since)?
            .into_iter()
            .find(|line| wanted(line)))
    })
    .await
}

#[tokio::test]
async fn users_have_only_their_permissions_and_requests_are_audited() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    let (nobody, somebody) = (
        cluster.user("nobody", &[])?,
        cluster.user("somebody", &["readers"])?,
    );
    let agent = cluster.service_account("transom", "agent").await?;
    cluster.objects().apply_manifest(RIGHTS).await?;
    let mark = cluster.audit().mark()?;
    for (user, may) in [
        (&nobody, false),
        (&somebody, true),
        (&agent, true),
        (cluster.admin(), true),
    ] {
        // The API server learns of new permissions by a watch.
        wait::until("the rights", DEADLINE, async || {
            Ok((may_read(&cluster, user, "any").await? == may).then_some(()))
        })
        .await?;
    }
    let denied = line(&cluster, mark, |line| line.user == "nobody").await?;
    assert_eq!(
        (denied.verb.as_str(), denied.code, denied.denied),
        ("get", 403, true)
    );
    assert_eq!(denied.uri, "/api/v1/namespaces/default/secrets/any");
    assert_eq!(
        denied.target.map(|target| (target.resource, target.name)),
        Some(("secrets".into(), "any".into()))
    );
    let account = |line: &Line| line.user == "system:serviceaccount:transom:agent" && !line.denied;
    let allowed = line(&cluster, mark, account).await?;
    assert_eq!(allowed.code, 404);
    assert!(allowed.reason.contains("\"readers\""), "{}", allowed.reason);
    Ok(())
}

/// Readers may get secrets in `default`.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: readers, namespace: default}
rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: readers}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
- {kind: ServiceAccount, name: agent, namespace: transom}
";

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
async fn the_real_crds_accept_the_fleet_with_its_status() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.install_all_crds().await?;
    let before = cluster.metrics().await?.requests();
    let installed = cluster
        .install_fleet(Fleet {
            clusters: 12,
            managed: 20,
            seed: 1,
        })
        .await?;
    // One of the HostedClusters has no klusterlet namespace yet: each has five objects, that one has four.
    assert_eq!(installed.objects, 12 * 5 - 1 + 20);
    let hosted = cluster
        .objects()
        .api(HOSTED, "HostedCluster", Some("clusters"))
        .await?;
    let hosted = hosted.get(&fleet::hosted_name(0)).await?;
    assert_eq!(
        hosted.data["status"]["kubeconfig"]["name"],
        json!(format!("{}-admin-kubeconfig", fleet::hosted_name(0)))
    );
    let secrets = cluster
        .objects()
        .api("v1", "Secret", Some("clusters"))
        .await?;
    let secret = secrets
        .get(&format!("{}-admin-kubeconfig", fleet::hosted_name(0)))
        .await?;
    assert_eq!(
        secret.metadata.owner_references.unwrap_or_default()[0].uid,
        hosted.metadata.uid.unwrap_or_default()
    );
    let managed = cluster
        .objects()
        .api(MANAGED, "ManagedCluster", None)
        .await?
        .get(&fleet::managed_name(7))
        .await?;
    let conditions = managed.data["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    assert!(
        conditions
            .iter()
            .any(|it| it["reason"] == "ManagedClusterKubeAPIServerUnavailable"),
        "{conditions:?}"
    );
    let after = cluster.metrics().await?.requests();
    let key = (
        "POST".to_owned(),
        "managedclusters.cluster.open-cluster-management.io".to_owned(),
    );
    assert_eq!(
        after.get(&key).copied().unwrap_or_default()
            - before.get(&key).copied().unwrap_or_default(),
        20
    );
    Ok(())
}

#[tokio::test]
async fn servers_recover_with_their_data_from_kill_and_freeze() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.install_crds(&CRDS).await?;
    let object: Value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    let created = cluster.objects().create(object).await?;
    let maps = cluster
        .objects()
        .api("v1", "ConfigMap", Some("default"))
        .await?;

    cluster.restart_apiserver().await?;
    assert_eq!(maps.get("a").await?.metadata.uid, created.metadata.uid);
    cluster.restart_etcd().await?;
    assert_eq!(maps.get("a").await?.metadata.uid, created.metadata.uid);
    cluster.wait_for_crd(CRDS[0]).await?;

    cluster.apiserver().freeze()?;
    assert!(
        tokio::time::timeout(Duration::from_millis(200), maps.get("a"))
            .await
            .is_err(),
        "a frozen server answered"
    );
    cluster.apiserver().thaw()?;
    assert_eq!(maps.get("a").await?.metadata.uid, created.metadata.uid);
    Ok(())
}

#[tokio::test]
async fn a_deleted_namespace_terminates_until_finalized() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.objects().namespace("home").await?;
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "home"}});
    cluster.objects().create(object.clone()).await?;
    cluster.delete_namespace("home").await?;
    let refused = cluster
        .objects()
        .create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b", "namespace": "home"}}));
    assert!(
        refused.await.is_err(),
        "a namespace that is Terminating took an object"
    );
    cluster.finalize_namespace("home").await?;
    cluster.objects().namespace("home").await?;
    cluster
        .objects()
        .create(object)
        .await
        .context("the object of the old namespace is still there")?;
    Ok(())
}

#[tokio::test]
async fn a_stopped_cluster_leaves_nothing() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    let left = Left::of(&cluster);
    let version = cluster
        .kubectl(cluster.admin())?
        .args(["version", "-o", "json"])
        .output()?;
    let version: Value = serde_json::from_slice(&version.stdout)?;
    assert_eq!(
        version["serverVersion"]["gitVersion"],
        version["clientVersion"]["gitVersion"]
    );
    drop(cluster);
    assert_eq!(left.seen(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_killed_process_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let told = folder.path().join("told");
    let mut process = Command::new(std::env::current_exe()?);
    process
        .args(["--exact", "holds_a_cluster_until_it_is_killed", "--ignored"])
        .env("TOLD", &told);
    let mut process = process.spawn()?;
    let left = wait::until("a cluster of the other process", 3 * DEADLINE, async || {
        anyhow::ensure!(process.try_wait()?.is_none(), "the other process ended");
        Ok(std::fs::read_to_string(&told)
            .ok()
            .and_then(|text| text.strip_suffix('\n').map(Left::told)))
    })
    .await?;
    assert_eq!(
        left.seen().len(),
        3,
        "a cluster is a folder and two processes"
    );
    process.kill()?;
    process.wait()?;
    wait::until("the end of all", DEADLINE, async || {
        Ok(left.seen().is_empty().then_some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "runs in the process that the test above kills"]
async fn holds_a_cluster_until_it_is_killed() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    let Left(paths) = Left::of(&cluster);
    std::fs::write(std::env::var("TOLD")?, format!("{}\n", paths.join(" ")))?;
    std::future::pending().await
}

/// The paths of a running cluster: its folder, and its processes in `/proc`.
struct Left(Vec<String>);

impl Left {
    fn of(cluster: &Cluster) -> Self {
        let ids = [cluster.apiserver().id(), cluster.etcd().id()]
            .into_iter()
            .flatten();
        let processes = ids.map(|id| format!("/proc/{id}"));
        Self(
            processes
                .chain([cluster.folder().display().to_string()])
                .collect(),
        )
    }

    fn told(text: &str) -> Self {
        Self(text.split(' ').map(str::to_owned).collect())
    }

    /// Those that still exist.
    fn seen(&self) -> Vec<String> {
        self.0
            .iter()
            .filter(|path| std::path::Path::new(path).exists())
            .cloned()
            .collect()
    }
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_too_old() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    let old = cluster
        .objects()
        .create(object("a"))
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    cluster.objects().create(object("b")).await?;
    cluster.compact().await?;
    cluster.restart_apiserver().await?;
    let maps = cluster
        .objects()
        .api("v1", "ConfigMap", Some("default"))
        .await?;
    let code = match maps.watch(&WatchParams::default(), &old).await {
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => return Err(error).context("the watch failed otherwise"),
        Ok(events) => match pin!(events).next().await {
            Some(Ok(WatchEvent::Error(status))) => status.code,
            _ => 0,
        },
    };
    assert_eq!(code, 410);
    Ok(())
}
