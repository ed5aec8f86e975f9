//! Labels and annotations that a policy sets on managed objects: added, restored, and removed when the policy no longer
//! lists them. Those of others stay.

use crate::objects::OUTPUT;
use crate::stage::{DEADLINE, SECRET, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use transom_e2e::program;
use transom_e2e::stage::put;
use transom_test_cluster::wait;

const HOME: &str = "klusterlet-worn";
const NOTE: &str = "example.com/note";

/// The bundled policy with these fields of `spec.own`.
fn policy(folder: &Path, own: Value) -> Result<()> {
    let mut manifest = program::manifest(OUTPUT)?;
    for (key, value) in own.as_object().into_iter().flatten() {
        manifest["spec"]["own"][key.as_str()] = value.clone();
    }
    put(
        &folder.join("policy.yaml"),
        serde_yaml::to_string(&manifest)?.as_bytes(),
    )
}

/// Waits until the labels and annotations of the secret are as expected.
async fn wait_for(
    stage: &Stage,
    what: &str,
    wanted: impl Fn(&Value, &Value) -> bool,
) -> Result<()> {
    let mut last = Value::Null;
    let came = wait::until(what, DEADLINE, async || {
        last = stage
            .get(SECRET, Some(HOME), OUTPUT)
            .await?
            .unwrap_or_default()["metadata"]
            .take();
        Ok(wanted(&last["labels"], &last["annotations"]).then_some(()))
    });
    let came = came.await;
    came.with_context(|| {
        format!(
            "the last labels were {}, the annotations {}",
            last["labels"], last["annotations"]
        )
    })
}

#[test]
fn restores_managed_keys_and_leaves_keys_of_others_alone() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("worn", true).await?;
        let folder = stage.cluster.folder().join("policies-worn");
        fs::create_dir_all(&folder)?;
        policy(
            &folder,
            json!({"labels": {"team": "blue", "tier": "gold"}, "annotations": {NOTE: "made for them"}}),
        )?;
        let words = policies_at(&folder)?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for_first_pass()?;
        wait_for(stage, "what the policy says", |labels, annotations| {
            labels["team"] == "blue"
                && labels["tier"] == "gold"
                && annotations[NOTE] == "made for them"
        })
        .await?;
        stage.wait_for_right("worn", 6443).await?;
        let by_hand = json!({"metadata": {"labels": {"team": "red", "theirs": "1"}, "annotations": {NOTE: null}}});
        stage.patch(SECRET, Some(HOME), OUTPUT, by_hand).await?;
        wait_for(stage, "what was changed by hand", |labels, annotations| {
            labels["team"] == "blue"
                && labels["theirs"] == "1"
                && annotations[NOTE] == "made for them"
        })
        .await?;
        policy(&folder, json!({"labels": {"team": "green"}}))?;
        wait_for(stage, "what the policy says now", |labels, annotations| {
            labels["team"] == "green"
                && labels["theirs"] == "1"
                && labels["tier"].is_null()
                && annotations[NOTE].is_null()
        })
        .await?;
        policy(&folder, json!({}))?;
        wait_for(
            stage,
            "the end of what the policy says",
            |labels, annotations| {
                labels["team"].is_null()
                    && labels["theirs"] == "1"
                    && annotations["transom.dev/managed-keys"].is_null()
            },
        )
        .await?;
        agent.wait_for("HostedCluster clusters/worn", "Applied InSync")?;
        stage.wait_for_right("worn", 6443).await?;
        agent.stop()?;
        let worn = ["HostedCluster clusters/worn"];
        stage.finds_all_right(&words, &worn).await
    })
}
