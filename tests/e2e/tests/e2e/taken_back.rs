//! A revision that fails once it is active is taken back: it traps, exceeds its budget, or goes beyond its grant.

use crate::rollout::{
    LONGEST, POLICY, failing, history, put_cluster, put_component, revision, stage, status,
    wait_for, wait_for_taints, watch,
};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use transom_conformance::fixture::changing;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::Stage;
use transom_support::wait;

/// What a guest does for a cluster that was not there when it was tried, and the reason.
const FAULTS: [(&str, &str); 5] = [
    // It takes too long; needs too much memory; gives an answer that is too large.
    ("(loop $again (br $again))", "GuestTimedOut"),
    (
        "(if (i32.eq (memory.grow (i32.const 65000)) (i32.const -1)) (then (unreachable)))",
        "GuestMemoryExceeded",
    ),
    (
        "(i32.store (i32.const 1036) (i32.const 8192)) (i32.store (i32.const 1040) (i32.const 200000))",
        "AnswerTooLarge",
    ),
    // It wants a taint that is not granted; gives a reason that it did not declare.
    (
        "(i32.store (i32.const 2048) (i32.const 544)) (i32.store (i32.const 2052) (i32.const 4)) \
         (i32.store (i32.const 1036) (i32.const 2048)) (i32.store (i32.const 1040) (i32.const 1))",
        "TaintKeyNotGranted",
    ),
    (
        "(i32.store8 (i32.const 1032) (i32.const 1)) \
         (i32.store (i32.const 1036) (i32.const 512)) (i32.store (i32.const 1040) (i32.const 7))",
        "ContractBroken",
    ),
];

/// Waits until the history has a revision that is barred for a reason; returns its lines.
fn wait_for_bar(stage: &Stage, reason: &str) -> Result<Vec<String>> {
    let barred = || {
        let lines = history(stage).ok()?;
        let barred = |line: &String| line.contains(" barred ") && line.contains(reason);
        lines.iter().any(barred).then_some(lines)
    };
    Ok(wait::until(
        &format!("the bar for {reason}"),
        DEADLINE,
        barred,
    )?)
}

#[test]
fn a_revision_that_exceeds_its_budget_or_its_grant_once_it_is_active_is_taken_back() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    let long = "x".repeat(LONGEST + 1);
    for (fault, reason) in FAULTS {
        put_component(&stage, &changing(LONGEST, fault)?)?;
        for name in ["a", "b", "c"] {
            wait_for_taints(&stage, name, 0).context(reason)?;
        }
        put_cluster(&stage, &long)?;
        wait_for(&stage, "/candidate/reason", "RolledBack").context(reason)?;
        ensure!(revision(&stage)? == first, "{reason}");
        for name in ["a", "b", "c", &long] {
            wait_for_taints(&stage, name, 1).context(reason)?;
        }
        wait_for_bar(&stage, reason)?;
        fs::remove_file(stage.managed(&long))?;
        let gone = || (status(&stage, "/counts/total")? == 3).then_some(());
        wait::until("the end of the cluster", DEADLINE, gone)?;
        put_component(&stage, &program::component("taints")?)?;
        wait_for(&stage, "/conditions/0/status", "True").context(reason)?;
    }
    agent.stop().map(drop)
}

#[test]
fn a_revision_that_fails_once_it_is_active_is_taken_back_and_barred() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    put_component(&stage, &failing()?)?;
    wait_for_taints(&stage, "a", 0)?;
    // It fails for an object that was not there when it was tried.
    put_cluster(&stage, &"x".repeat(LONGEST + 1))?;
    wait_for(&stage, "/candidate/reason", "RolledBack")?;
    ensure!(status(&stage, "/revision/id").as_ref() == Some(&first));
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 1)?;
    }
    let lines = wait_for_bar(&stage, "GuestTrapped")?;
    let first = first.as_str().unwrap_or_default();
    let active = |line: &String| line.contains(" active ") && line.contains(first);
    ensure!(lines.len() == 2 && lines.iter().any(active), "{lines:?}");
    agent.kill()?;
    // It stays barred after a restart, and what was active is active.
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-2")?;
    wait_for(&stage, "/candidate/reason", "RolledBack")?;
    ensure!(status(&stage, "/revision/id") == Some(first.into()));
    agent.stop()?;
    Ok(())
}

#[test]
fn a_new_revision_is_still_watched_after_a_restart() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    put_component(&stage, &failing()?)?;
    wait_for_taints(&stage, "a", 0)?;
    agent.kill()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-2")?;
    ensure!(revision(&stage)? != first);
    put_cluster(&stage, &"x".repeat(LONGEST + 1))?;
    wait_for(&stage, "/candidate/reason", "RolledBack")?;
    ensure!(revision(&stage)? == first);
    wait_for_taints(&stage, "a", 1)?;
    agent.stop()?;
    Ok(())
}
