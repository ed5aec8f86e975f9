//! The policies about ManagedClusterSets on a real API server, all together and with exactly the permissions that
//! `transom rbac` prints: members are counted, bindings are bound, namespaces come to the clusters, and the sets that
//! every hub has are kept.

use crate::importing::put;
use crate::inputs::reconciles_of;
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use crate::status::wait_for_condition;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::wait;

const SET: (&str, &str) = (
    "cluster.open-cluster-management.io/v1beta2",
    "ManagedClusterSet",
);
const BINDING: (&str, &str) = (SET.0, "ManagedClusterSetBinding");
const CRDS: [&str; 2] = [
    "managedclustersets.cluster.open-cluster-management.io",
    "managedclustersetbindings.cluster.open-cluster-management.io",
];
const MEMBERS: &str = "cluster-set-members";
const POLICIES: [&str; 5] = [
    "cluster-set-bindings",
    MEMBERS,
    "default-cluster-set-selectors",
    "default-cluster-sets",
    "managed-namespaces",
];
/// The label of a cluster with the name of its set.
const LABEL: &str = "cluster.open-cluster-management.io/clusterset";

/// Puts bundled policies, without limits on writes, into one folder.
pub(crate) fn put_bundled(folder: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        put(folder, name, &program::unlimited_manifest(name)?)?;
    }
    Ok(())
}

async fn put_set(stage: &Stage, name: &str, spec: Value) -> Result<()> {
    let set = json!({"apiVersion": SET.0, "kind": SET.1, "metadata": {"name": name}, "spec": spec});
    stage.objects().apply(set).await.map(drop)
}

async fn label(stage: &Stage, name: &str, labels: Value) -> Result<()> {
    let body = json!({"metadata": {"labels": labels}});
    stage.patch(MANAGED, None, name, body).await
}

/// Waits until a set says how many clusters it has.
async fn wait_for_members(stage: &Stage, set: &str, number: usize) -> Result<()> {
    let (status, reason, message) = match number {
        0 => (
            "True",
            "NoClusterMatched",
            "No ManagedCluster selected".to_owned(),
        ),
        _ => (
            "False",
            "ClustersSelected",
            format!("{number} ManagedClusters selected"),
        ),
    };
    let said =
        json!({"type": "ClusterSetEmpty", "status": status, "reason": reason, "message": message});
    wait_for_condition(stage, SET, set, &said).await.map(drop)
}

async fn wait_for_binding(stage: &Stage, status: &str, reason: &str) -> Result<()> {
    let place = (Some("default"), "late");
    let bound = stage.objects().wait_for(BINDING, place, |binding| {
        let said = &binding["status"]["conditions"][0];
        said["type"] == "Bound" && said["status"] == status && said["reason"] == reason
    });
    bound.await.map(drop)
}

/// Waits until a set selects clusters so.
async fn wait_for_selector(
    stage: &Stage,
    name: &str,
    is_right: fn(&Value) -> bool,
) -> Result<Value> {
    let selector = |set: &Value| is_right(&set["spec"]["clusterSelector"]);
    stage.objects().wait_for(SET, (None, name), selector).await
}

fn is_exclusive(selector: &Value) -> bool {
    selector["selectorType"] == "ExclusiveClusterSetLabel" && selector["labelSelector"].is_null()
}

fn has_all(selector: &Value) -> bool {
    let labels = &selector["labelSelector"];
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    selector["selectorType"] == "LabelSelector"
        && labels.is_object()
        && labels["matchLabels"].is_null()
        && is_empty(&labels["matchExpressions"])
}

