//! The policy `cluster-access` on a real API server where Open Cluster Management accepted clusters before: its objects
//! are taken over, and go where they are not wanted.

use crate::access::{BINDING, CLUSTERS, PREFIX, RBAC, ROLE, WORKS, accept, decided, undecided};
use crate::stage::{MANAGED, NAMESPACE, Stage, on_stage};
use crate::status::wait_for_condition;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::program;

const CLUSTER_BINDING: (&str, &str) = (RBAC, "ClusterRoleBinding");
const LABEL: &str = "open-cluster-management.io/cluster-name";
const HOLD: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";

fn rule(group: &[&str], resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": group, "resources": [resource], "verbs": verbs})
}

fn role(name: &str, label: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "rules": rules,
        "metadata": {"name": format!("{PREFIX}{name}"), "labels": {LABEL: label}}})
}

/// The roles that all clusters share, as Open Cluster Management makes them.
fn shared() -> [Value; 2] {
    let (addons, works) = (
        "addon.open-cluster-management.io",
        "work.open-cluster-management.io",
    );
    let registration = [
        rule(
            &["coordination.k8s.io"],
            "leases",
            &["get", "list", "watch", "update"],
        ),
        rule(&[addons], "managedclusteraddons", &["get", "list", "watch"]),
        rule(
            &[addons],
            "managedclusteraddons/status",
            &["patch", "update"],
        ),
        rule(&["events.k8s.io"], "events", &["create"]),
    ];
    let work = [
        rule(
            &["", "events.k8s.io"],
            "events",
            &["create", "patch", "update"],
        ),
        rule(
            &[works],
            "manifestworks",
            &["get", "list", "watch", "update", "patch"],
        ),
        rule(&[works], "manifestworks/status", &["patch", "update"]),
    ];
    [
        role("registration", "", &registration),
        role("work", "", &work),
    ]
}

/// What it makes for a cluster that is accepted, in a namespace that bears no name of a cluster.
fn of_cluster(name: &str) -> Vec<Value> {
    let of_itself = |resource: &str, verbs: &[&str]| {
        let mut rule = rule(&["cluster.open-cluster-management.io"], resource, verbs);
        rule["resourceNames"] = json!([name]);
        rule
    };
    let certificates = rule(
        &["certificates.k8s.io"],
        "certificatesigningrequests",
        &["create", "get", "list", "watch"],
    );
    let renews = rule(
        &["register.open-cluster-management.io"],
        "managedclusters/clientcertificates",
        &["renew"],
    );
    let rules = [
        certificates,
        renews,
        of_itself("managedclusters", &["get", "list", "update", "watch"]),
        of_itself("managedclusters/status", &["patch", "update"]),
    ];
    let api_group = "rbac.authorization.k8s.io";
    let groups = [
        "system:open-cluster-management:",
        "open-cluster-management:",
    ];
    let group =
        |prefix| json!({"kind": "Group", "apiGroup": api_group, "name": format!("{prefix}{name}")});
    let binding = |kind: &str, own: &str, role: &str| {
        json!({"apiVersion": RBAC, "kind": kind,
            "metadata": {"name": format!("{PREFIX}{own}"), "labels": {LABEL: name}},
            "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": format!("{PREFIX}{role}")},
            "subjects": groups.map(group)})
    };
    let [mut registration, mut work] = ["registration", "work"]
        .map(|what| binding("RoleBinding", &format!("{name}:{what}"), what));
    registration["metadata"]["namespace"] = name.into();
    work["metadata"]["namespace"] = name.into();
    work["metadata"]["finalizers"] = json!([HOLD]);
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        role(name, name, &rules),
        binding("ClusterRoleBinding", name, name),
        registration,
        work,
    ]
}

async fn is_gone(stage: &Stage, kind: (&str, &str), place: (Option<&str>, &str)) -> Result<()> {
    let name = format!("{PREFIX}{}", place.1);
    let gone = stage
        .objects()
        .wait_for(kind, (place.0, &name), Value::is_null);
    gone.await.map(drop)
}

#[test]
fn what_open_cluster_management_made_is_taken_over_and_goes_where_it_is_not_wanted() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[WORKS]).await?;
        let names = ["one", "two", "denied", "deleted"].map(|name| format!("{CLUSTERS}{name}"));
        let [one, two, denied, deleted] = &names;
        for object in shared() {
            stage.objects().create(object).await?;
        }
        let mut before = decided(true);
        before["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        for name in &names {
            undecided(stage, name).await?;
            for object in of_cluster(name) {
                stage.objects().create(object).await?;
            }
            let status = json!({"conditions": [before]});
            stage.put_status(MANAGED, None, name, &status).await?;
            accept(stage, name, name != denied).await?;
        }
        let held = json!({"metadata": {"finalizers": ["cluster.open-cluster-management.io/api-resource-cleanup"]}});
        stage.patch(MANAGED, None, deleted, held).await?;
        stage.delete(MANAGED, None, deleted).await?;
        let file = program::policy("cluster-access");
        let words = ["--policies", &file.to_string_lossy()];
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        // All is adopted, and the namespace gets the name of its cluster.
        for name in [one, two] {
            agent.wait_for(&format!("ManagedCluster {name}"), "Applied InSync")?;
            let namespace = stage
                .get(NAMESPACE, None, name)
                .await?
                .context("no namespace")?;
            ensure!(
                namespace["metadata"]["labels"][LABEL] == **name,
                "{namespace}"
            );
        }
        // A shared one may belong to another cluster, which is reconciled later.
        for name in [one.as_str(), "registration", "work"] {
            let adopted = |it: &Value| it["metadata"]["labels"]["transom.dev/adopted"] == "true";
            let name = format!("{PREFIX}{name}");
            let role = stage.objects().wait_for(ROLE, (None, &name), adopted);
            role.await?;
        }
        // The denied one keeps the role to read itself; of the deleted one nothing is left.
        wait_for_condition(stage, MANAGED, denied, &decided(false)).await?;
        for name in [denied, deleted] {
            for what in ["registration", "work"] {
                is_gone(stage, BINDING, (Some(name), &format!("{name}:{what}"))).await?;
            }
        }
        let own = stage.get(ROLE, None, &format!("{PREFIX}{denied}")).await?;
        let rules = own.context("no role")?["rules"].take();
        ensure!(
            rules.as_array().is_some_and(|rules| rules.len() == 1),
            "{rules}"
        );
        is_gone(stage, CLUSTER_BINDING, (None, deleted)).await?;
        is_gone(stage, ROLE, (None, deleted)).await?;
        let gone = stage
            .objects()
            .wait_for(MANAGED, (None, deleted), Value::is_null);
        gone.await?;
        // A binding that somebody deletes is held by its finalizer: it is released, and made anew.
        let work = format!("{PREFIX}{one}:work");
        let uid = |it: &Value| it["metadata"]["uid"].clone();
        let first = stage
            .get(BINDING, Some(one), &work)
            .await?
            .context("no binding")?;
        stage.delete(BINDING, Some(one), &work).await?;
        let anew = |it: &Value| it.is_object() && uid(it) != uid(&first);
        let place = (Some(one.as_str()), work.as_str());
        let anew = stage.objects().wait_for(BINDING, place, anew).await?;
        ensure!(anew["metadata"]["finalizers"] == json!([HOLD]), "{anew}");
        agent.wait_for(&format!("ManagedCluster {one}"), "Applied InSync")?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        stage.remove_crd(WORKS).await
    })
}
