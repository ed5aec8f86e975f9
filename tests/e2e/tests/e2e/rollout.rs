//! A new revision of a policy: a candidate first, active only after it was tried on the live objects and, where that is
//! demanded, approved.

use crate::admin;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use transom_conformance::fixture::trapping;
use transom_core::digest::Digest;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::http;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::tree;
use transom_support::wait;

/// The policy of these tests; its component is a file.
pub(crate) const POLICY: &str = "built-in-taints";
/// The longest name of a cluster for which [`failing`] does not fail.
pub(crate) const LONGEST: usize = 40;

/// A guest that wants no taints, and traps for a cluster with a long name.
pub(crate) fn failing() -> Result<Vec<u8>> {
    trapping(LONGEST)
}

/// A stage with three clusters that are not reachable.
pub(crate) fn stage() -> Result<Stage> {
    let stage = Stage::new(0, 0)?;
    for name in ["a", "b", "c"] {
        put_cluster(&stage, name)?;
    }
    put_policy(&stage, "")?;
    put_component(&stage, &program::component("taints")?)?;
    Ok(stage)
}

pub(crate) fn put_cluster(stage: &Stage, name: &str) -> Result<()> {
    put_available(stage, name, "Unknown")
}

/// Writes a cluster whose availability has this status.
pub(crate) fn put_available(stage: &Stage, name: &str, available: &str) -> Result<()> {
    let condition = |kind: &str, status: &str| {
        format!(
            "  - {{type: {kind}, status: \"{status}\", reason: R, message: m, lastTransitionTime: \"2026-01-01T00:00:00Z\"}}\n"
        )
    };
    let text = format!(
        "apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {{name: {name}}}\n\
         spec: {{hubAcceptsClient: true}}\nstatus:\n  conditions:\n{}{}",
        condition("HubAcceptedManagedCluster", "True"),
        condition("ManagedClusterConditionAvailable", available),
    );
    put(&stage.managed(name), text.as_bytes())
}

/// Writes the policy with more lines in its `spec`.
pub(crate) fn put_policy(stage: &Stage, more: &str) -> Result<()> {
    let spec = format!("spec:\n{more}");
    stage.put_policy(
        POLICY,
        &[("builtin:taints", "decide.wasm"), ("spec:\n", &spec)],
    )
}

/// Another component and more of the policy's `spec`, as one change.
fn put_candidate(stage: &Stage, component: &[u8], more: &Value) -> Result<()> {
    put(&stage.policies.join(POLICY).join("other.wasm"), component)?;
    let mut policy = program::unlimited_manifest(POLICY)?;
    policy["spec"]["guests"]["decide"]["component"] = json!("other.wasm");
    for (field, value) in more.as_object().into_iter().flatten() {
        policy["spec"][field] = value.clone();
    }
    let path = stage.policies.join(POLICY).join("policy.yaml");
    put(&path, policy.to_string().as_bytes())
}

/// Writes the component of the policy.
pub(crate) fn put_component(stage: &Stage, component: &[u8]) -> Result<()> {
    put(&stage.policies.join(POLICY).join("decide.wasm"), component)
}

pub(crate) fn watch(stage: &Stage, log: &str) -> Result<Agent> {
    let mut command = stage.run()?;
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    Agent::start(&mut command, stage.path(log))
}

/// A field of the policy's status.
pub(crate) fn status(stage: &Stage, pointer: &str) -> Option<Value> {
    stage.policy_field(POLICY, pointer)
}

/// Waits for an active revision.
pub(crate) fn revision(stage: &Stage) -> Result<Value> {
    let id = || status(stage, "/revision/id");
    Ok(wait::until("a revision", DEADLINE, id)?)
}

/// Waits for another active revision than this one: the status comes after what was written.
pub(crate) fn another_revision(stage: &Stage, before: &Value) -> Result<Value> {
    let other = || status(stage, "/revision/id").filter(|id| id != before);
    Ok(wait::until("another active revision", DEADLINE, other)?)
}

