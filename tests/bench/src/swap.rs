//! The pause of a swap of 10,000 primaries: for how much processor time the agent's memory is locked at once, by
//! whomever, while another revision takes over. No reconcile of any policy can start meanwhile. 999 of 1,000 locks are
//! held against one call of its guest; the longest, which the kernel interrupted, is told beside them.

use crate::calls::managed;
use crate::directory::{self, shown};
use crate::process::Programs;
use crate::rounds::{Times, median, times};
use crate::scene::Scene;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use transom_core::metrics::QUEUE;
use transom_e2e::agent::{ADMIN, Agent};
use transom_e2e::{http, program};
use transom_engine::CallLimits;

/// Swaps that count; the one before them has the room for their results made.
const SWAPS: usize = 7;
/// Microseconds of a second.
const MICROS: f64 = 1e6;

/// Measures it.
pub(crate) fn measure(
    programs: &Programs,
    scene: &Scene,
    work: &Path,
    table: &mut Table,
) -> Result<()> {
    let (fleet, policies) = (work.join("swapping"), work.join("swapped"));
    for folder in [&fleet, &policies] {
        directory::remove(folder)?;
        fs::create_dir_all(folder)?;
    }
    fs::copy(directory::managed(work)?, fleet.join("managed.json"))?;
    let taints = program::component("taints")?;
    put(&policies, &taints, 0)?;
    let (dir, from) = (shown(&fleet), shown(&policies));
    let words = ["run", "--dir", &dir, "--policies", &from];
    let mut transom = programs.transom(&words);
    transom.args([ADMIN, "127.0.0.1:0"]);
    let agent = Agent::start(&mut transom, work.join("swap.log"))?;
    agent.ready()?;
    let (mut pauses, mut longest, mut swapped) = (Vec::new(), Vec::new(), 0.0);
    for round in 0..=SWAPS {
        let rests = || (http::metric(agent.admin()?, QUEUE.name, "").ok()? == 0.0).then_some(());
        agent.wait("an agent with nothing to reconcile", rests)?;
        put(&policies, &taints, round + 1)?;
        let [done, p999, most] = agent.wait("a swap", || {
            let last = last(&agent).ok()?;
            let [done, ..] = last;
            (done > swapped).then_some(last)
        })?;
        swapped = done;
        if round > 0 {
            pauses.push(p999 * MICROS);
            longest.push(most * MICROS);
        }
    }
    agent.kill()?;
    let call = call(scene)?;
    let mut row = |what: String, pauses: &[f64], target| {
        table.add(Row {
            what,
            figure: Figure::Micros(median(pauses)),
            against: "one call, taints `compute`".to_owned(),
            floor: Figure::Micros(call.median),
            fastest: None,
            target,
        })
    };
    let what = format!(
        "pause of a swap of {} primaries: p99.9 of the locks of the memory, median of {SWAPS} swaps",
        directory::MANY
    );
    row(what, &pauses, Some(1.0))?;
    let what = "the same: the longest lock".to_owned();
    row(what, &longest, None)
}

/// The time of one call of the guest.
fn call(scene: &Scene) -> Result<Times> {
    let (limits, context) = (CallLimits::default(), Scene::context(&scene.taints));
    let cluster = managed(&scene.taints, &scene.managed)?;
    let [call] = times([&mut || {
        let answer = scene.taints.guest.compute(&limits, &context, &cluster);
        let answer = answer.result?;
        drop(black_box(answer.map_err(|refusal| anyhow!("{refusal:?}"))?));
        Ok(())
    }])?;
    Ok(call)
}

/// Writes the policy of a round: another component each time, which answers alike.
fn put(policies: &Path, taints: &[u8], round: usize) -> Result<()> {
    let mut component = taints.to_vec();
    for _ in 0..round {
        // A custom section with an empty name.
        component.extend([0, 1, 0]);
    }
    let name = format!("{round}.wasm");
    fs::write(policies.join(&name), component)?;
    let text = fs::read_to_string(program::policy("built-in-taints"))?;
    let text = program::without_limits(&text).replace("builtin:taints", &name);
    let (file, new) = (policies.join("policy.yaml"), policies.join("policy.new"));
    fs::write(&new, text)?;
    fs::rename(&new, &file).with_context(|| format!("failed to replace `{}`", file.display()))
}

/// How many swaps there were, and of the last one p99.9 and the longest of the locks, in seconds.
fn last(agent: &Agent) -> Result<[f64; 3]> {
    let admin = agent.admin().context("it does not say where it listens")?;
    let state: Value = serde_json::from_str(&http::get(admin, "/debug/state")?.body)?;
    let swaps = &state["policies"][0]["swaps"];
    let figure = |at: &str| {
        let figure = swaps.pointer(at).and_then(Value::as_f64);
        figure.with_context(|| format!("the state has no {at} of swaps"))
    };
    Ok([
        figure("/done")?,
        figure("/lastPause/p999Seconds")?,
        figure("/lastPause/longestSeconds")?,
    ])
}
