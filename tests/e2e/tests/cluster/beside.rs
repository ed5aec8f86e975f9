//! Beside the hypershift-addon agent: a read-only agent writes nothing and reports every difference; then a writing
//! agent only adds ownership labels to correct secrets. The secrets have the form of that agent: written by client-go,
//! without labels or annotations.

use crate::objects::{CLUSTERS, OUTPUT, home, primary};
use crate::stage::{SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use transom_e2e::agent::Agent;

/// What the other agent makes of a source: it reads it with client-go, changes one field, and writes it with client-go.
fn as_go_writes(stage: &Stage, name: &str, source: &Value) -> Result<Vec<u8>> {
    let path = stage.cluster.folder().join(format!("go-{name}.kubeconfig"));
    let bytes = STANDARD.decode(source["data"]["kubeconfig"].as_str().context("no source")?)?;
    fs::write(&path, &bytes)?;
    let server = format!("https://kube-apiserver.{CLUSTERS}-{name}.svc.cluster.local:6443");
    let mut kubectl = stage.cluster.kubectl(stage.cluster.admin())?;
    let kubectl = kubectl
        .args(["config", "set-cluster", "cluster", "--server", &server])
        .arg("--kubeconfig")
        .arg(&path);
    ensure!(
        kubectl.output()?.status.success(),
        "kubectl does not read the source"
    );
    let written = fs::read(&path)?;
    ensure!(written != bytes, "client-go wrote the very same bytes");
    Ok(written)
}

/// A hosted cluster for which the other agent has made the secret.
async fn made_by_go(stage: &Stage, name: &str) -> Result<()> {
    stage.ready(name, true).await?;
    let source = stage
        .get(SECRET, Some(CLUSTERS), &format!("{name}-admin-kubeconfig"))
        .await?
        .context("no source")?;
    let data = json!({"kubeconfig": STANDARD.encode(as_go_writes(stage, name, &source)?)});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"name": OUTPUT, "namespace": home(name)}});
    stage.objects().create(secret).await.map(drop)
}

async fn secret(stage: &Stage, name: &str) -> Result<Value> {
    stage
        .get(SECRET, Some(&home(name)), OUTPUT)
        .await?
        .with_context(|| format!("{name} has no secret"))
}

/// Whether its log has a line about a primary's secret with this end.
fn said(agent: &Agent, name: &str, end: &str) -> Result<()> {
    let home = format!("{}/{OUTPUT}", home(name));
    let log = agent.log()?;
    let mut messages = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let told = line
            .as_object()?
            .values()
            .filter_map(Value::as_str)
            .find(|text| text.contains("would "));
        told.map(str::to_owned)
    });
    ensure!(
        messages.any(|text| text.contains(&home) && text.ends_with(end)),
        "{name}: it said {log}"
    );
    Ok(())
}

/// One correct secret, one with an old port, one missing, one with another credential.
async fn fleet(stage: &Stage) -> Result<()> {
    for name in ["right", "moved", "foreign"] {
        made_by_go(stage, name).await?;
    }
    stage.ready("missing", true).await?;
    stage.move_port("moved", 7443).await?;
    let other = crate::objects::case_text(OUTPUT, "V18-source-rotated", "then.yaml", |_| {
        "foreign".to_owned()
    })?;
    let other = crate::objects::parse(&other.context("no case V18")?)?.remove(0);
    stage
        .patch(
            SECRET,
            Some(CLUSTERS),
            "foreign-admin-kubeconfig",
            json!({"data": other["data"]}),
        )
        .await
}

#[test]
fn read_only_writes_nothing_and_migration_rewrites_no_correct_object() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage).await?;
        let before = [
            secret(stage, "right").await?,
            secret(stage, "moved").await?,
            secret(stage, "foreign").await?,
        ];
        let mark = stage.mark()?;
        let agent = stage.start_agent(&["--read-only"])?;
        agent.wait_for_first_pass()?;
        said(&agent, "right", ": metadata")?;
        said(&agent, "moved", ": data.kubeconfig, metadata")?;
        said(&agent, "missing", OUTPUT)?;
        agent.wait_for(&primary("foreign"), "Failed TargetNotOwned")?;
        // Changes do not make it write, either.
        stage.move_port("right", 7443).await?;
        let deadline = crate::stage::DEADLINE;
        transom_test_cluster::wait::until("what it says of the news", deadline, async || {
            Ok(said(&agent, "right", ": data.kubeconfig, metadata").ok())
        })
        .await?;
        stage.move_port("right", 6443).await?;
        agent.stop()?;
        let asked = stage.changing(mark).await?;
        ensure!(asked.is_empty(), "a read-only agent asked for {asked:#?}");

        let mark = stage.mark()?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("moved", 7443).await?;
        stage.wait_for_right("missing", 6443).await?;
        agent.wait_for(&primary("right"), "Applied InSync")?;
        agent.wait_for(&primary("foreign"), "Failed TargetNotOwned")?;
        agent.stop()?;
        let mut writes = stage.writes(mark).await?;
        writes.sort();
        let wanted = ["missing", "moved", "right"]
            .map(|name| format!("patch secrets {}/{OUTPUT}", home(name)));
        ensure!(writes == wanted, "{writes:#?}");
        stamped_and_nothing_else(&before[0], &secret(stage, "right").await?)?;
        ensure!(
            before[2] == secret(stage, "foreign").await?,
            "the secret with another credential was touched"
        );
        Ok(())
    })
}

/// Only two labels and three annotations were added; the rest is identical to the letter.
fn stamped_and_nothing_else(before: &Value, after: &Value) -> Result<()> {
    ensure!(
        before["data"] == after["data"] && before["type"] == after["type"],
        "more than the metadata changed"
    );
    let count = |field: &str| {
        after["metadata"][field]
            .as_object()
            .map_or(0, serde_json::Map::len)
    };
    ensure!(
        (count("labels"), count("annotations")) == (3, 3),
        "{}",
        after["metadata"]
    );
    ensure!(
        after["metadata"]["labels"]["transom.dev/adopted"] == "true",
        "nothing says that it was adopted"
    );
    ensure!(
        before["metadata"]["uid"] == after["metadata"]["uid"],
        "it was made anew"
    );
    Ok(())
}
