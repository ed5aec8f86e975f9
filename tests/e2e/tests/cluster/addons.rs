//! The policy `addon-health` on a real API server, with exactly the permissions that `transom rbac` prints: the add-ons
//! of an unreachable cluster become Unknown, and labels of the cluster tell how they are.

use crate::stage::{DEADLINE, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::wait;

const CRD: &str = "managedclusteraddons.addon.open-cluster-management.io";
const ADDON: (&str, &str) = (
    "addon.open-cluster-management.io/v1alpha1",
    "ManagedClusterAddOn",
);
const FEATURE: &str = "feature.open-cluster-management.io/addon-";
const CLUSTER: &str = "one";

async fn addon(stage: &Stage, name: &str, available: &str) -> Result<()> {
    let metadata = json!({"name": name, "namespace": CLUSTER});
    let object = json!({"apiVersion": ADDON.0, "kind": ADDON.1, "metadata": metadata, "spec": {}});
    stage.objects().create(object).await?;
    says(stage, name, available).await
}

/// The agent of an add-on says how it is, as it does again and again, and beside that something else.
async fn says(stage: &Stage, name: &str, available: &str) -> Result<()> {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Told", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status =
        json!({"conditions": [condition("Theirs", "True"), condition("Available", available)]});
    stage.put_status(ADDON, Some(CLUSTER), name, &status).await
}

/// Waits until the condition of an add-on has a status, a reason, and the other condition beside it.
async fn wait_for_addon(stage: &Stage, name: &str, status: &str, reason: &str) -> Result<()> {
    let mut last = Value::Null;
    let came = wait::until("a condition of an add-on", DEADLINE, async || {
        let object = stage.get(ADDON, Some(CLUSTER), name).await?;
        last = object.unwrap_or_default()["status"]["conditions"].take();
        let all = last.as_array().into_iter().flatten();
        let says = |one: &Value| one["status"] == status && one["reason"] == reason;
        let mut available = all.clone().filter(|one| one["type"] == "Available");
        let beside = all.clone().any(|one| one["type"] == "Theirs");
        Ok((beside && available.any(says)).then_some(()))
    });
    came.await
        .with_context(|| format!("{name}: {last} is to say {status} {reason}"))
}

/// Waits until the cluster has exactly these labels about add-ons.
async fn wait_for_labels(stage: &Stage, wanted: &[(&str, &str)]) -> Result<()> {
    let mut last = Value::Null;
    let came = wait::until("the labels of the cluster", DEADLINE, async || {
        let object = stage.get(MANAGED, None, CLUSTER).await?;
        last = object.unwrap_or_default()["metadata"]["labels"].take();
        let all = last.as_object().into_iter().flatten();
        let about = all.filter_map(|(key, value)| Some((key.strip_prefix(FEATURE)?, value)));
        let mut about = about.map(|(name, value)| (name, value.as_str().unwrap_or_default()));
        Ok(about.by_ref().eq(wanted.iter().copied()).then_some(()))
    });
    came.await
        .with_context(|| format!("{last} is to have {wanted:?}"))
}

#[test]
fn addons_of_an_unreachable_cluster_are_unknown_and_labels_tell_how_they_are() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[CRD]).await?;
        let file = program::policy("addon-health");
        let words = ["--policies", &file.to_string_lossy()];
        let rights = stage.grant_exactly(&words).await?;
        stage.managed(CLUSTER).await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLUSTER}});
        stage.objects().apply(namespace).await?;
        addon(stage, "ill", "False").await?;
        addon(stage, "well", "True").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait_for_labels(stage, &[("ill", "unhealthy"), ("well", "available")]).await?;
        // An add-on comes late, and one that ails recovers.
        addon(stage, "late", "True").await?;
        says(stage, "ill", "True").await?;
        let well = ["ill", "late", "well"].map(|name| (name, "available"));
        wait_for_labels(stage, &well).await?;
        // Somebody edits a label.
        let edited = json!({"metadata": {"labels": {format!("{FEATURE}well"): "unhealthy", format!("{FEATURE}other"): "x"}}});
        stage.patch(MANAGED, None, CLUSTER, edited).await?;
        wait_for_labels(stage, &well).await?;
        // The cluster is unreachable: so are its add-ons, also one whose agent says otherwise by mistake.
        stage.set_available(CLUSTER, "False").await?;
        wait_for_labels(stage, &well).await?;
        stage.set_available(CLUSTER, "Unknown").await?;
        let cluster = stage.get(MANAGED, None, CLUSTER).await?.context("gone")?;
        let conditions = cluster["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let kind = "ManagedClusterConditionAvailable";
        let available = conditions.find(|one| one["type"] == kind);
        let reason = available.context("no condition")?["reason"].as_str();
        let reason = reason.context("no reason")?;
        for (name, _) in well {
            wait_for_addon(stage, name, "Unknown", reason).await?;
        }
        wait_for_labels(stage, &well.map(|(name, _)| (name, "unreachable"))).await?;
        says(stage, "late", "True").await?;
        wait_for_addon(stage, "late", "Unknown", reason).await?;
        // It is reachable again, and an add-on goes.
        stage.set_available(CLUSTER, "True").await?;
        for (name, _) in well {
            says(stage, name, "True").await?;
        }
        wait_for_labels(stage, &well).await?;
        stage.delete(ADDON, Some(CLUSTER), "late").await?;
        wait_for_labels(stage, &[("ill", "available"), ("well", "available")]).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again.
        let unused = "get managedclusters, get managedclusteraddons, create events, patch events";
        stage.all_used_but(&rights, mark, unused)
    })
}