#[test]
fn sets_are_kept_as_a_hub_keeps_them() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&CRDS).await?;
        let folder = stage.cluster.folder().join("policies-hub-sets");
        put_bundled(&folder, &POLICIES)?;
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        for name in ["one", "two"] {
            stage.managed(name).await?;
        }
        label(stage, "one", json!({LABEL: "a", "env": "test"})).await?;
        put_set(stage, "a", json!({})).await?;
        put_set(
            stage,
            "b",
            json!({"managedNamespaces": [{"name": "z"}, {"name": "y"}]}),
        )
        .await?;
        let production =
            json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]});
        let production = json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": production}});
        put_set(stage, "production", production).await?;
        let binding = json!({"apiVersion": BINDING.0, "kind": BINDING.1,
            "metadata": {"name": "late", "namespace": "default"}, "spec": {"clusterSet": "late"}});
        stage.objects().apply(binding).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        members(stage, &agent).await?;
        wait_for_binding(stage, "False", "ClusterSetNotFound").await?;
        put_set(stage, "late", json!({})).await?;
        wait_for_binding(stage, "True", "ClusterSetBound").await?;
        namespaces(stage).await?;
        defaults(stage).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late, and a primary that lost its label, is read again.
        let unused = "get managedclusters, get managedclustersets, get managedclustersetbindings, \
            get namespaces, create events, patch events";
        stage.all_used_but(&rights, mark, unused)?;
        // Another agent finds everything right.
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for_first_pass()?;
        for policy in POLICIES {
            reconciles_of(&agent, policy)?;
        }
        agent.stop()?;
        let writes = stage.writes(mark).await?;
        ensure!(writes.is_empty(), "{writes:?}");
        for crd in CRDS {
            stage.remove_crd(crd).await?;
        }
        Ok(())
    })
}

/// A changed label reconciles the sets that a cluster joins and leaves, and no other.
async fn members(stage: &Stage, agent: &Agent) -> Result<()> {
    for (set, number) in [
        ("a", 1),
        ("b", 0),
        ("production", 0),
        ("global", 2),
        ("default", 1),
    ] {
        wait_for_members(stage, set, number).await?;
    }
    reconciles_of(agent, MEMBERS)?;
    let skip = agent.log()?.lines().count();
    label(stage, "one", json!({"other": "x"})).await?;
    label(stage, "one", json!({LABEL: "b"})).await?;
    wait_for_members(stage, "a", 0).await?;
    wait_for_members(stage, "b", 1).await?;
    reconciles_of(agent, MEMBERS)?;
    // How often is not fixed: what changes while a set is counted calls for another look at it.
    let told = agent.told(skip)?.into_iter();
    let woken: BTreeSet<String> = told
        .filter(|told| told.policy == MEMBERS)
        .map(|told| told.primary)
        .collect();
    ensure!(
        woken
            .iter()
            .eq(["ManagedClusterSet a", "ManagedClusterSet b"]),
        "reconciled: {woken:?}"
    );
    label(stage, "one", json!({"env": "prod"})).await?;
    wait_for_members(stage, "production", 1).await?;
    // One that is being deleted counts until it is gone.
    let hold =
        |held: bool| json!({"metadata": {"finalizers": held.then_some(["example.com/hold"])}});
    stage.patch(MANAGED, None, "two", hold(true)).await?;
    stage.delete(MANAGED, None, "two").await?;
    stage
        .patch(
            MANAGED,
            None,
            "two",
            json!({"metadata": {"labels": {"env": "prod"}}}),
        )
        .await?;
    wait_for_members(stage, "production", 2).await?;
    wait_for_members(stage, "global", 2).await?;
    stage.patch(MANAGED, None, "two", hold(false)).await?;
    wait_for_members(stage, "production", 1).await?;
    wait_for_members(stage, "global", 1).await
}

