//! What a ManagedCluster that is gone leaves behind, on a real API server with exactly the permissions that `transom
//! rbac` prints: the policy `cluster-leftovers`. And that nothing is written for a cluster that is gone.

use crate::access::CLUSTERS;
use crate::importing;
use crate::inputs::reconciles_of;
use crate::leaving::{ADDON, CRDS, WORK, goes};
use crate::stage::{DEADLINE, MANAGED, NAMESPACE, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use transom_e2e::program;
use transom_test_cluster::{Line, Proxy, wait};

const POLICY: &str = "cluster-leftovers";
const HOLD: &str = "example.com/hold";
const LABEL: &str = "open-cluster-management.io/cluster-name";
/// What is left of each cluster: kind, name and priority.
const LEFT: [((&str, &str), &str, &str); 3] = [
    (ADDON, "addon", "0"),
    (WORK, "first", "0"),
    (WORK, "last", "20"),
];

/// The policy with this grace period, in a folder of its own.
fn put_policy(stage: &Stage, grace: u32) -> Result<PathBuf> {
    let mut policy = program::unlimited_manifest(POLICY)?;
    policy["spec"]["guests"]["decide"]["settings"]["graceSeconds"] = json!(grace);
    let folder = stage.cluster.folder().join("policies-leftovers");
    importing::put(&folder, POLICY, &policy)?;
    Ok(folder)
}

/// A namespace with this label, and an add-on and two works in it; the add-on and the first work are held.
async fn leave(stage: &Stage, name: &str, label: Option<&str>) -> Result<()> {
    let labels = label.map(|label| json!({(LABEL): label}));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    stage.objects().create(namespace).await?;
    for (kind, object, priority) in LEFT {
        let held = (object != "last").then_some([HOLD]);
        let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {}, "metadata": {
            "name": object, "namespace": name, "finalizers": held,
            "annotations": {"open-cluster-management.io/cleanup-priority": priority}}});
        stage.objects().create(body).await?;
    }
    Ok(())
}

/// Waits until the agent has asked for the removal of an object, and lets it go.
async fn let_go(stage: &Stage, namespace: &str, kind: (&str, &str), name: &str) -> Result<()> {
    let place = (Some(namespace), name);
    stage.objects().wait_for(kind, place, goes).await?;
    let body = json!({"metadata": {"finalizers": null}});
    stage.patch(kind, place.0, name, body).await?;
    stage
        .objects()
        .wait_for(kind, place, Value::is_null)
        .await
        .map(drop)
}

/// Whether everything in a namespace is as it was left.
async fn untouched(stage: &Stage, namespace: &str) -> Result<()> {
    for (kind, name, _) in LEFT {
        let there = stage.get(kind, Some(namespace), name).await?;
        let there = there.with_context(|| format!("{namespace}/{name} is gone"))?;
        ensure!(!goes(&there), "{namespace}/{name} is removed");
    }
    Ok(())
}

#[test]
fn g05_what_a_cluster_that_is_gone_left_goes_in_order_and_nothing_of_any_other_namespace()
-> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&CRDS).await?;
        let named = |name: &str| format!("{CLUSTERS}{name}");
        let [gone, there, other, plain] = ["gone", "there", "other", "plain"].map(named);
        let folder = put_policy(stage, 0)?;
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        stage.managed(&there).await?;
        leave(stage, &there, Some(&there)).await?;
        leave(stage, &other, Some(&gone)).await?;
        leave(stage, &plain, None).await?;
        leave(stage, &gone, Some(&gone)).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let here = Some(gone.as_str());
        stage
            .objects()
            .wait_for(ADDON, (here, "addon"), goes)
            .await?;
        agent.wait_for(&format!("Namespace {gone}"), "Waiting ClusterGone")?;
        ensure!(
            !goes(&stage.objects().get(WORK, (here, "first")).await?),
            "before the add-on"
        );
        let_go(stage, &gone, ADDON, "addon").await?;
        stage
            .objects()
            .wait_for(WORK, (here, "first"), goes)
            .await?;
        ensure!(
            !goes(&stage.objects().get(WORK, (here, "last")).await?),
            "before its priority"
        );
        let_go(stage, &gone, WORK, "first").await?;
        stage
            .objects()
            .wait_for(WORK, (here, "last"), Value::is_null)
            .await?;
        agent.wait_for(&format!("Namespace {gone}"), "Applied InSync")?;
        for namespace in [&there, &other, &plain] {
            untouched(stage, namespace).await?;
        }
        ensure!(stage.get(NAMESPACE, None, &gone).await?.is_some());
        // The cluster goes while the agent runs.
        stage.delete(MANAGED, None, &there).await?;
        stage
            .objects()
            .wait_for(ADDON, (Some(&there), "addon"), goes)
            .await?;
        agent.stop()?;
        // Nothing but these removals was requested.
        let changed = stage.changing(mark).await?;
        ensure!(changed.len() == 4, "{changed:#?}");
        stage.nothing_denied(mark).await?;
        // Single reads are for a removal that comes too late, and no Event was due.
        stage.all_used(&rights, mark, |right| {
            right.reads() || right.is_of(&["events"])
        })?;
        end(stage).await
    })
}