/// Waits until a field of the policy's status has a value.
pub(crate) fn wait_for(stage: &Stage, pointer: &str, value: &str) -> Result<()> {
    let what = format!("{pointer} to be {value}");
    let is = || (status(stage, pointer)?.as_str()? == value).then_some(());
    Ok(wait::until(&what, DEADLINE, is)?)
}

pub(crate) fn wait_for_taints(stage: &Stage, name: &str, count: usize) -> Result<()> {
    let what = format!("{count} taints of {name}");
    let is = || (stage.taints(name).ok()?.len() == count).then_some(());
    Ok(wait::until(&what, DEADLINE, is)?)
}

/// The lines of `transom history`, without its head.
pub(crate) fn history(stage: &Stage) -> Result<Vec<String>> {
    let mut command = stage.transom()?;
    command.args(["history", POLICY, "--dir"]).arg(&stage.fleet);
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{text}");
    Ok(text.lines().skip(1).map(str::to_owned).collect())
}

/// Approves a digest in the manifest.
fn approve(stage: &Stage, digest: &str) -> Result<()> {
    let path = stage.policies.join(POLICY).join("policy.yaml");
    let mut policy: Value = serde_yaml::from_str(&fs::read_to_string(&path)?)?;
    policy["metadata"]["annotations"] = json!({"transom.dev/approved": digest});
    put(&path, policy.to_string().as_bytes())
}

#[test]
fn while_nothing_is_active_primaries_that_fail_hold_up_no_candidate() -> Result<()> {
    let stage = stage()?;
    for index in 0..ENOUGH {
        put_cluster(&stage, &format!("{}{index}", "x".repeat(LONGEST)))?;
    }
    put_component(&stage, &failing()?)?;
    put_policy(&stage, "  rollout: {mode: Preview}\n")?;
    let agent = watch(&stage, "log")?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    let digest = status(&stage, "/candidate/approve").context("nothing to approve")?;
    approve(&stage, digest.as_str().context("no text")?)?;
    revision(&stage)?;
    let failed = || (status(&stage, "/counts/failed")? == ENOUGH).then_some(());
    wait::until("the ones that fail", DEADLINE, failed)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn an_approved_plan_passes_the_limits_of_its_policy() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 1)?;
    }
    let limits = json!({"elementsRemoved": {"count": 1, "percent": 0}});
    let careful = json!({"rollout": {"mode": "Preview"}, "limits": limits});
    put_candidate(&stage, &failing()?, &careful)?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    let digest = status(&stage, "/candidate/approve").context("nothing to approve")?;
    approve(&stage, digest.as_str().unwrap_or_default())?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 0)?;
    }
    let log = agent.log()?;
    ensure!(!log.contains("LimitReached"), "{log}");
    agent.stop()?;
    Ok(())
}

#[test]
fn an_approved_plan_ends_with_its_revision() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 1)?;
    }
    let first = revision(&stage)?;
    let mut limits = program::unlimited();
    limits["elementsRemoved"] = json!({"count": 1, "percent": 0});
    put_candidate(&stage, &failing()?, &json!({"limits": limits}))?;
    wait_for(&stage, "/candidate/reason", "LimitReached")?;
    let digest = status(&stage, "/candidate/approve").context("nothing to approve")?;
    approve(&stage, digest.as_str().unwrap_or_default())?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 0)?;
    }
    // It is taken back, and the revision before works within the limits of both manifests alone: one.
    put_cluster(&stage, &"x".repeat(LONGEST + 1))?;
    wait_for(&stage, "/candidate/reason", "RolledBack")?;
    ensure!(revision(&stage)? == first);
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 1)?;
    }
    for name in ["a", "b", "c"] {
        put_available(&stage, name, "True")?;
    }
    let withheld = || (status(&stage, "/limits/withheld")? == 2).then_some(());
    wait::until("two clusters withheld", DEADLINE, withheld)?;
    let taints = ["a", "b", "c"].map(|name| stage.taints(name));
    let taints = taints.into_iter().collect::<Result<Vec<_>>>()?;
    ensure!(taints.concat().len() == 2, "{taints:?}");
    agent.stop()?;
    Ok(())
}

