//! A guest of the objects world that writes fields, conditions and status of objects that others made, on a real API
//! server, with exactly the permissions that `transom rbac` prints.

use crate::inputs::reconciles_of;
use crate::stage::{DEADLINE, KLUSTERLET, MANAGED, Stage, on_stage, policies_at};
use crate::status::wait_for_condition;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use transom_e2e::agent::Agent;
use transom_e2e::fixture;
use transom_test_cluster::wait;

/// What the names of the objects begin with that others make.
pub(crate) const OTHERS: &str = "of-others-";
const LABEL: &str = "example.com/seen";
const POLICY: &str = "others";

fn label(value: &str) -> Value {
    json!({"metadata": {"labels": {LABEL: value}}})
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Told", "message": "m"})
}

/// What the guest wants: a label and a condition of the Klusterlet of each cluster, and a label of the cluster.
fn put_policy(folder: &Path, name: &str, content: &Value) -> Result<PathBuf> {
    let field = format!("metadata.labels[\"{LABEL}\"]");
    let made = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "name": name, "content": content.to_string(),
        "others": true});
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1},
        "grant": {"write": [
            {"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "name": format!("{OTHERS}{{primary.name}}"),
                "verbs": ["patch"], "fields": [field, "status.conditions"], "conditions": ["Ours"],
                "values": {field: ["ours", null]}},
        ]},
    });
    let settings = json!({"makes": [made]});
    fixture::put_policy(folder, POLICY, "fixture-desired", &settings, spec)
}

async fn klusterlet(stage: &Stage, name: &str) -> Result<()> {
    let metadata =
        json!({"name": name, "labels": {"theirs": "stays"}, "finalizers": ["example.com/holds"]});
    let object =
        json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "metadata": metadata, "spec": {}});
    stage.objects().create(object).await?;
    let theirs = json!({"conditions": [{"type": "Theirs", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    stage.put_status(KLUSTERLET, None, name, &theirs).await
}

/// Waits until the label of the object has a value.
async fn wait_for_label(stage: &Stage, name: &str, value: &str) -> Result<()> {
    wait::until("a label", DEADLINE, async || {
        let object = stage.get(KLUSTERLET, None, name).await?;
        let labels = object.unwrap_or_default()["metadata"]["labels"].take();
        Ok((labels[LABEL] == value && labels["theirs"] == "stays").then_some(()))
    })
    .await
}

/// Sets the condition as somebody else would.
async fn put_condition(stage: &Stage, name: &str, status: &str) -> Result<()> {
    let object = stage.get(KLUSTERLET, None, name).await?.context("gone")?;
    let mut to = object["status"].clone();
    let all = to["conditions"].as_array_mut().into_iter().flatten();
    for one in all.filter(|one| one["type"] == "Ours") {
        one["status"] = status.into();
    }
    stage.put_status(KLUSTERLET, None, name, &to).await
}

/// Waits until a revision is refused, for this reason and with these words.
pub(crate) fn wait_for_refusal(agent: &Agent, reason: &str, what: &str) -> Result<()> {
    let is_refusal = |line: &str| {
        let words = ["refused: ", reason, what];
        words.iter().all(|word| line.contains(word)).then_some(())
    };
    agent.wait(what, || agent.log().ok()?.lines().find_map(is_refusal))
}

#[test]
fn fields_of_objects_of_others_are_kept_right_and_nothing_else_of_them() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-others");
        let (guest, name) = (format!("{OTHERS}{{name}}"), format!("{OTHERS}one"));
        let ours = condition("Ours", "True");
        let mut wanted = label("ours");
        wanted["status"] = json!({"conditions": [ours]});
        let file = put_policy(&folder, &guest, &wanted)?;
        let words = policies_at(&file)?;
        let rights = stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let primary = "ManagedCluster one";
        // Nobody made it yet, and the policy does not make it.
        agent.wait_for(primary, "Waiting TargetMissing")?;
        ensure!(stage.get(KLUSTERLET, None, &name).await?.is_none());
        klusterlet(stage, &name).await?;
        wait_for_condition(stage, KLUSTERLET, &name, &ours).await?;
        wait_for_label(stage, &name, "ours").await?;
        agent.wait_for(primary, "Applied InSync")?;
        // It has no mark of the agent, and what others say stays.
        let object = stage.get(KLUSTERLET, None, &name).await?.context("gone")?;
        let metadata = object["metadata"].to_string();
        ensure!(!metadata.contains("transom.dev/policy"), "{metadata}");
        ensure!(object["status"]["conditions"][0]["type"] == "Theirs");
        // What somebody edits of it is put right.
        let edited = label("theirs");
        stage.patch(KLUSTERLET, None, &name, edited).await?;
        wait_for_label(stage, &name, "ours").await?;
        // What is none of ours wakes nobody. While it is being deleted only its status is kept right.
        let before = reconciles_of(&agent, POLICY)?;
        for beat in 0..20 {
            let body = json!({"metadata": {"annotations": {"beat": beat.to_string()}}});
            stage.patch(KLUSTERLET, None, &name, body).await?;
        }
        stage.delete(KLUSTERLET, None, &name).await?;
        stage.patch(KLUSTERLET, None, &name, label("dying")).await?;
        put_condition(stage, &name, "False").await?;
        wait_for_condition(stage, KLUSTERLET, &name, &ours).await?;
        wait_for_label(stage, &name, "dying").await?;
        let woken = reconciles_of(&agent, POLICY)? - before;
        ensure!((1.0..=4.0).contains(&woken), "{woken} reconciles");
        // It is gone, and nobody makes it again until it comes back.
        let free = json!({"metadata": {"finalizers": null}});
        stage.patch(KLUSTERLET, None, &name, free).await?;
        agent.wait_for(primary, "Waiting TargetMissing")?;
        klusterlet(stage, &name).await?;
        wait_for_condition(stage, KLUSTERLET, &name, &ours).await?;
        // Hostile answers never become active.
        put_policy(&folder, &guest, &label("ugly"))?;
        wait_for_refusal(&agent, "ValueNotGranted", LABEL)?;
        put_policy(&folder, &guest, &json!({"spec": {"namespace": "x"}}))?;
        wait_for_refusal(&agent, "WriteNotGranted", "`spec.namespace`")?;
        let theirs = json!({"status": {"conditions": [condition("Theirs", "False")]}});
        put_policy(&folder, &guest, &theirs)?;
        wait_for_refusal(&agent, "ValueNotGranted", "the condition `Theirs`")?;
        let reserved = json!({"metadata": {"labels": {"transom.dev/policy": "x"}}});
        put_policy(&folder, &guest, &reserved)?;
        wait_for_refusal(&agent, "WriteNotGranted", "transom.dev/policy")?;
        put_policy(&folder, "klusterlet-stranger", &wanted)?;
        wait_for_refusal(&agent, "WriteNotGranted", "klusterlet-stranger")?;
        // The primary goes; what was written stays.
        stage.delete(MANAGED, None, "one").await?;
        agent.wait_for_lines(1, &[primary, "SourceDeleted"])?;
        wait_for_label(stage, &name, "ours").await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again.
        let unused = "get klusterlets, create events, patch events";
        stage.all_used_but(&rights, mark, unused)
    })
}