#[test]
fn g05_a_cluster_that_comes_back_in_time_loses_nothing() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&CRDS).await?;
        let name = &format!("{CLUSTERS}back");
        let folder = put_policy(stage, 86_400)?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        leave(stage, name, Some(name)).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let primary = format!("Namespace {name}");
        agent.wait_for(&primary, "Waiting ClusterGone")?;
        stage.managed(name).await?;
        agent.wait_for(&primary, "Applied InSync")?;
        stage.delete(MANAGED, None, name).await?;
        agent.wait_for(&primary, "Waiting ClusterGone")?;
        untouched(stage, name).await?;
        agent.stop()?;
        let changed = stage.changing(mark).await?;
        ensure!(changed.is_empty(), "{changed:#?}");
        end(stage).await
    })
}

#[test]
fn g01_nothing_is_written_for_a_cluster_that_is_gone_when_its_turn_comes() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&CRDS).await?;
        let name = &format!("{CLUSTERS}gone");
        let file = program::policy("cleanup");
        let words = ["--policies", &file.to_string_lossy()];
        stage.grant_exactly(&words).await?;
        leave(stage, name, Some(name)).await?;
        let first = &format!("{CLUSTERS}first");
        stage.managed(first).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let agent = stage.start_agent_at(&proxy.server(), &words)?;
        agent.wait_for_first_pass()?;
        let mark = stage.mark()?;
        // Its finalizer is on the way when the cluster is deleted.
        proxy.hold(Some("/managedclusters/registered-gone?"));
        stage.managed(name).await?;
        wait::until("the agent's request", DEADLINE, async || {
            Ok((proxy.met() > 0).then_some(()))
        })
        .await?;
        stage.delete(MANAGED, None, name).await?;
        let none = stage
            .objects()
            .wait_for(MANAGED, (None, name), Value::is_null);
        none.await?;
        proxy.hold(None);
        wait::until("the answer", DEADLINE, async || {
            let lines = stage.lines(mark).await?;
            Ok(lines.iter().any(Line::is_write).then_some(()))
        })
        .await?;
        // The request for it, which its end brought, has had its turn.
        reconciles_of(&agent, "cleanup")?;
        agent.stop()?;
        let free = json!({"metadata": {"finalizers": null}});
        stage.patch(MANAGED, None, first, free).await?;
        let lines = stage.lines(mark).await?;
        let codes: Vec<u16> = lines
            .iter()
            .filter(|line| line.is_write())
            .map(|line| line.code)
            .collect();
        ensure!(codes == [404], "{codes:?}");
        ensure!(stage.get(MANAGED, None, name).await?.is_none());
        untouched(stage, name).await?;
        end(stage).await
    })
}

/// Lets go of what is held, so that the CRDs can go.
async fn end(stage: &Stage) -> Result<()> {
    for kind in [ADDON, WORK] {
        for object in stage.list(kind).await? {
            let name = object.metadata.name.unwrap_or_default();
            let body = json!({"metadata": {"finalizers": null}});
            stage
                .patch(kind, object.metadata.namespace.as_deref(), &name, body)
                .await?;
        }
    }
    for crd in CRDS {
        stage.remove_crd(crd).await?;
    }
    Ok(())
}