#[test]
fn a_candidate_in_preview_waits_for_the_approval_of_its_plan() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    let preview = json!({"rollout": {"mode": "Preview"}});
    put_candidate(&stage, &failing()?, &preview)?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    ensure!(status(&stage, "/candidate/changed") == Some(3.into()));
    ensure!(status(&stage, "/revision/id").as_ref() == Some(&first));
    // A restart in the middle goes on where it was: the earlier revision is active, the candidate waits.
    agent.kill()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let mut command = stage.run()?;
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    let (agent, address) = admin::start_command(&stage, &mut command)?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    ensure!(status(&stage, "/revision/id").as_ref() == Some(&first));
    wait_for_taints(&stage, "c", 1)?;
    let waiting = |count: u8| {
        let line = format!("transom_policies{{status=\"AwaitingApproval\"}} {count}\n");
        let told = || {
            http::get(address, "/metrics")
                .ok()?
                .body
                .contains(&line)
                .then_some(())
        };
        wait::until(&line, DEADLINE, told)
    };
    waiting(1)?;
    let digest = status(&stage, "/candidate/approve").context("nothing to approve")?;
    let digest = digest.as_str().unwrap_or_default().to_owned();
    approve(&stage, "sha256:0")?;
    wait_for(&stage, "/candidate/reason", "PlanChanged")?;
    // The plan is another one as soon as the fleet is.
    put_cluster(&stage, "d")?;
    wait_for_taints(&stage, "d", 1)?;
    approve(&stage, &digest)?;
    let other = || {
        let now = status(&stage, "/candidate/approve")?;
        (now.as_str()? != digest).then_some(now)
    };
    let now = wait::until("another plan", DEADLINE, other)?;
    ensure!(status(&stage, "/revision/id").as_ref() == Some(&first));
    approve(&stage, now.as_str().unwrap_or_default())?;
    for name in ["a", "b", "c", "d"] {
        wait_for_taints(&stage, name, 0)?;
    }
    wait_for(&stage, "/conditions/0/status", "True")?;
    ensure!(status(&stage, "/candidate").is_none());
    waiting(0)?;
    let active = revision(&stage)?;
    // What was approved stays approved.
    agent.kill()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-3")?;
    ensure!(revision(&stage)? == active);
    let log = agent.stop()?;
    ensure!(
        !log.contains("refused") && !log.contains("candidate"),
        "{log}"
    );
    Ok(())
}

#[test]
fn a_candidate_that_fails_for_a_live_object_never_becomes_active() -> Result<()> {
    let stage = stage()?;
    let long = "x".repeat(LONGEST + 1);
    put_cluster(&stage, &long)?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, &long, 1)?;
    let first = revision(&stage)?;
    put_component(&stage, &failing()?)?;
    wait_for(&stage, "/candidate/reason", "GuestTrapped")?;
    wait_for(&stage, "/candidate/gate", "Answers")?;
    wait_for(&stage, "/conditions/0/reason", "GuestTrapped")?;
    ensure!(status(&stage, "/revision/id").as_ref() == Some(&first));
    // The active revision goes on, and nothing of the candidate was written.
    put_cluster(&stage, "later")?;
    wait_for_taints(&stage, "later", 1)?;
    for name in ["a", "b", "c"] {
        ensure!(stage.taints(name)?.len() == 1);
    }
    put_component(&stage, &program::component("taints")?)?;
    wait_for(&stage, "/conditions/0/status", "True")?;
    let log = agent.stop()?;
    ensure!(log.matches("GuestTrapped").count() == 1, "{log}");
    Ok(())
}

/// How many faults that the active revision does not have end a trial.
const ENOUGH: usize = 64;

#[test]
fn a_candidate_that_fails_where_the_active_revision_does_becomes_active() -> Result<()> {
    let stage = stage()?;
    for index in 0..ENOUGH {
        put_cluster(&stage, &format!("{index:02}-{}", "x".repeat(LONGEST)))?;
    }
    put_component(&stage, &failing()?)?;
    let agent = watch(&stage, "log")?;
    let failing = || (status(&stage, "/counts/failed")? == ENOUGH).then_some(());
    wait::until("all of them to fail", DEADLINE, failing)?;
    let first = revision(&stage)?;
    put_component(&stage, &trapping(LONGEST + 1)?)?;
    another_revision(&stage, &first)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_candidate_that_would_undo_its_own_change_never_becomes_active() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    put_component(&stage, &program::component("restless")?)?;
    wait_for(&stage, "/candidate/reason", "AnswerUnstable")?;
    ensure!(revision(&stage)? == first);
    let told = fs::read_to_string(stage.policy_status(POLICY))?;
    ensure!(
        told.contains("would change again what it has changed"),
        "{told}"
    );
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 1)?;
    }
    agent.stop()?;
    Ok(())
}

