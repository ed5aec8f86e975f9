//! Accepted ManagedClusters that get their namespaces, roles, bindings and condition, all at once, beside a program
//! that only writes the same objects.

use super::fleet::{PARALLEL, Scene};
use super::spent::{Runs, Spending};
use super::taints::{flip, names};
use super::{Rows, SERVERS, count};
use crate::floor::server::{MANAGED, api};
use crate::process::Programs;
use crate::table::Table;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use transom_e2e::program;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Writes for each cluster: the finalizer, namespace, role, binding, two bindings in the namespace, and the condition.
/// The two shared roles come once.
const WRITES: usize = 7;

/// One run of each.
pub(super) async fn measure(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    let names = names(&clusters).await?;
    // Only one condition: nobody decided about them.
    flip(&clusters, &names, "True").await?;
    let floor = Spending::start(scene).await?;
    stream::iter(&names)
        .map(|name| write(scene, name))
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    let floor = floor.end(scene).await?;
    flip(&clusters, &names, "True").await?;
    let policy = scene.outputs.with_file_name("cluster-access.yaml");
    let text = std::fs::read_to_string(program::policy("cluster-access"))?;
    std::fs::write(&policy, program::without_limits(&text))?;
    let policy = policy.display().to_string();
    let words = [
        "run",
        "--once",
        "--kubeconfig",
        &scene.agent,
        "--policies",
        &policy,
    ];
    let start = scene.now().await?;
    let mut ours = Runs::default();
    ours.add(scene, &mut programs.transom(&words))
        .await
        .context("failed to give the clusters their rights")?;
    let requests = scene.requests(&start).await?.all();
    let (many, against) = (names.len(), "apply the same objects, 32 clusters at a time");
    let what = format!("{many} ManagedClusters are accepted");
    let mut rows = Rows::about(what, table);
    rows.add("wall time", ours.wall(), against, floor.wall(), Some(1.5))?;
    let (requests, necessary) = (count(requests), count(WRITES * many + 2));
    let beyond = "requests beyond lists and watches";
    rows.add(beyond, requests, "writes", necessary, Some(1.1))?;
    let time = "the time of the floor";
    rows.add("CPU of the agent", ours.cpu(), time, floor.wall(), None)?;
    rows.add(SERVERS, ours.servers(), against, floor.servers(), None)?;
    rows.verbs(&ours.verbs(), against, &floor.verbs)
}

/// Writes what the policy makes for one cluster, under names that it does not use, with rights of the same size.
async fn write(scene: &Scene, cluster: &str) -> Result<()> {
    let mut how = PatchParams::apply("transom-bench-floor");
    how.field_validation = Some(kube::api::ValidationDirective::Ignore);
    for (kind, namespace, mut object) in objects(cluster) {
        let (group, version, kind_name) = kind;
        let version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        object["apiVersion"] = version.into();
        object["kind"] = kind_name.into();
        object["metadata"]["labels"] = json!({"open-cluster-management.io/cluster-name": cluster});
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let (name, objects) = (
            name.to_owned(),
            api(&scene.client, kind, namespace.as_deref()),
        );
        objects.patch(&name, &how, &Patch::Apply(object)).await?;
    }
    let clusters = api(&scene.client, MANAGED, None);
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/floor"]}}));
    clusters
        .patch(cluster, &PatchParams::default(), &held)
        .await?;
    let accepted = Patch::Merge(json!({"status": {"conditions": [
        {"type": "HubAcceptedManagedCluster", "status": "True", "reason": "Measured", "message": "measured",
            "lastTransitionTime": "2026-11-21T08:00:00Z"}]}}));
    clusters
        .patch_status(cluster, &PatchParams::default(), &accepted)
        .await?;
    Ok(())
}

/// Group, version and kind.
type Kind = (&'static str, &'static str, &'static str);

/// The objects for one cluster, each with its kind and namespace.
fn objects(cluster: &str) -> [(Kind, Option<String>, Value); 5] {
    let own = format!("floor:{cluster}");
    let namespace = format!("floor-{cluster}");
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["cluster.open-cluster-management.io"], "resources": [resource], "resourceNames": [cluster], "verbs": verbs});
    let bound = |name: &str, role: &str| {
        json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": own}, {"apiGroup": RBAC, "kind": "Group", "name": role}],
        })
    };
    let role = json!({"metadata": {"name": own}, "rules": [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get", "list", "watch"]},
        {"apiGroups": ["register.open-cluster-management.io"], "resources": ["managedclusters/clientcertificates"], "verbs": ["renew"]},
        rule("managedclusters", &["get", "list", "update", "watch"]),
        rule("managedclusters/status", &["patch", "update"]),
    ]});
    let place = || Some(namespace.clone());
    let registration = bound("registration", "floor:registration");
    [
        (
            ("", "v1", "Namespace"),
            None,
            json!({"metadata": {"name": namespace}}),
        ),
        ((RBAC, "v1", "ClusterRole"), None, role),
        ((RBAC, "v1", "ClusterRoleBinding"), None, bound(&own, &own)),
        ((RBAC, "v1", "RoleBinding"), place(), registration),
        (
            (RBAC, "v1", "RoleBinding"),
            place(),
            bound("work", "floor:work"),
        ),
    ]
}
