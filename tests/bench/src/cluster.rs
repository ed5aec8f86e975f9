//! The agent on a real API server, beside programs that do only what is necessary there. Never counts what it does not
//! measure in the same run: server, agent and floors share one machine.

mod changes;
mod fleet;
mod taints;

use crate::process::{self, Programs};
use crate::rounds::median;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result};
use fleet::Scene;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tokio::runtime::Runtime;

/// Runs of each whole run.
const RUNS: usize = 3;

/// How large the fleets are.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// HostedClusters.
    pub(crate) hosted: usize,
    /// ManagedClusters.
    pub(crate) managed: usize,
}

/// Measures everything on a server of its own.
pub(crate) fn measure(programs: &Programs, work: &Path, sizes: Sizes, table: &mut Table) -> Result<()> {
    let runtime = Runtime::new()?;
    let scene = runtime.block_on(Scene::hosted(work, sizes.hosted))?;
    first(programs, &scene, &runtime, table)?;
    again(programs, &scene, table)?;
    runtime.block_on(changes::rotations(programs, &scene, table))?;
    drop(scene);
    let scene = runtime.block_on(Scene::managed(work, sizes.managed))?;
    runtime.block_on(taints::measure(programs, &scene, table))
}

/// First run, beside programs that only write, in turns.
fn first(programs: &Programs, scene: &Scene, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let once = ["run", "--once", "--kubeconfig", &scene.agent];
    process::run(&mut programs.transom(&once)).context("failed to make the first secrets")?;
    let writes = runtime.block_on(scene.keep_outputs())?;
    let list = scene.outputs.display().to_string();
    let create = ["server", "--kubeconfig", &scene.floor, "create", &list, "--parallel", "32"];
    let apply = [&create[..], &["--apply"]].concat();
    let (mut first, mut floor, mut posts, mut requests, mut peak) = (vec![], vec![], vec![], vec![], 0.0_f64);
    for _ in 0..RUNS {
        runtime.block_on(scene.clear_outputs())?;
        floor.push(process::run(&mut programs.floor(&apply))?.wall_millis);
        runtime.block_on(scene.clear_outputs())?;
        posts.push(process::run(&mut programs.floor(&create))?.wall_millis);
        runtime.block_on(scene.clear_outputs())?;
        let mark = scene.cluster.audit().mark()?;
        first.push(process::run(&mut programs.transom(&once))?.wall_millis);
        requests.push(scene.requests(mark)?);
        runtime.block_on(scene.clear_outputs())?;
        peak = peak.max(process::peak(&mut programs.transom(&once))?);
    }
    let counted = requests.pop().unwrap_or_default();
    let what = |rest: &str| format!("first run, {} HostedClusters, {writes} secrets to write: {rest}", scene.clusters);
    let (first, against) = (millis(&first), "POST them, which RBAC cannot bind by name");
    table.add(row(what("wall time"), first, "apply them, 32 at a time", millis(&floor), Some(1.3)))?;
    table.add(row(what("wall time"), first, against, millis(&posts), None))?;
    let work = Figure::Count((counted.writes + counted.gets) as f64);
    let what_is_asked = what("requests beyond lists and watches");
    table.add(row(what_is_asked, work, "writes", Figure::Count(writes as f64), Some(1.1)))?;
    let kept = Figure::Mebibytes(64.0 + scene.kept_objects() as f64 * 10.0 / 1024.0);
    let peak = Figure::Mebibytes(peak);
    table.add(row(what("peak memory"), peak, "64 MiB and 10 KiB an object", kept, Some(1.0)))
}

/// Restart with nothing to do, beside a program that only lists.
fn again(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let once = ["run", "--once", "--kubeconfig", &scene.agent];
    let list = ["server", "--kubeconfig", &scene.floor, "list"];
    let (mut again, mut lists) = (Vec::new(), Vec::new());
    let mark = scene.cluster.audit().mark()?;
    for _ in 0..RUNS * 2 {
        again.push(process::run(&mut programs.transom(&once))?.cpu_millis);
        lists.push(process::run(&mut programs.floor(&list))?.cpu_millis);
    }
    let counted = scene.requests(mark)?;
    let what = |rest: &str| format!("restart with everything right: {rest}");
    let asked = Figure::Count((counted.writes + counted.gets) as f64);
    table.add(row(what("writes and single reads"), asked, "none", Figure::Count(0.0), Some(1.0)))?;
    table.add(row(what("CPU of the agent"), millis(&again), "list and decode with kube", millis(&lists), Some(3.0)))
}

fn row(what: String, figure: Figure, against: &str, floor: Figure, target: Option<f64>) -> Row {
    Row { what, figure, against: against.to_owned(), floor, fastest: None, target }
}

fn millis(figures: &[f64]) -> Figure {
    Figure::Millis(median(figures))
}

/// A program that runs until this value ends.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// CPU time so far.
    fn cpu_millis(&self) -> Result<f64> {
        process::cpu_millis(&self.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where it has ended already both have nothing to do.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