/// The namespaces of a set come to its clusters; what the agent of a cluster says about one stays.
async fn namespaces(stage: &Stage) -> Result<()> {
    let named = |set: &str, name: &str| json!({"clusterSet": set, "name": name});
    let there = |cluster: &Value| {
        let list = cluster["status"]["managedNamespaces"].as_array();
        let list = list.into_iter().flatten();
        list.map(|one| {
            named(
                one["clusterSet"].as_str().unwrap_or_default(),
                one["name"].as_str().unwrap_or_default(),
            )
        })
        .collect::<Vec<_>>()
    };
    let both = [named("b", "y"), named("b", "z")];
    let is_both = |cluster: &Value| there(cluster) == both;
    let cluster = stage
        .objects()
        .wait_for(MANAGED, (None, "one"), is_both)
        .await?;
    let mut status = cluster["status"].clone();
    let said = json!([{"type": "NamespaceAvailable", "status": "True", "reason": "NamespaceApplied",
        "message": "m", "lastTransitionTime": "2026-11-21T07:00:00Z"}]);
    status["managedNamespaces"][1]["conditions"] = said.clone();
    stage.put_status(MANAGED, None, "one", &status).await?;
    let one = json!({"spec": {"managedNamespaces": [{"name": "z"}]}});
    stage.patch(SET, None, "b", one).await?;
    let is_one = |cluster: &Value| there(cluster) == [named("b", "z")];
    let cluster = stage
        .objects()
        .wait_for(MANAGED, (None, "one"), is_one)
        .await?;
    let kept = &cluster["status"]["managedNamespaces"][0]["conditions"];
    ensure!(*kept == said, "{kept}");
    label(stage, "one", json!({LABEL: "a"})).await?;
    let is_none = |cluster: &Value| there(cluster).is_empty();
    stage
        .objects()
        .wait_for(MANAGED, (None, "one"), is_none)
        .await
        .map(drop)
}

/// The sets `default` and `global` are there, with their selectors.
async fn defaults(stage: &Stage) -> Result<()> {
    wait_for_selector(stage, "default", is_exclusive).await?;
    wait_for_selector(stage, "global", has_all).await?;
    // Whatever else somebody edits stays.
    let edited = json!({
        "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "x"}},
        "spec": {
            "clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"c": "d"}}},
            "managedNamespaces": [{"name": "kept"}],
        },
    });
    for (name, is_right) in [
        ("default", is_exclusive as fn(&Value) -> bool),
        ("global", has_all),
    ] {
        stage.patch(SET, None, name, edited.clone()).await?;
        let set = wait_for_selector(stage, name, is_right).await?;
        ensure!(set["metadata"]["labels"]["team"] == "blue", "{set}");
        ensure!(set["metadata"]["annotations"]["note"] == "x", "{set}");
        ensure!(
            set["spec"]["managedNamespaces"][0]["name"] == "kept",
            "{set}"
        );
    }
    // Who says so keeps another selector. The change of the other set is judged after that.
    let mut own = edited.clone();
    own["metadata"]["annotations"] =
        json!({"cluster.open-cluster-management.io/autoupdate": "false"});
    stage.patch(SET, None, "default", own).await?;
    stage.patch(SET, None, "global", edited).await?;
    wait_for_selector(stage, "global", has_all).await?;
    let kept = stage.get(SET, None, "default").await?.unwrap_or_default();
    ensure!(!is_exclusive(&kept["spec"]["clusterSelector"]), "{kept}");
    // One that is being deleted is left until it is gone, and then made again.
    let hold =
        |held: bool| json!({"metadata": {"finalizers": held.then_some(["example.com/hold"])}});
    stage.patch(SET, None, "default", hold(true)).await?;
    stage.delete(SET, None, "default").await?;
    stage.delete(SET, None, "global").await?;
    wait_for_selector(stage, "global", has_all).await?;
    let dying = stage.get(SET, None, "default").await?.unwrap_or_default();
    ensure!(
        dying["metadata"]["deletionTimestamp"].is_string(),
        "{dying}"
    );
    stage.patch(SET, None, "default", hold(false)).await?;
    wait::until("the set is made again", DEADLINE, async || {
        let again = stage.get(SET, None, "default").await?;
        let is_new = |set: &Value| set["metadata"]["uid"] != dying["metadata"]["uid"];
        Ok(again.filter(is_new).map(drop))
    })
    .await?;
    wait_for_selector(stage, "default", is_exclusive)
        .await
        .map(drop)
}
