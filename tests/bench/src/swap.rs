//! The pause of a swap of 10,000 primaries: the longest processor time for which the agent's memory is locked at once, by
//! whomever, while another revision takes over. No reconcile of any policy can start meanwhile. Against one call of its guest.

use crate::calls::managed;
use crate::directory::{self, shown};
use crate::process::Programs;
use crate::rounds::{median, times};
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
use transom_engine::Limits;

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
    let (mut pauses, mut swapped) = (Vec::new(), 0.0);
    for round in 0..=SWAPS {
        let rests = || (http::metric(agent.admin()?, QUEUE.name, "").ok()? == 0.0).then_some(());
        agent.wait("an agent with nothing to reconcile", rests)?;
        put(&policies, &taints, round + 1)?;
        let pause = agent.wait("a swap", || {
            let (done, pause) = last(&agent).ok()?;
            (done > swapped).then(|| {
                swapped = done;
                pause
            })
        })?;
        if round > 0 {
            pauses.push(pause * MICROS);
        }
    }
    agent.kill()?;
    let (limits, context) = (Limits::default(), Scene::context(&scene.taints));
    let cluster = managed(&scene.taints, &scene.managed)?;
    let [call] = times([&mut || {
        let answer = scene.taints.guest.compute(&limits, &context, &cluster);
        let answer = answer.result?;
        drop(black_box(answer.map_err(|refusal| anyhow!("{refusal:?}"))?));
        Ok(())
    }])?;
    table.add(Row {
        what: format!(
            "pause of a swap of {} primaries: longest lock of the memory, median of {SWAPS} swaps",
            directory::MANY
        ),
        figure: Figure::Micros(median(&pauses)),
        against: "one call, taints `compute`".to_owned(),
        floor: Figure::Micros(call.median),
        fastest: None,
        target: Some(1.0),
    })
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

/// How many swaps there were, and the pause of the last one in seconds.
fn last(agent: &Agent) -> Result<(f64, f64)> {
    let admin = agent.admin().context("it does not say where it listens")?;
    let state: Value = serde_json::from_str(&http::get(admin, "/debug/state")?.body)?;
    let swaps = &state["policies"][0]["swaps"];
    let figure = |name: &str| swaps[name].as_f64().context("there is no such figure");
    Ok((figure("done")?, figure("lastPauseSeconds")?))
}
