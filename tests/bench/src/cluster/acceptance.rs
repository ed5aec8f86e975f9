//! Accepted ManagedClusters that get their namespaces, roles, bindings and condition, all at once, beside a program that only
//! writes the same objects.

use super::fleet::{PARALLEL, Scene};
use super::spent::{Runs, Spending};
use super::taints::{flip, names};
use super::{SERVERS, count, row, verbs};
use crate::floor::server::{MANAGED, api};
use crate::process::Programs;
use crate::table::Table;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use transom_e2e::program;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Writes for each cluster: the finalizer, namespace, role, binding, two bindings in the namespace, and the condition. The
/// two shared roles come once.
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
    let what = |rest: &str| format!("{many} ManagedClusters are accepted: {rest}");
    table.add(row(
        what("wall time"),
        ours.wall(),
        against,
        floor.wall(),
        Some(1.5),
    ))?;
    table.add(row(
        what("requests beyond lists and watches"),
        count(requests),
        "writes",
        count(WRITES * many + 2),
        Some(1.1),
    ))?;
    table.add(row(
        what("CPU of the agent"),
        ours.cpu(),
        "the time of the floor",
        floor.wall(),
        None,
    ))?;
    table.add(row(
        what(SERVERS),
        ours.servers(),
        against,
        floor.servers(),
        None,
    ))?;
    table.add(verbs(what, &ours.verbs(), against, &floor.verbs))
}

/// Writes what the policy makes for one cluster, under names that it does not use, with rights of the same size.
async fn write(scene: &Scene, cluster: &str) -> Result<()> {
    let mut how = PatchParams::apply("transom-bench-floor");
    how.field_validation = Some(kube::api::ValidationDirective::Ignore);
    let own = format!("floor:{cluster}");
    let namespace = format!("floor-{cluster}");
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["cluster.open-cluster-management.io"], "resources": [resource], "resourceNames": [cluster], "verbs": verbs});
    let bound = |role: &str| {
        json!({
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": own}, {"apiGroup": RBAC, "kind": "Group", "name": role}],
        })
    };
    let rules = json!({"rules": [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get", "list", "watch"]},
        {"apiGroups": ["register.open-cluster-management.io"], "resources": ["managedclusters/clientcertificates"], "verbs": ["renew"]},
        rule("managedclusters", &["get", "list", "update", "watch"]),
        rule("managedclusters/status", &["patch", "update"]),
    ]});
    let in_it = Some(namespace.as_str());
    for (kind, place, name, content) in [
        (("", "v1", "Namespace"), None, namespace.as_str(), json!({})),
        ((RBAC, "v1", "ClusterRole"), None, own.as_str(), rules),
        (
            (RBAC, "v1", "ClusterRoleBinding"),
            None,
            own.as_str(),
            bound(&own),
        ),
        (
            (RBAC, "v1", "RoleBinding"),
            in_it,
            "registration",
            bound("floor:registration"),
        ),
        (
            (RBAC, "v1", "RoleBinding"),
            in_it,
            "work",
            bound("floor:work"),
        ),
    ] {
        let mut object: Value = content;
        let version = match kind.0 {
            "" => kind.1.to_owned(),
            group => format!("{group}/{}", kind.1),
        };
        object["apiVersion"] = version.into();
        object["kind"] = kind.2.into();
        object["metadata"] =
            json!({"name": name, "labels": {"open-cluster-management.io/cluster-name": cluster}});
        let objects = api(&scene.client, kind, place);
        objects.patch(name, &how, &Patch::Apply(object)).await?;
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
