//! The policy `cluster-sets-by-rule` on a real API server: a guest that may write any field writes the one that is
//! granted, with exactly the permissions that `transom rbac` prints, and no value beyond the grant.

use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use transom_e2e::program;
use transom_e2e::stage::put;
use transom_test_cluster::wait;

/// The label of a set.
const SET: &str = "cluster.open-cluster-management.io/clusterset";
/// The claim that the rules look at.
const REGION: &str = "region.open-cluster-management.io";

/// Writes the policy with these rules; it may put clusters into the sets `eu` and `us`, and out of them.
fn put_policy(folder: &Path, rules: &Value) -> Result<PathBuf> {
    let mut policy = program::unlimited_manifest("cluster-sets-by-rule")?;
    let grant = &mut policy["spec"]["grant"]["write"][0];
    grant["values"] = json!({ format!("metadata.labels[\"{SET}\"]"): ["eu", "us", null] });
    policy["spec"]["guests"]["decide"]["settings"]["rules"] = rules.clone();
    fs::create_dir_all(folder)?;
    let file = folder.join("policy.yaml");
    put(&file, policy.to_string().as_bytes())?;
    Ok(file)
}

fn rules(set: &str) -> Value {
    json!([
        {"set": null, "labels": {"quarantine": ["*"]}},
        {"set": "elsewhere", "labels": {"env": ["test"]}},
        {"set": set, "labels": {"env": ["prod"]}, "claims": {REGION: ["eu-west-1"]}},
    ])
}

/// A ManagedCluster in this environment, with a claim about its region.
async fn cluster(stage: &Stage, name: &str, env: &str, region: &str) -> Result<()> {
    stage.managed(name).await?;
    label(stage, name, &json!({"env": env, SET: null})).await?;
    claim(stage, name, region).await
}

async fn label(stage: &Stage, name: &str, labels: &Value) -> Result<()> {
    let body = json!({"metadata": {"labels": labels}});
    stage.patch(MANAGED, None, name, body).await
}

async fn claim(stage: &Stage, name: &str, region: &str) -> Result<()> {
    let cluster = stage.get(MANAGED, None, name).await?;
    let mut status = cluster.context("no ManagedCluster")?["status"].take();
    status["clusterClaims"] = json!([{"name": REGION, "value": region}]);
    stage.put_status(MANAGED, None, name, &status).await
}

/// Waits until a cluster is in a set, or in none; its other labels stay.
async fn wait_for_set(stage: &Stage, name: &str, set: Option<&str>) -> Result<()> {
    let mut last = Value::Null;
    let came = wait::until("the set of a cluster", DEADLINE, async || {
        let cluster = stage.get(MANAGED, None, name).await?.unwrap_or_default();
        last = cluster["metadata"]["labels"].clone();
        Ok((last[SET].as_str() == set && last["env"].is_string()).then_some(()))
    });
    came.await
        .with_context(|| format!("{name} is to be in {set:?}; its labels are {last}"))
}

#[test]
fn clusters_get_their_set_by_rule_with_the_rights_of_transom_rbac() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-sets");
        let file = put_policy(&folder, &rules("eu"))?;
        let words = policies_at(&file)?;
        let rights = stage.grant_exactly(&words).await?;
        cluster(stage, "one", "prod", "eu-west-1").await?;
        cluster(stage, "two", "prod", "us-east-1").await?;
        cluster(stage, "three", "test", "eu-west-1").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait_for_set(stage, "one", Some("eu")).await?;
        // No rule fits the second one yet, and the set of the third one is not granted.
        agent.wait_for("ManagedCluster two", "Applied InSync")?;
        agent.wait_for("ManagedCluster three", "Failed ValueNotGranted")?;
        wait_for_set(stage, "two", None).await?;
        wait_for_set(stage, "three", None).await?;
        // A claim changes; then someone else changes the label; then another rule fits.
        claim(stage, "two", "eu-west-1").await?;
        wait_for_set(stage, "two", Some("eu")).await?;
        label(stage, "two", &json!({SET: "us"})).await?;
        wait_for_set(stage, "two", Some("eu")).await?;
        label(stage, "two", &json!({"quarantine": "yes"})).await?;
        wait_for_set(stage, "two", None).await?;
        // Other rules are swapped in while the agent runs.
        put_policy(&folder, &rules("us"))?;
        wait_for_set(stage, "one", Some("us")).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again, only an Event that repeats is patched, and only a webhook
        // that does not run here asks for the last one.
        let unused = "get managedclusters, patch events, create managedclustersets/join";
        stage.all_used_but(&rights, mark, unused)?;
        stage.finds_all_right(&words, &["ManagedCluster one"]).await
    })
}
