//! What changed since the trial of a revision, or by time alone, is no divergence from its plan; that plan is kept with
//! the revision.

use crate::rollout::{
    POLICY, another_revision, failing, history, put_available, put_cluster, put_component,
    put_policy, revision, stage, status, wait_for_taints, watch,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use transom_conformance::fixture::taints_component;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::stage::{Stage, put};
use transom_support::wait;
use transom_test_cluster::Clock;

/// A suspended policy, whose guest has other settings.
const SUSPENDED: &str = "  suspend: true\n";
const SOFT: &str = "decide.wasm\n      settings: {unreachable: {effect: PreferNoSelect}}";

/// Has a component become active while the policy is suspended, so that nothing is written yet.
fn swap(stage: &Stage, component: &[u8]) -> Result<()> {
    wait_for_taints(stage, "c", 1)?;
    let first = revision(stage)?;
    put_policy(stage, SUSPENDED)?;
    put_component(stage, component)?;
    another_revision(stage, &first).map(drop)
}

/// Checks that no revision was taken back, and that no primary failed.
fn no_divergence(stage: &Stage, agent: Agent) -> Result<()> {
    let lines = history(stage)?;
    ensure!(
        !lines.iter().any(|line| line.contains(" barred ")),
        "{lines:?}"
    );
    let log = agent.stop()?;
    ensure!(!log.contains("Diverged"), "{log}");
    Ok(())
}

#[test]
fn the_plan_of_a_revision_is_kept_with_it_over_a_restart() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    swap(&stage, &failing()?)?;
    agent.kill()?;
    fs::remove_file(stage.policy_status(POLICY))?;
    let agent = watch(&stage, "log-2")?;
    put_policy(&stage, "")?;
    for name in ["a", "b", "c"] {
        wait_for_taints(&stage, name, 0)?;
    }
    let lines = history(&stage)?;
    let active = lines.iter().find(|line| line.contains(" active "));
    ensure!(
        active.is_some_and(|line| line.contains(" 3 of 3 ")),
        "{lines:?}"
    );
    let mut command = stage.transom()?;
    command.args(["history", POLICY, "-o", "json", "--dir"]);
    let output = command.arg(&stage.fleet).output()?;
    let all: Value = serde_json::from_slice(&output.stdout)?;
    let plan = &all[0]["plan"];
    ensure!(
        plan["primaries"]["wouldChange"] == 3 && plan["effects"][0]["verb"] == "removed",
        "{plan}"
    );
    // The first revision was not tried.
    ensure!(all[1]["plan"].is_null(), "{all}");
    no_divergence(&stage, agent)
}

#[test]
fn what_changed_since_the_trial_is_no_divergence() -> Result<()> {
    let stage = stage()?;
    let agent = watch(&stage, "log")?;
    wait_for_taints(&stage, "c", 1)?;
    let first = revision(&stage)?;
    stage.put_policy(
        POLICY,
        &[
            ("builtin:taints", SOFT),
            ("spec:\n", &format!("spec:\n{SUSPENDED}")),
        ],
    )?;
    another_revision(&stage, &first)?;
    // Each of them is another question by now, but for `b`.
    put_available(&stage, "a", "True")?;
    let text = fs::read_to_string(stage.managed("c"))?;
    let foreign = "spec: {taints: [{key: example.com/mine, effect: NoSelect}], ";
    put(
        &stage.managed("c"),
        text.replace("spec: {", foreign).as_bytes(),
    )?;
    put_cluster(&stage, "d")?;
    let seen = || (status(&stage, "/counts/held")? == 4).then_some(());
    wait::until("four suspended clusters", DEADLINE, seen)?;
    stage.put_policy(POLICY, &[("builtin:taints", SOFT)])?;
    for (name, taints) in [("a", 0), ("b", 1), ("c", 2), ("d", 1)] {
        wait_for_taints(&stage, name, taints)?;
    }
    let synced = || (status(&stage, "/counts/applied")? == 4).then_some(());
    wait::until("four clusters in sync", DEADLINE, synced)?;
    no_divergence(&stage, agent)
}

/// A guest that wants a taint from a time on, in seconds since 1970, and does not say that time alone changes its
/// answer.
fn from_then_on(seconds: i64) -> Result<Vec<u8>> {
    taints_component(&format!(
        r#"(memory (export "memory") 64)
        (data (i32.const 3072) "cluster.open-cluster-management.io/unavailable")
        (func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32)
          (if (i64.ge_s (i64.load (local.get 0)) (i64.const {seconds}))
            (then
              (i32.store (i32.const 2048) (i32.const 3072)) (i32.store (i32.const 2052) (i32.const 46))
              (i32.store (i32.const 1036) (i32.const 2048)) (i32.store (i32.const 1040) (i32.const 1))))
          (i32.const 1024))"#
    ))
}

#[test]
fn a_plan_that_is_another_one_by_time_alone_is_no_divergence() -> Result<()> {
    let stage = stage()?;
    let clock = Clock::at(&stage.path("clock"), "2026-11-21 08:00:00")?;
    let mut command = stage.run()?;
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    let agent = Agent::start(clock.wear(&mut command)?, stage.path("log"))?;
    // From 2026-11-21 08:05:00 on.
    swap(&stage, &from_then_on(1_795_248_300)?)?;
    let lines = history(&stage)?;
    ensure!(
        lines.iter().any(|line| line.contains(" 3 of 3 ")),
        "{lines:?}"
    );
    clock.set("2026-11-21 08:05:01")?;
    put_policy(&stage, "")?;
    let later = || {
        let taints = stage.taints("c").ok()?;
        let is_new = |taint: &String| taint.contains("unavailable");
        taints.iter().any(is_new).then_some(())
    };
    wait::until("the taint of the later answer", DEADLINE, later)?;
    no_divergence(&stage, agent).context("at another time")
}
