//! A guest of the objects world that owns a taint by its key, on a real API server with exactly the permissions that
//! `transom rbac` prints, beside another writer of the same list.

use crate::stage::{MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;
use transom_e2e::fixture;

const NAME: &str = "one";
const OURS: &str = "example.com/ours";
const THEIRS: &str = "example.com/theirs";
/// The label that the policy writes beside the taint.
const LABEL: &str = "example.com/x";

/// Writes the policy of a guest that wants these of its own taints, and the label.
fn put_policy(folder: &Path, taints: &Value) -> Result<()> {
    let content = json!({"metadata": {"labels": {LABEL: "set"}}, "spec": {"taints": taints}});
    let fields = [
        format!("spec.taints[key={OURS}]"),
        format!("metadata.labels[\"{LABEL}\"]"),
    ];
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1},
        "grant": {"write": [{"target": "primary", "verbs": ["patch"], "fields": fields}]},
    });
    let settings = json!({"content": content.to_string()});
    fixture::put_policy(folder, "by-key", "fixture-desired", &settings, spec).map(drop)
}

fn ours(value: &str) -> Value {
    json!([{"key": OURS, "value": value, "effect": "NoSelect"}])
}

/// Another writer sets its own taint in the list as it is; gives how often somebody else was faster.
async fn write_theirs(stage: &Stage, value: &str) -> Result<usize> {
    for lost in 0..100 {
        let cluster = stage.get(MANAGED, None, NAME).await?;
        let mut cluster = cluster.context("the cluster is gone")?;
        let version = cluster["metadata"]["resourceVersion"].take();
        let mut taints = cluster["spec"]["taints"].take();
        let list = taints.as_array_mut().context("there are no taints")?;
        list.retain(|taint| taint["key"] != THEIRS);
        list.push(json!({"key": THEIRS, "value": value, "effect": "PreferNoSelect"}));
        let body = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        if stage.patch(MANAGED, None, NAME, body).await.is_ok() {
            return Ok(lost);
        }
    }
    anyhow::bail!("another writer was always faster")
}

/// Waits until the taints are the first one, as it was, and these with these values.
async fn wait_for(stage: &Stage, first: &Value, rest: &[(&str, &str)]) -> Result<Value> {
    let is_right = |cluster: &Value| {
        let taints = cluster["spec"]["taints"].as_array();
        let Some((there, others)) = taints.and_then(|all| all.split_first()) else {
            return false;
        };
        let text =
            |taint: &Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
        let mut others: Vec<_> = others
            .iter()
            .map(|one| (text(one, "key"), text(one, "value")))
            .collect();
        others.sort();
        let wanted = rest
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        there == first && others == wanted.collect::<Vec<_>>()
    };
    let objects = stage.objects();
    objects.wait_for(MANAGED, (None, NAME), is_right).await
}

#[test]
fn an_objects_guest_changes_its_own_taint_beside_another_writer_of_the_list() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-by-key");
        put_policy(&folder, &ours("0"))?;
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        stage.managed(NAME).await?;
        let first = json!({"key": "example.com/first", "value": "x", "effect": "NoSelectIfNew",
            "timeAdded": "2026-01-01T00:00:00Z"});
        let stale = json!({"key": OURS, "value": "stale", "effect": "NoSelect", "timeAdded": "2026-01-01T00:00:00Z"});
        let body = json!({"spec": {"taints": [first, stale]}});
        stage.patch(MANAGED, None, NAME, body).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let cluster = wait_for(stage, &first, &[(OURS, "0")]).await?;
        // A taint with another value is another taint: it has the time of this write.
        ensure!(
            cluster["spec"]["taints"][1]["timeAdded"] == "2026-11-21T08:00:00Z",
            "{cluster}"
        );
        ensure!(cluster["metadata"]["labels"][LABEL] == "set", "{cluster}");
        // Both write the list at the same time, again and again.
        for round in 1..=5 {
            put_policy(&folder, &ours(&round.to_string()))?;
            for turn in 0..10 {
                write_theirs(stage, &format!("{round}-{turn}")).await?;
            }
            let all = [
                (OURS, &*round.to_string()),
                (THEIRS, &*format!("{round}-9")),
            ];
            let cluster = wait_for(stage, &first, &all).await?;
            let taints = cluster["spec"]["taints"].as_array();
            let untimed = |taint: &Value| taint["key"] == THEIRS && taint["timeAdded"].is_null();
            ensure!(
                taints.is_some_and(|all| all.iter().any(untimed)),
                "{cluster}"
            );
        }
        // None of its own any more: only that one goes.
        put_policy(&folder, &Value::Null)?;
        wait_for(stage, &first, &[(THEIRS, "5-9")]).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        let unused = "get managedclusters, create events, patch events";
        stage.all_used_but(&rights, mark, unused)
    })
}
