//! A swap reconciles exactly the primaries whose answer differs; the trial of the new revision has found the others
//! right as they are, and every later change of what they rest on counts for them.

use crate::admin::start;
use crate::rollout::{POLICY, put_available, put_component};
use anyhow::{Result, ensure};
use std::net::SocketAddr;
use transom_conformance::fixture::taints_component;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::http::metric;
use transom_e2e::program;
use transom_e2e::stage::Stage;
use transom_support::wait;

/// Clusters in the folder, and those of them that are not reachable: every 400th.
const CLUSTERS: usize = 1_000;
const EACH: usize = 400;

/// A guest that wants no taints.
fn wanting_none() -> Result<Vec<u8>> {
    taints_component(
        r#"(func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32) (i32.const 1024))"#,
    )
}

fn name(index: usize) -> String {
    format!("cluster-{index:04}")
}

/// How often a primary was reconciled for a cause, in any state.
fn reconciles(admin: SocketAddr, cause: &str) -> Result<f64> {
    metric(
        admin,
        "transom_reconciles_total",
        &format!("cause=\"{cause}\""),
    )
}

/// Waits until nothing is left to do.
fn wait_for_rest(admin: SocketAddr) -> Result<()> {
    let rests = || {
        let left = metric(admin, "transom_queue_primaries", POLICY).ok()?;
        (left == 0.0).then_some(())
    };
    Ok(wait::until("an empty workqueue", DEADLINE, rests)?)
}

/// Replaces the component, and waits until that was told so many times and is at rest.
fn swap(
    stage: &Stage,
    (agent, admin): (&Agent, SocketAddr),
    component: &[u8],
    count: usize,
) -> Result<()> {
    put_component(stage, component)?;
    agent.wait_for_lines(count, &["\"swapped\""])?;
    wait_for_rest(admin)
}

#[test]
fn a_candidate_is_tried_although_resyncs_come_due_faster_than_they_are_done() -> Result<()> {
    let stage = Stage::new(0, 3 * CLUSTERS)?;
    let resync = "spec:\n  resyncSeconds: 1\n";
    let changes = [("builtin:taints", "decide.wasm"), ("spec:\n", resync)];
    stage.put_policy(POLICY, &changes)?;
    put_component(&stage, &program::component("taints")?)?;
    let (agent, admin) = start(&stage, &[])?;
    agent.wait_for_lines(1, &["\"loaded\""])?;
    wait::until("resyncs", DEADLINE, || {
        let resyncs = reconciles(admin, "Resync").ok()?;
        (resyncs > CLUSTERS as f64).then_some(())
    })?;
    put_component(&stage, &wanting_none()?)?;
    agent.wait_for_lines(1, &["\"swapped\""])?;
    agent.stop()?;
    let mut plan = stage.transom()?;
    plan.arg("plan").arg(POLICY).arg("--dir").arg(&stage.fleet);
    let planned = plan.arg("--policies").arg(&stage.policies).output()?;
    ensure!(planned.status.success(), "{planned:?}");
    Ok(())
}

#[test]
fn a_swap_reconciles_exactly_the_primaries_whose_answer_differs() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    let away = |index: usize| index % EACH == 7;
    for index in 0..CLUSTERS {
        let available = if away(index) { "Unknown" } else { "True" };
        put_available(&stage, &name(index), available)?;
    }
    stage.put_policy(POLICY, &[("builtin:taints", "decide.wasm")])?;
    put_component(&stage, &wanting_none()?)?;
    let (agent, admin) = start(&stage, &[])?;
    agent.wait_for_lines(1, &["\"loaded\""])?;
    wait_for_rest(admin)?;
    ensure!(reconciles(admin, "Added")? == CLUSTERS as f64);

    swap(&stage, (&agent, admin), &program::component("taints")?, 1)?;
    let different = (0..CLUSTERS).filter(|index| away(*index)).count() as f64;
    let swapped = reconciles(admin, "Swapped")?;
    ensure!(swapped == different, "{swapped} instead of {different}");
    for index in (0..CLUSTERS).filter(|index| away(*index)) {
        ensure!(stage.taints(&name(index))?.len() == 1, "{index}");
    }

    // One that was not reconciled is known as the new revision sees it: its next change is a change.
    put_available(&stage, &name(500), "Unknown")?;
    let tainted = || (stage.taints(&name(500)).ok()?.len() == 1).then_some(());
    wait::until("the taint of a cluster that was right", DEADLINE, tainted)?;
    wait_for_rest(admin)?;
    ensure!(reconciles(admin, "Added")? == CLUSTERS as f64);
    ensure!(reconciles(admin, "Changed")? == 1.0);

    // Other bytes with the same answers: nothing is reconciled.
    let mut alike = program::component("taints")?;
    // A custom section with an empty name.
    alike.extend([0, 1, 0]);
    swap(&stage, (&agent, admin), &alike, 2)?;
    ensure!(reconciles(admin, "Swapped")? == swapped);
    agent.stop()?;
    Ok(())
}

#[test]
fn a_restart_reconciles_each_primary_once_though_all_want_objects_that_do_not_name_them()
-> Result<()> {
    // All share two roles that one of them keeps, and each has a namespace that is made once and bears no stamp.
    const SHARING: &str = "cluster-access";
    const BESIDE: f64 = 20.0;
    let few = 40;
    let stage = Stage::new(0, few)?;
    stage.put_policy(SHARING, &[])?;
    let all = few as f64;
    for is_restart in [false, true] {
        let (agent, admin) = start(&stage, &[])?;
        agent.wait_for_lines(1, &["\"loaded\""])?;
        let done = || {
            let rests = metric(admin, "transom_queue_primaries", SHARING).ok()? == 0.0;
            let (added, released) = (reconciles(admin, "Added"), reconciles(admin, "Released"));
            let (added, released) = (added.ok()?, released.ok()?);
            (rests && added + released >= all).then_some((added, released))
        };
        let (added, released) = wait::until("an empty workqueue", DEADLINE, done)?;
        // Those that began beside the one that keeps the roles may wait for it: more of them on a busy machine.
        ensure!(
            added + released == all && (!is_restart || released < BESIDE),
            "{added} under Added, {released} under Released"
        );
        agent.stop()?;
    }
    Ok(())
}
