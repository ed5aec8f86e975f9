//! Components that compile slowly: meanwhile other policies start, change and are suspended; a killed agent leaves no
//! compiler behind; and the cache saves compiling again.

use crate::exhaust::{
    GOOD, put_bomb, put_hostile, wait_for_status, watch, within_shipped, works_on,
};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use transom_conformance::fixture::good_with;
use transom_e2e::agent::{Agent, DEADLINE, has_ended};
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// A policy whose component needs 1.5 seconds of compile time for each function, and little memory: nested loops, with
/// as many locals changed in the innermost.
fn put_slow(stage: &Stage, functions: usize) -> Result<()> {
    const DEPTH: usize = 120;
    let mut text = format!(
        "(func (local{}){}",
        " i32".repeat(DEPTH),
        "(loop".repeat(DEPTH)
    );
    for local in 0..DEPTH {
        write!(
            text,
            "(local.set {local} (i32.add (local.get {local}) (i32.const 1)))"
        )?;
    }
    (0..DEPTH).try_for_each(|local| write!(text, "(br_if 0 (local.get {local})))"))?;
    text.push(')');
    put_hostile(stage, "slow", "good", ("good.wasm", "slow.wasm"))?;
    put(
        &stage.policies.join("slow.wasm"),
        &good_with(&text.repeat(functions))?,
    )
}

/// Waits until the agent has logged something about a policy.
fn wait_for_line(agent: &Agent, text: &str, policy: &str) -> Result<()> {
    let ends = format!("policy={policy}");
    let look = || {
        agent
            .log()
            .ok()?
            .lines()
            .any(|line| line.contains(text) && line.contains(&ends))
            .then_some(())
    };
    Ok(wait::until(
        &format!("`{text}` of {policy}"),
        DEADLINE,
        look,
    )?)
}

#[test]
fn a_long_compilation_blocks_no_other_policy_and_stops_on_exit() -> Result<()> {
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    // Of the three components that the agent compiles at its start, one takes longer than allowed, and one as long as
    // allowed.
    put_bomb(&stage)?;
    put_slow(&stage, 14)?;
    put_hostile(&stage, "small", "good", ("", ""))?;
    let mut agent = watch(&stage)?;
    works_on(&stage)?;
    wait_for_status(&stage, "small", "edge-00008", "InSync")?;
    wait::until("a compiler", DEADLINE, || {
        agent.children().ok().filter(|all| !all.is_empty())
    })?;
    put(
        &stage.policies.join("good.wasm"),
        &good_with("(func (param i64))")?,
    )?;
    wait_for_line(&agent, "swapped", "small")?;
    put_hostile(&stage, "late", "good", ("good.wasm", "late.wasm"))?;
    put(
        &stage.policies.join("late.wasm"),
        &good_with("(func (param f32))")?,
    )?;
    wait_for_status(&stage, "late", "edge-00008", "InSync")?;
    let suspended = fs::read_to_string(stage.policies.join("small.yaml"))?
        .replace("spec:\n", "spec:\n  suspend: true\n");
    put(&stage.policies.join("small.yaml"), suspended.as_bytes())?;
    wait_for_status(&stage, "small", "edge-00008", "Suspended")?;
    let log = agent.log()?;
    ensure!(
        !log.lines().any(|line| line.contains("policy=slow")),
        "it was compiled too soon to hold up anybody\n{log}"
    );
    let compilers = agent.children()?;
    ensure!(!compilers.is_empty(), "nothing is being compiled");
    within_shipped(&mut agent, "a long compilation")?;
    agent.kill()?;
    Ok(wait::until("the end of the compiler", DEADLINE, || {
        compilers.iter().all(|one| has_ended(*one)).then_some(())
    })?)
}

#[test]
fn caches_a_slow_compilation_across_a_kill() -> Result<()> {
    let stage = Stage::new(0, 10)?;
    stage.put_policy(GOOD, &[])?;
    put_slow(&stage, 3)?;
    let kept = || -> Result<Vec<(u64, i64, i64)>> {
        let mut all = Vec::new();
        for file in fs::read_dir(stage.path("cache").join("transom/code"))? {
            let about = file?.metadata()?;
            all.push((about.ino(), about.mtime(), about.mtime_nsec()));
        }
        all.sort_unstable();
        Ok(all)
    };
    let agent = watch(&stage)?;
    wait_for_status(&stage, "slow", "edge-00008", "InSync")?;
    agent.kill()?;
    let before = kept().context("nothing was kept")?;
    // The bundled components, and this one.
    ensure!(before.len() >= 2, "{before:?}");
    fs::remove_dir_all(stage.own().join("status/slow"))?;
    let agent = watch(&stage)?;
    wait_for_status(&stage, "slow", "edge-00008", "InSync")?;
    agent.stop()?;
    ensure!(kept()? == before, "it was compiled again");
    Ok(())
}