/// The folder of what was loaded goes with a pod.
#[test]
fn what_was_active_is_loaded_from_where_it_lies_when_nothing_was_kept() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    let second = stage.policies.join(POLICY).join("second.wasm");
    put(&second, &failing()?)?;
    let preview = "spec:\n  rollout: {mode: Preview}\n";
    let component = ("builtin:taints", "second.wasm");
    stage.put_policy(POLICY, &[component, ("spec:\n", preview)])?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    agent.stop()?;
    fs::remove_dir_all(stage.path("cache"))?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-2")?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    ensure!(status(&stage, "/revision/id").as_ref() == Some(&first));
    put_cluster(&stage, "d")?;
    wait_for_taints(&stage, "d", 1)?;
    agent.stop().map(drop)
}

/// Stops the agent, makes the manifest invalid, and starts the agent anew without what it showed before.
fn restart_with(stage: &Stage, agent: Agent, more: &str) -> Result<Agent> {
    agent.stop()?;
    put_policy(stage, more)?;
    fs::remove_file(stage.policy_status(POLICY))?;
    watch(stage, "log-2")
}

#[test]
fn an_invalid_manifest_leaves_the_active_revision_also_after_a_restart() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    let agent = restart_with(&stage, agent, "  unknown: true\n")?;
    stage.wait_for_text(&stage.policy_status(POLICY), "reason: PolicyInvalid")?;
    ensure!(revision(&stage)? == first);
    put_cluster(&stage, "d")?;
    wait_for_taints(&stage, "d", 1)?;
    // A suspension counts, whatever else the manifest says.
    let agent = restart_with(&stage, agent, "  suspend: true\n  unknown: true\n")?;
    stage.wait_for_text(&stage.policy_status(POLICY), "reason: PolicyInvalid")?;
    ensure!(revision(&stage)? == first);
    put_cluster(&stage, "e")?;
    put_policy(&stage, "")?;
    wait_for_taints(&stage, "e", 1)?;
    ensure!(revision(&stage)? == first);
    agent.stop()?;
    Ok(())
}

#[test]
fn a_restart_restores_what_two_files_define() -> Result<()> {
    let stage = stage()?;
    let folder = stage.policies.join(POLICY);
    let (path, copy) = (folder.join("policy.yaml"), folder.join("copy.yaml"));
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let (first, good) = (revision(&stage)?, fs::read(&path)?);
    let works_on = |reason: &str, cluster: &str| -> Result<()> {
        stage.wait_for_text(&stage.policy_status(POLICY), reason)?;
        put_cluster(&stage, cluster)?;
        wait_for_taints(&stage, cluster, 1)?;
        ensure!(revision(&stage)? == first, "{cluster}: another is active");
        Ok(())
    };
    put(&copy, &good)?;
    agent.stop()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-twice")?;
    works_on("the policy is defined in 2 places", "twice")?;
    fs::remove_file(&copy)?;
    works_on("reason: Loaded", "once")?;
    agent.stop().map(drop)
}

#[test]
fn nothing_is_restored_when_the_demanded_signatures_are_not_understood() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    revision(&stage)?;
    let agent = restart_with(&stage, agent, "  verify: {keys: []}\n")?;
    stage.wait_for_text(&stage.policy_status(POLICY), "reason: PolicyInvalid")?;
    put_cluster(&stage, "d")?;
    put_policy(&stage, "")?;
    wait_for_taints(&stage, "d", 1)?;
    let log = agent.log()?;
    let refused = log.find("PolicyInvalid").context("no refusal")?;
    let reconciled = log
        .find("\"d\"")
        .or_else(|| log.find("/d"))
        .unwrap_or(log.len());
    ensure!(refused < reconciled, "{log}");
    agent.stop()?;
    Ok(())
}

