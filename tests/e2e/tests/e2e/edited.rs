//! What a user removes, edits or moves in a folder after the agent has worked on it: edits of fields that the agent
//! changed take effect, and what lies behind a link is not taken for removed.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use transom_core::reference::ObjectRef;
use transom_e2e::program::{self, code, stderr, stdout};
use transom_e2e::stage::{NOW, Stage, put};
use transom_e2e::tree;

const API: &str = "cluster.open-cluster-management.io/v1";

/// A stage with one policy.
fn stage(policy: &str) -> Result<Stage> {
    let stage = Stage::new(0, 0)?;
    let manifest = program::manifest(policy)?.to_string();
    put(&stage.policies.join("policy.yaml"), manifest.as_bytes())?;
    Ok(stage)
}

/// The only ManagedCluster, with some fields of its spec.
fn put_cluster(stage: &Stage, file: &str, spec: &Value) -> Result<()> {
    let cluster = json!({"apiVersion": API, "kind": "ManagedCluster", "metadata": {"name": "one"}, "spec": spec});
    put(&stage.fleet.join(file), cluster.to_string().as_bytes())
}

#[test]
fn a_taint_that_the_agent_timed_follows_the_users_file() -> Result<()> {
    let stage = stage("taint-times")?;
    let one = ObjectRef::local(API, "ManagedCluster", None, "one");
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let (first, edited) = (taint("a/b", "NoSelect"), taint("a/b", "PreferNoSelect"));
    for taints in [
        json!([first]),
        json!([edited]),
        json!([first, edited]),
        json!([edited]),
        json!([taint("c/d", "NoSelect"), edited]),
        json!([taint("e/f", "NoSelect")]),
        json!([]),
        Value::Null,
    ] {
        put_cluster(&stage, "one.yaml", &json!({"taints": taints}))?;
        let output = stage.once()?;
        ensure!(code(&output) == Some(0), "{taints}: {}", stderr(&output));
        let mut timed = taints.as_array().cloned().unwrap_or_default();
        for taint in &mut timed {
            taint["timeAdded"] = json!(NOW);
        }
        let there = stage.object(&one)?.context("no cluster")?;
        let there = &there.body["spec"]["taints"];
        let there = there.as_array().cloned().unwrap_or_default();
        ensure!(there == timed, "{taints}: {there:?}");
    }
    Ok(())
}

#[test]
fn nothing_is_removed_that_may_lie_behind_a_link() -> Result<()> {
    let stage = stage("cluster-access")?;
    put_cluster(&stage, "sub/one.yaml", &json!({"hubAcceptsClient": true}))?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    let objects = stage.own().join("objects");
    let made = tree::contents(&objects)?;
    ensure!(
        made.len() > 3,
        "roles and bindings are made: {}",
        made.len()
    );
    let (sub, outside) = (stage.fleet.join("sub"), stage.path("outside"));
    fs::rename(&sub, &outside)?;
    for (target, name, why) in [
        (outside.as_path(), "sub", "leads out of the folder"),
        ("nowhere".as_ref(), "sub", "leads nowhere"),
        ("nowhere".as_ref(), "one.yaml", "leads nowhere"),
    ] {
        let link = stage.fleet.join(name);
        symlink(target, &link)?;
        let output = stage.once()?;
        let said = stdout(&output) + &stderr(&output);
        ensure!(code(&output) == Some(1), "{name} {why}: {said}");
        ensure!(said.contains(name) && said.contains(why), "{name}: {said}");
        ensure!(tree::contents(&objects)? == made, "{name} {why}: removed");
        fs::remove_file(&link)?;
    }
    // The folder is back.
    fs::rename(&outside, &sub)?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    ensure!(tree::contents(&objects)? == made, "it is as it was");
    Ok(())
}
