//! Primaries by label on a real API server: only those with the label count, with exactly the permissions that
//! `transom rbac` prints; one that loses it is treated like one that is gone.

use crate::objects::{CLUSTERS, primary};
use crate::stage::{HOSTED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::fs;
use transom_e2e::program;

async fn label(stage: &Stage, name: &str, tier: Option<&str>) -> Result<()> {
    let body = json!({"metadata": {"labels": {"tier": tier}}});
    stage.patch(HOSTED, Some(CLUSTERS), name, body).await
}

/// The policy for clusters of the tiers `gold` and `silver`.
fn put_policy(stage: &Stage) -> Result<String> {
    let mut policy = program::unlimited_manifest("external-managed-kubeconfig")?;
    let tiers = json!({"key": "tier", "operator": "In", "values": ["gold", "silver"]});
    policy["spec"]["primary"]["labels"] = json!({"matchExpressions": [tiers]});
    let file = stage.cluster.folder().join("selected.yaml");
    fs::write(&file, policy.to_string())?;
    Ok(file
        .to_str()
        .context("the folder has another name")?
        .to_owned())
}

#[test]
fn only_primaries_with_the_label_count() -> Result<()> {
    on_stage(async |stage| {
        for name in ["in", "out"] {
            stage.ready(name, true).await?;
        }
        label(stage, "in", Some("gold")).await?;
        let file = put_policy(stage)?;
        let words = ["--policies", file.as_str()];
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("in", 6443).await?;
        // Its secret would follow a port that moves, if it counted.
        stage.move_port("out", 7443).await?;
        stage.move_port("in", 7443).await?;
        stage.wait_for_right("in", 7443).await?;
        ensure!(agent.state(&primary("out"))?.is_none(), "it has no label");
        label(stage, "out", Some("silver")).await?;
        stage.wait_for_right("out", 7443).await?;
        // Another value that is selected as well, then none.
        label(stage, "in", Some("silver")).await?;
        stage.move_port("in", 8443).await?;
        stage.wait_for_right("in", 8443).await?;
        label(stage, "in", Some("lead")).await?;
        stage.wait_for_no_output("in").await?;
        // One whose secret went while no agent was running.
        agent.stop()?;
        label(stage, "out", None).await?;
        let agent = stage.start_agent(&words)?;
        stage.wait_for_no_output("out").await?;
        label(stage, "in", Some("gold")).await?;
        stage.wait_for_right("in", 8443).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        Ok(())
    })
}
