//! Guests of the objects world that never come to rest, on a real API server: one wants a field that another writer
//! keeps, one takes back its own change. Their writes are bounded, they are told, and nothing else suffers.

use crate::others::{OTHERS, wait_for_refusal};
use crate::stage::{KLUSTERLET, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::path::Path;
use transom_e2e::fixture;
use transom_test_cluster::Mark;

const LABEL: &str = "example.com/x";

fn labelled(value: &str) -> Value {
    json!({"metadata": {"labels": {LABEL: value}}})
}

/// Writes a policy about every ManagedCluster with this guest, which may write the label of the cluster and that of the
/// Klusterlet of its name.
fn put_policy(folder: &Path, fixture: &str, settings: &Value) -> Result<()> {
    let field = format!("metadata.labels[\"{LABEL}\"]");
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1},
        "grant": {"write": [
            {"target": "primary", "verbs": ["patch"], "fields": [field]},
            {"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "name": format!("{OTHERS}{{primary.name}}"),
                "verbs": ["patch"], "fields": [field]},
        ]},
    });
    fixture::put_policy(folder, "unruly", fixture, settings, spec).map(drop)
}

/// Applies the label on the server side, as its owner, and takes it back from whoever has it.
async fn own(stage: &Stage, kind: (&str, &str), name: &str) -> Result<()> {
    let mut object = labelled("theirs");
    object["apiVersion"] = json!(kind.0);
    object["kind"] = json!(kind.1);
    object["metadata"]["name"] = json!(name);
    let api = stage.api(kind, None).await?;
    let owner = PatchParams::apply("its-owner").force();
    let applied = api.patch(name, &owner, &Patch::Apply(object)).await;
    applied.map(drop).context("failed to apply")
}

async fn wait_for(stage: &Stage, kind: (&str, &str), name: &str, value: &str) -> Result<()> {
    let has = |object: &Value| object["metadata"]["labels"][LABEL] == value;
    let came = stage.objects().wait_for(kind, (None, name), has).await;
    came.map(drop)
        .with_context(|| format!("{} {name}: {value}", kind.1))
}

/// Makes a cluster and its Klusterlet, and returns the name of what the guest writes of them.
async fn put(stage: &Stage, kind: (&str, &str), name: &str) -> Result<String> {
    stage.managed(name).await?;
    let klusterlet = format!("{OTHERS}{name}");
    let object = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "spec": {},
        "metadata": {"name": klusterlet}});
    stage.objects().create(object).await?;
    Ok(match kind == KLUSTERLET {
        true => klusterlet,
        false => name.to_owned(),
    })
}

/// A guest that wants a field of another manager, which applies it again each time.
async fn steals(stage: &Stage, kind: (&str, &str), settings: Value) -> Result<()> {
    let folder = stage
        .cluster
        .folder()
        .join(format!("policies-steals-{}", kind.1));
    put_policy(&folder, "fixture-desired", &settings)?;
    let words = policies_at(&folder)?;
    stage.grant_exactly(&words).await?;
    let stolen = &put(stage, kind, "stolen").await?;
    own(stage, kind, stolen).await?;
    let mark = stage.mark()?;
    let agent = stage.start_agent(&words)?;
    let primary = "ManagedCluster stolen";
    for _ in 0..3 {
        wait_for(stage, kind, stolen, "ours").await?;
        agent.wait_for(primary, "Applied InSync")?;
        own(stage, kind, stolen).await?;
    }
    agent.wait_for(primary, "Failed Contended")?;
    // It keeps off from then on, after any number of changes.
    for beat in 0..5 {
        let other = json!({"metadata": {"annotations": {"example.com/beat": beat.to_string()}}});
        stage.patch(kind, None, stolen, other).await?;
        own(stage, kind, stolen).await?;
    }
    // What the agent handles after all of these.
    let marker = put(stage, kind, "marker").await?;
    wait_for(stage, kind, &marker, "ours").await?;
    wait_for(stage, kind, stolen, "theirs").await?;
    agent.stop()?;
    let writes = writes_of(stage, mark, stolen).await?;
    ensure!(writes == 3, "{writes} writes");
    stage.nothing_denied(mark).await
}

#[test]
fn a_guest_that_takes_a_field_of_its_primary_from_another_manager_over_and_over_is_contended()
-> Result<()> {
    let settings = json!({"content": labelled("ours").to_string()});
    on_stage(async |stage| steals(stage, MANAGED, settings).await)
}

#[test]
fn a_guest_that_takes_a_field_of_an_object_of_others_over_and_over_is_contended() -> Result<()> {
    let made = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "name": format!("{OTHERS}{{name}}"),
        "content": labelled("ours").to_string(), "others": true});
    let settings = json!({"makes": [made]});
    on_stage(async |stage| steals(stage, KLUSTERLET, settings).await)
}

/// How often the agent wrote a cluster.
async fn writes_of(stage: &Stage, mark: Mark, name: &str) -> Result<usize> {
    let writes = stage.writes(mark).await?;
    let ours = writes.iter();
    Ok(ours
        .filter(|write| write.ends_with(&format!("/{name}")))
        .count())
}

#[test]
fn a_guest_that_would_take_back_its_own_change_is_not_woken_by_it_and_contended_with_others()
-> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-turns");
        put_policy(&folder, "fixture-turns", &json!({}))?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        let name = "turning";
        stage.managed(name).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let primary = format!("ManagedCluster {name}");
        agent.wait_for(&primary, "Applied InSync")?;
        // Its own write came back to the agent before that of a cluster that is made later.
        stage.managed("marker").await?;
        wait_for(stage, MANAGED, "marker", "a").await?;
        agent.wait_for("ManagedCluster marker", "Applied InSync")?;
        ensure!(writes_of(stage, mark, name).await? == 1);
        for _ in 0..3 {
            wait_for(stage, MANAGED, name, "a").await?;
            agent.wait_for(&primary, "Applied InSync")?;
            stage.patch(MANAGED, None, name, labelled("b")).await?;
        }
        agent.wait_for(&primary, "Failed Contended")?;
        wait_for(stage, MANAGED, name, "b").await?;
        let writes = writes_of(stage, mark, name).await?;
        ensure!(writes == 3, "{writes} writes");
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_candidate_of_the_objects_world_that_takes_back_its_own_change_never_becomes_active()
-> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-turned");
        let settings = json!({"content": labelled("ours").to_string()});
        put_policy(&folder, "fixture-desired", &settings)?;
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        stage.managed("calm").await?;
        let agent = stage.start_agent(&words)?;
        wait_for(stage, MANAGED, "calm", "ours").await?;
        let mark = stage.mark()?;
        put_policy(&folder, "fixture-turns", &json!({}))?;
        wait_for_refusal(&agent, "AnswerUnstable", "calm")?;
        // The guest that was active decides on.
        stage.managed("next").await?;
        wait_for(stage, MANAGED, "next", "ours").await?;
        agent.stop()?;
        ensure!(writes_of(stage, mark, "calm").await? == 0);
        wait_for(stage, MANAGED, "calm", "ours").await
    })
}
