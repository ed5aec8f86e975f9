//! What a user removes, edits or moves in a folder after the agent has worked on it: edits of fields that the agent
//! changed take effect, and what lies behind a link is not taken for removed.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use transom_core::reference::ObjectRef;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program::{self, code, stderr, stdout};
use transom_e2e::stage::{NOW, Stage, put};
use transom_e2e::tree;
use transom_support::wait;

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

/// A denial counts also where the file had the same text before the cluster was accepted.
#[test]
fn a_cluster_that_a_user_denies_stays_denied() -> Result<()> {
    let stage = stage("cluster-access")?;
    let mut acceptance = program::manifest("cluster-acceptance")?;
    let rule = "/spec/guests/decide/settings/rules";
    *acceptance.pointer_mut(rule).context("no rules")? = json!([{"names": ["*"]}]);
    let file = stage.policies.join("acceptance.yaml");
    put(&file, acceptance.to_string().as_bytes())?;
    let told = || -> Option<String> {
        let one = ObjectRef::local(API, "ManagedCluster", None, "one");
        let cluster = stage.object(&one).ok()??.body;
        let reason = cluster.pointer("/status/conditions/0/reason")?;
        reason.as_str().map(str::to_owned)
    };
    let spec = |accepts| json!({"hubAcceptsClient": accepts});
    let (accepted, denied) = ("HubClusterAdminAccepted", "HubClusterAdminDenied");
    for (spec, reason) in [
        (spec(false), accepted),
        (spec(true), accepted),
        (spec(false), denied),
        (json!({}), denied),
        (spec(false), denied),
    ] {
        put_cluster(&stage, "one.yaml", &spec)?;
        let output = stage.once()?;
        ensure!(code(&output) == Some(0), "{spec}: {}", stderr(&output));
        ensure!(told().as_deref() == Some(reason), "{spec}: {:?}", told());
    }
    let agent = stage.watch()?;
    for (accepts, reason) in [(true, accepted), (false, denied)] {
        put_cluster(&stage, "one.yaml", &spec(accepts))?;
        wait::until(reason, DEADLINE, || (told()? == reason).then_some(()))?;
    }
    agent.stop()?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    ensure!(told().as_deref() == Some(denied), "{:?}", told());
    Ok(())
}

#[test]
fn a_cluster_set_that_a_user_names_again_counts_again() -> Result<()> {
    const SET: &str = "cluster.open-cluster-management.io/clusterset";
    let mut policy = program::manifest("cluster-sets-by-rule")?;
    let rule = "/spec/guests/decide/settings/rules";
    let prod = json!([{"set": "prod", "labels": {"env": ["prod"]}}]);
    *policy.pointer_mut(rule).context("no rules")? = prod;
    let labels = |env: &str, set: Option<&str>| match set {
        Some(set) => json!({"env": env, SET: set}),
        None => json!({"env": env}),
    };
    for story in [
        [
            ("prod", Some("a"), Some("prod")),
            ("x", Some("b"), Some("b")),
            ("x", Some("a"), Some("a")),
        ],
        [
            ("prod", None, Some("prod")),
            ("x", Some("a"), Some("a")),
            ("x", None, None),
        ],
    ] {
        let stage = Stage::new(0, 0)?;
        put(
            &stage.policies.join("policy.yaml"),
            policy.to_string().as_bytes(),
        )?;
        for (env, users, expected) in story {
            let metadata = json!({"name": "one", "labels": labels(env, users)});
            let cluster =
                json!({"apiVersion": API, "kind": "ManagedCluster", "metadata": metadata});
            put(
                &stage.fleet.join("one.yaml"),
                cluster.to_string().as_bytes(),
            )?;
            let output = stage.once()?;
            ensure!(
                code(&output) == Some(0),
                "{env} {users:?}: {}",
                stderr(&output)
            );
            let one = ObjectRef::local(API, "ManagedCluster", None, "one");
            let there = stage.object(&one)?.context("no cluster")?;
            let set = there.label(SET);
            ensure!(set == expected, "{env} {users:?}: {set:?}");
        }
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
