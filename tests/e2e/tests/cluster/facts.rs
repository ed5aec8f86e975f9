//! The world of tests on a real API server: a world that is one file in each of its places writes what its guest says,
//! with exactly the permissions that `transom rbac` prints, and with every promise that the other worlds keep.

use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::wait;

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
/// The namespace of the ConfigMaps.
pub(crate) const FACTS: &str = "facts";
/// The label of the primary.
const LABEL: &str = "facts.example.com/region";

/// Puts the policy with its cases and its component into a folder.
fn put_policy(folder: &Path) -> Result<()> {
    let policy = program::root().join("tests/fixtures/facts/policy");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(policy)
        .arg(folder)
        .status()?;
    ensure!(copied.success(), "failed to copy the policy");
    let component = program::component("fixture-facts")?;
    Ok(fs::write(folder.join("facts.wasm"), component)?)
}

/// Runs `transom test` on a folder; all of its cases must pass, and there are so many.
fn pass(folder: &Path, words: &[&str], cases: usize) -> Result<()> {
    let mut transom = Command::new(program::binary()?);
    let ended = transom.arg("test").arg(folder).args(words).output()?;
    let output = String::from_utf8_lossy(&ended.stdout);
    ensure!(
        ended.status.success() && output.contains(&format!("{cases} passed, 0 failed")),
        "{output}{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(())
}

#[test]
fn cases_of_another_world_pass() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path().join("policy");
    put_policy(&folder)?;
    pass(&folder, &[], 3)?;
    let component = folder.join("facts.wasm");
    let component = component.to_str().context("the folder has another name")?;
    let cases = program::root().join("tests/fixtures/facts/cases");
    pass(&cases, &["--component", component], 1)
}

/// A ManagedCluster with a region, available and without taints.
async fn cluster(stage: &Stage, name: &str, region: &str) -> Result<()> {
    stage.managed(name).await?;
    set_region(stage, name, region).await
}

async fn set_region(stage: &Stage, name: &str, region: &str) -> Result<()> {
    let body = json!({"metadata": {"annotations": {"region": region}}});
    stage.patch(MANAGED, None, name, body).await
}

/// Waits until the ConfigMap and the label say a region.
async fn wait_for_region(stage: &Stage, name: &str, region: &str) -> Result<()> {
    let mut last = (Value::Null, Value::Null);
    let came = wait::until("the facts", DEADLINE, async || {
        let made = format!("{name}-facts");
        let made = stage.get(CONFIG_MAP, Some(FACTS), &made).await?;
        let data = made.unwrap_or_default()["data"].take();
        let primary = stage.get(MANAGED, None, name).await?.unwrap_or_default();
        let label = primary["metadata"]["labels"][LABEL].clone();
        last = (data, label);
        let wanted = json!({"region": region, "version": "v1.33.2"});
        Ok((last == (wanted, json!(region))).then_some(()))
    });
    came.await
        .with_context(|| format!("{name}: the ConfigMap and the label are {last:?}"))
}

#[test]
fn a_world_of_one_file_in_each_place_works_with_the_rights_of_transom_rbac() -> Result<()> {
    on_stage(async |stage| {
        stage.objects().namespace(FACTS).await?;
        let folder = stage.cluster.folder().join("policies-facts");
        put_policy(&folder)?;
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        ensure!(!rights.is_empty(), "no rights");
        for name in ["one", "two", "theirs"] {
            cluster(stage, name, "eu-west").await?;
        }
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"region": "theirs"},
            "metadata": {"namespace": FACTS, "name": "theirs-facts"}});
        stage.objects().create(theirs).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        for name in ["one", "two"] {
            wait_for_region(stage, name, "eu-west").await?;
        }
        belongs_to_someone_else(stage, &agent).await?;
        follows_every_change(stage).await?;
        agent.wait_for("ManagedCluster one", "Applied InSync")?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        stage.finds_all_right(&words, &["ManagedCluster one"]).await
    })
}

/// An object that someone else made is left alone, and then the label is not written either.
async fn belongs_to_someone_else(stage: &Stage, agent: &Agent) -> Result<()> {
    agent.wait_for("ManagedCluster theirs", "Failed TargetNotOwned")?;
    let there = stage.get(CONFIG_MAP, Some(FACTS), "theirs-facts").await?;
    let there = there.unwrap_or_default();
    ensure!(there["data"] == json!({"region": "theirs"}), "{there}");
    let primary = stage
        .get(MANAGED, None, "theirs")
        .await?
        .unwrap_or_default();
    ensure!(primary["metadata"]["labels"][LABEL].is_null(), "{primary}");
    Ok(())
}

/// A new answer, a label and a ConfigMap changed by hand, and the end of a primary.
async fn follows_every_change(stage: &Stage) -> Result<()> {
    set_region(stage, "one", "us-east").await?;
    wait_for_region(stage, "one", "us-east").await?;
    let by_hand = json!({"metadata": {"labels": {LABEL: "mine"}}});
    stage.patch(MANAGED, None, "one", by_hand).await?;
    wait_for_region(stage, "one", "us-east").await?;
    let by_hand = json!({"data": {"region": null, "stray": "x"}});
    stage
        .patch(CONFIG_MAP, Some(FACTS), "one-facts", by_hand)
        .await?;
    wait_for_region(stage, "one", "us-east").await?;
    stage.delete(MANAGED, None, "two").await?;
    wait::until("the end of the ConfigMap", DEADLINE, async || {
        let there = stage.get(CONFIG_MAP, Some(FACTS), "two-facts").await?;
        Ok(there.is_none().then_some(()))
    })
    .await
}
