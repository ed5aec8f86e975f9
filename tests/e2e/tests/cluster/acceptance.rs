//! The policy `cluster-acceptance` on a real API server: accepts what a rule names, once, with exactly the permissions
//! that `transom rbac` prints; a later denial stands.

use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use transom_e2e::program;
use transom_test_cluster::wait;

/// The annotation of a cluster that was accepted by a rule.
const ACCEPTED_ON: &str = "open-cluster-management.io/automatically-accepted-on";

/// A ManagedCluster in this environment about which nobody decided.
async fn cluster(stage: &Stage, name: &str, env: &str) -> Result<()> {
    denied(stage, name, env).await?;
    let none = json!({"conditions": []});
    stage.put_status(MANAGED, None, name, &none).await
}

/// One that a person accepted and denied: it has the condition of that.
async fn denied(stage: &Stage, name: &str, env: &str) -> Result<()> {
    stage.managed(name).await?;
    let body = json!({"metadata": {"labels": {"env": env}}, "spec": {"hubAcceptsClient": false}});
    stage.patch(MANAGED, None, name, body).await
}

/// Waits until a cluster is as it should be, and returns it.
async fn wait_for(stage: &Stage, name: &str, accepted: bool, noted: bool) -> Result<Value> {
    let mut last = Value::Null;
    let came = wait::until("the acceptance of a cluster", DEADLINE, async || {
        last = stage.get(MANAGED, None, name).await?.unwrap_or_default();
        let is_noted = last["metadata"]["annotations"][ACCEPTED_ON].is_string();
        let is_accepted = last["spec"]["hubAcceptsClient"] == json!(true);
        Ok((is_accepted == accepted && is_noted == noted).then_some(()))
    });
    came.await
        .with_context(|| format!("{name} is to be accepted: {accepted}; it is {last}"))?;
    Ok(last)
}

#[test]
fn clusters_are_accepted_by_rule_once_and_a_denial_stands() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-acceptance");
        fs::create_dir_all(&folder)?;
        let file = folder.join("policy.yaml");
        let mut policy = program::unlimited_manifest("cluster-acceptance")?;
        policy["spec"]["guests"]["decide"]["settings"]["rules"] =
            json!([{"names": ["edge-*"], "labels": {"env": ["test"]}}]);
        fs::write(&file, policy.to_string())?;
        let words = policies_at(&file)?;
        let rights = stage.grant_exactly(&words).await?;
        cluster(stage, "edge-1", "test").await?;
        cluster(stage, "edge-2", "prod").await?;
        cluster(stage, "core-1", "test").await?;
        denied(stage, "edge-3", "test").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let accepted = wait_for(stage, "edge-1", true, true).await?;
        agent.wait_for("ManagedCluster edge-2", "Applied InSync")?;
        agent.wait_for("ManagedCluster core-1", "Applied InSync")?;
        agent.wait_for("ManagedCluster edge-3", "Applied InSync")?;
        // A label comes later.
        let label = json!({"metadata": {"labels": {"env": "test"}}});
        stage.patch(MANAGED, None, "edge-2", label).await?;
        wait_for(stage, "edge-2", true, true).await?;
        wait_for(stage, "core-1", false, false).await?;
        wait_for(stage, "edge-3", false, false).await?;
        // A person denies the first one. The change of the third one is judged after that.
        let denied = json!({"spec": {"hubAcceptsClient": false}});
        stage.patch(MANAGED, None, "edge-1", denied).await?;
        wait_for(stage, "edge-1", false, true).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again, nothing fails that an Event tells, and the webhook that asks
        // for the last one does not run here.
        let unused =
            "get managedclusters, create events, patch events, update managedclusters/accept";
        stage.all_used_but(&rights, mark, unused)?;
        // Another agent sees all of them, and writes nothing: the denial stands, and the time stays.
        stage
            .finds_all_right(&words, &["ManagedCluster edge-1"])
            .await?;
        let after = wait_for(stage, "edge-1", false, true).await?;
        let on = |cluster: &Value| cluster["metadata"]["annotations"][ACCEPTED_ON].clone();
        ensure!(on(&after) == on(&accepted), "{after}");
        Ok(())
    })
}
