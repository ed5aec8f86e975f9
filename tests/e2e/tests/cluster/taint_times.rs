//! The policy `taint-times` on a real API server, together with `built-in-taints` and with exactly the permissions that
//! `transom rbac` prints: taints of users get their time, nobody's taint is lost, and nothing fights.

use crate::hub_sets::put_bundled;
use crate::stage::{MANAGED, Stage, on_stage, policies_at};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";

fn taints(cluster: &Value) -> Vec<(&str, bool)> {
    let list = cluster["spec"]["taints"].as_array().into_iter().flatten();
    let one = |taint: &Value| taint["timeAdded"].is_string();
    list.map(|taint| (taint["key"].as_str().unwrap_or_default(), one(taint)))
        .collect()
}

async fn put_taints(stage: &Stage, taints: Value) -> Result<()> {
    let body = json!({"spec": {"taints": taints}});
    stage.patch(MANAGED, None, "one", body).await
}

/// Waits until a cluster has exactly these taints, each with a time.
async fn wait_for_taints(stage: &Stage, keys: &[&str]) -> Result<Value> {
    let is_right = |cluster: &Value| {
        let mut there = taints(cluster);
        there.sort_unstable();
        let wanted: Vec<_> = keys.iter().map(|key| (*key, true)).collect();
        there == wanted
    };
    stage
        .objects()
        .wait_for(MANAGED, (None, "one"), is_right)
        .await
}

#[test]
fn taints_of_users_get_their_time_beside_those_of_the_hub() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-taint-times");
        put_bundled(&folder, &["built-in-taints", "taint-times"])?;
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let given =
            json!({"key": "given", "effect": "NoSelect", "timeAdded": "2026-01-01T00:00:00Z"});
        let other =
            |value: &str| json!({"key": "other", "value": value, "effect": "PreferNoSelect"});
        put_taints(stage, json!([given, other("x")])).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let cluster = wait_for_taints(stage, &["given", "other"]).await?;
        ensure!(cluster["spec"]["taints"][0] == given, "{cluster}");
        ensure!(
            cluster["spec"]["taints"][1]["timeAdded"] == "2026-11-21T08:00:00Z",
            "{cluster}"
        );
        // The hub adds its own, and a user takes one away and adds another, at the same time.
        stage.set_available("one", "Unknown").await?;
        put_taints(
            stage,
            json!([given, {"key": "new", "effect": "NoSelectIfNew"}]),
        )
        .await?;
        wait_for_taints(stage, &[UNREACHABLE, "given", "new"]).await?;
        stage.set_available("one", "True").await?;
        wait_for_taints(stage, &["given", "new"]).await?;
        agent.wait_for("ManagedCluster one", "Applied InSync")?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        let unused = "get managedclusters, create events, patch events";
        stage.all_used_but(&rights, mark, unused)?;
        stage.finds_all_right(&words, &["ManagedCluster one"]).await
    })
}