/// The files of kept revisions.
fn records(stage: &Stage) -> Result<usize> {
    let objects = tree::contents(&stage.own().join("objects"))?;
    let kept = objects
        .keys()
        .filter(|path| path.to_string_lossy().contains("ControllerRevision"));
    Ok(kept.count())
}

#[test]
fn as_many_revisions_are_kept_as_the_policy_says_and_the_active_one_always() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let mut letters = b'a'..;
    // The default is ten.
    for (more, changes, kept) in [("  rollout: {history: 3}\n", 5, 3), ("", 9, 10)] {
        put_policy(&stage, more)?;
        for letter in letters.by_ref().take(changes) {
            let component = program::variant("taints", letter)?;
            let digest = Digest::of_bytes(&component).to_string();
            put_component(&stage, &component)?;
            wait_for(&stage, "/revision/decide", &digest)?;
            let id = revision(&stage)?;
            let id = id.as_str().unwrap_or_default();
            let active = |line: &String| line.contains(" active ") && line.contains(id);
            ensure!(history(&stage)?.iter().any(active), "{id} is not kept");
        }
        let so_many = || (records(&stage).ok()? == kept).then_some(());
        wait::until(&format!("{kept} revisions"), DEADLINE, so_many)?;
    }
    agent.stop().map(drop)
}

#[test]
fn every_change_is_tried_and_a_revision_is_kept_once() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let good = program::component("taints")?;
    for (component, taints) in [
        (failing()?, 0),
        (good.clone(), 1),
        (failing()?, 0),
        (good, 1),
    ] {
        put_component(&stage, &component)?;
        wait_for_taints(&stage, "b", taints)?;
    }
    let kept = || (history(&stage).ok()?.len() == 2).then_some(());
    wait::until("two revisions", DEADLINE, kept)?;
    let log = agent.stop()?;
    ensure!(log.matches("reason=Trying").count() == 4, "{log}");
    let mut rollback = stage.transom()?;
    rollback
        .args(["rollback", POLICY, "--dir"])
        .arg(&stage.fleet);
    let output = rollback.output()?;
    let told = String::from_utf8(output.stderr)?;
    let shown = String::from_utf8(output.stdout)?;
    // A policy in a file is its owner's: the command tells what to put there.
    ensure!(
        output.status.code() == Some(1) && told.contains("Put this into its file"),
        "{told}"
    );
    ensure!(
        shown.starts_with("spec:\n") && shown.contains("digest: sha256:"),
        "{shown}"
    );
    ensure!(!shown.contains("  rollout:"), "{shown}");
    Ok(())
}

#[test]
fn a_policy_that_is_written_again_does_not_have_the_revisions_of_the_one_before() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    put_component(&stage, &failing()?)?;
    wait_for_taints(&stage, "a", 0)?;
    let count = |count: usize| {
        // The command fails when nothing is kept.
        let counted = || (history(&stage).map_or(0, |all| all.len()) == count).then_some(());
        wait::until(&format!("{count} revisions"), DEADLINE, counted)
    };
    count(2)?;
    fs::remove_dir_all(stage.policies.join(POLICY))?;
    count(0)?;
    put_component(&stage, &program::component("taints")?)?;
    put_policy(&stage, "")?;
    wait_for_taints(&stage, "a", 1)?;
    count(1)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_suspension_hides_nothing_of_a_candidate() -> Result<()> {
    let stage = stage()?;
    put_cluster(&stage, &"x".repeat(LONGEST + 1))?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    put_policy(&stage, "  suspend: true\n")?;
    put_component(&stage, &failing()?)?;
    wait_for(&stage, "/candidate/reason", "GuestTrapped")?;
    put_policy(&stage, "")?;
    wait_for(&stage, "/candidate/reason", "GuestTrapped")?;
    ensure!(revision(&stage)? == first);
    put_cluster(&stage, "later")?;
    wait_for_taints(&stage, "later", 1)?;
    agent.stop()?;
    Ok(())
}
