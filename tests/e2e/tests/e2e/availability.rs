//! The policy `availability` on a folder: a lease that nobody renews makes its cluster `Unknown` by time alone, and a
//! heartbeat wakes nobody. The conditions lie in the patch of the cluster.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use transom_core::time::format_rfc3339;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// The ManagedCluster, whose heartbeats may be missing for this long.
fn put_cluster(stage: &Stage, seconds: u32) -> Result<()> {
    let cluster = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": "one"},
        "spec": {"leaseDurationSeconds": seconds},
        "status": {"conditions": [
            {"type": "HubAcceptedManagedCluster", "status": "True", "reason": "R", "message": "m"},
            {"type": "ManagedClusterJoined", "status": "True", "reason": "R", "message": "m"},
        ]},
    });
    put(
        &stage.fleet.join("one.yaml"),
        cluster.to_string().as_bytes(),
    )
}

/// The conditions in the patch of the cluster.
fn conditions(stage: &Stage) -> Option<Vec<Value>> {
    let text = fs::read_to_string(stage.patch("one")).ok()?;
    let patch: Value = serde_yaml::from_str(&text).ok()?;
    let mut fields = patch["fields"].as_array()?.iter();
    let conditions = fields.find(|field| field["path"] == "status.conditions")?;
    conditions["value"].as_array().cloned()
}

/// Waits until a condition has a status.
fn wait_for(stage: &Stage, kind: &str, status: &str) -> Result<()> {
    let says = || {
        let mut all = conditions(stage)?.into_iter();
        let found = all.find(|one| one["type"] == kind && one["status"] == status)?;
        found["lastTransitionTime"].is_string().then_some(())
    };
    let came = wait::until("a condition", DEADLINE, says);
    came.with_context(|| format!("{kind} is to be {status}: {:?}", conditions(stage)))
}

#[test]
fn a_lease_is_made_and_runs_out_by_time_alone() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    let mut policy = program::manifest("availability")?;
    policy["spec"]["guests"]["decide"]["settings"] = json!({"missedBeats": 2});
    put(
        &stage.policies.join("policy.yaml"),
        policy.to_string().as_bytes(),
    )?;
    put_cluster(&stage, 1)?;
    let agent = stage.watch()?;
    let status = stage.own().join("status/availability/_cluster.one.yaml");
    stage.wait_for_text(&status, "reason: ClusterNamespaceMissing")?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}});
    put(
        &stage.fleet.join("namespace.yaml"),
        namespace.to_string().as_bytes(),
    )?;
    wait_for(&stage, "ManagedClusterConditionAvailable", "Unknown")?;
    stage.wait_for_text(&status, "reason: ManagedClusterLeaseUpdateStopped")?;
    // The agent of the cluster renews the lease, wherever it lies.
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let lease = stage
        .own()
        .join("objects/one/Lease.managed-cluster-lease_coordination.k8s.io.yaml");
    let mut renewed: Value = serde_yaml::from_str(
        &fs::read_to_string(&lease).with_context(|| format!("no {}", lease.display()))?,
    )?;
    ensure!(
        renewed["spec"]["holderIdentity"] == "managed-cluster-lease",
        "{renewed}"
    );
    put_cluster(&stage, 3600)?;
    renewed["spec"]["renewTime"] = json!(format_rfc3339(now));
    put(&lease, serde_yaml::to_string(&renewed)?.as_bytes())?;
    wait_for(&stage, "ManagedClusterConditionClockSynced", "True")?;
    stage.wait_for_text(&status, "state: Applied")?;
    agent.stop()?;
    Ok(())
}
