//! The mode `Shadow`: nothing of the policy is written, and what would change is told again and again.

use crate::rollout::{
    POLICY, failing, put_available, put_cluster, put_component, put_policy, revision, stage,
    status, wait_for, wait_for_taints, watch,
};
use anyhow::{Result, ensure};
use std::fs;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::Stage;
use transom_support::wait;

#[test]
fn a_policy_in_shadow_writes_nothing_and_is_compared() -> Result<()> {
    let stage = stage()?;
    put_policy(&stage, "  rollout: {mode: Shadow}\n")?;
    let agent = watch(&stage, "log")?;
    wait_for(&stage, "/candidate/reason", "Shadowing")?;
    ensure!(status(&stage, "/candidate/changed") == Some(3.into()));
    ensure!(status(&stage, "/revision").is_none());
    for name in ["a", "b", "c"] {
        ensure!(stage.taints(name)?.is_empty());
    }
    put_policy(&stage, "")?;
    wait_for_taints(&stage, "a", 1)?;
    agent.stop()?;
    Ok(())
}

/// How many clusters the candidate would change, by the status.
fn wait_for_changed(stage: &Stage, count: u64) -> Result<()> {
    let is = || (status(stage, "/candidate/changed")? == count).then_some(());
    wait::until(&format!("{count} that would change"), DEADLINE, is)?;
    Ok(())
}

#[test]
fn a_policy_that_has_written_writes_nothing_in_shadow_and_goes_on_to_compare() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 1)?;
    }
    let first = revision(&stage)?;
    put_policy(&stage, "  rollout: {mode: Shadow}\n")?;
    wait_for(&stage, "/candidate/reason", "Shadowing")?;
    wait_for_changed(&stage, 0)?;
    // A cluster joins, another one is well again, and the taint of a third is taken away.
    put_cluster(&stage, "d")?;
    put_available(&stage, "a", "True")?;
    fs::remove_file(stage.patch("b"))?;
    wait_for_changed(&stage, 3)?;
    let untouched = |stage: &Stage| {
        for (name, taints) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
            ensure!(stage.taints(name)?.len() == taints, "{name} was written");
        }
        ensure!(revision(stage)? == first, "another revision is active");
        Ok(())
    };
    untouched(&stage)?;
    // A restart goes on: nothing is written, and what would change is told anew.
    agent.kill()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-2")?;
    wait_for(&stage, "/candidate/reason", "Shadowing")?;
    wait_for_changed(&stage, 3)?;
    put_available(&stage, "a", "Unknown")?;
    wait_for_changed(&stage, 2)?;
    untouched(&stage)?;
    // Another component in the same mode is compared in its place, and the one before writes nothing either.
    put_component(&stage, &failing()?)?;
    let other = || (status(&stage, "/candidate/id")? != first).then_some(());
    wait::until("another candidate", DEADLINE, other)?;
    wait_for(&stage, "/candidate/reason", "Shadowing")?;
    put_cluster(&stage, "e")?;
    let held = || (status(&stage, "/counts/held")? == 5).then_some(());
    wait::until("all of them held", DEADLINE, held)?;
    untouched(&stage)?;
    // Out of the mode it writes again.
    put_component(&stage, &program::component("taints")?)?;
    put_policy(&stage, "")?;
    for name in ["b", "d", "e"] {
        wait_for_taints(&stage, name, 1)?;
    }
    wait_for(&stage, "/conditions/0/status", "True")?;
    ensure!(revision(&stage)? == first && status(&stage, "/candidate").is_none());
    agent.stop().map(drop)
}

#[test]
fn a_start_in_shadow_tells_why_the_newest_manifest_is_refused() -> Result<()> {
    let stage = stage()?;
    ensure!(stage.once()?.status.success());
    put_policy(&stage, "  rollout: {mode: Shadow}\n  misspelt: 1\n")?;
    let agent = watch(&stage, "log")?;
    let file = stage.policy_status(POLICY);
    stage.wait_for_text(&file, "reason: PolicyInvalid")?;
    put_cluster(&stage, "d")?;
    let held = || (status(&stage, "/counts/held")? == 4).then_some(());
    wait::until("all of them held", DEADLINE, held)?;
    ensure!(stage.taints("d")?.is_empty(), "it was written");
    ensure!(fs::read_to_string(&file)?.contains("reason: PolicyInvalid"));
    let log = agent.stop()?;
    let trials = log.matches(" candidate: ").count();
    ensure!(trials < 3, "it was tried {trials} times: {log}");
    Ok(())
}
