//! First run and restart, beside programs that send only the necessary requests.

use super::fleet::{Scene, allowance};
use super::spent::Runs;
use super::{ALLOWED, Rows, SERVERS, count, row};
use crate::process::{self, Programs};
use crate::table::{Figure, Table};
use anyhow::{Context as _, Result};

/// Runs of each whole run.
const RUNS: usize = 3;

/// First run, alternating with programs that only write; returns how many secrets there are to write.
pub(super) async fn first(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<usize> {
    let once = ["run", "--once", "--kubeconfig", &scene.agent];
    process::run(&mut programs.transom(&once)).context("failed to make the first secrets")?;
    let writes = scene.keep_outputs().await?;
    let list = scene.outputs.display().to_string();
    let create = [
        "server",
        "--kubeconfig",
        &scene.floor,
        "create",
        &list,
        "--parallel",
        "32",
    ];
    let apply = [&create[..], &["--apply"]].concat();
    let (mut ours, mut floor, mut posts) = (Runs::default(), Runs::default(), Runs::default());
    let (mut requests, mut peak) = (0, 0.0_f64);
    for _ in 0..RUNS {
        scene.clear_outputs().await?;
        floor.add(scene, &mut programs.floor(&apply)).await?;
        scene.clear_outputs().await?;
        posts.add(scene, &mut programs.floor(&create)).await?;
        scene.clear_outputs().await?;
        let start = scene.now().await?;
        ours.add(scene, &mut programs.transom(&once)).await?;
        requests = scene.requests(&start).await?.all();
        scene.clear_outputs().await?;
        peak = peak.max(process::peak(&mut programs.transom(&once))?);
    }
    let kept = allowance(&scene.start_agent(programs)?)?;
    let what = format!(
        "first run, {} HostedClusters, {writes} secrets to write",
        scene.clusters
    );
    let mut rows = Rows::about(what, table);
    let against = "apply them, 32 at a time";
    let post = "POST them, which RBAC cannot bind by name";
    rows.add("wall time", ours.wall(), against, floor.wall(), Some(1.3))?;
    rows.add("wall time", ours.wall(), post, posts.wall(), None)?;
    rows.add("CPU of the agent", ours.cpu(), against, floor.cpu(), None)?;
    rows.add(SERVERS, ours.servers(), against, floor.servers(), None)?;
    let (requests, necessary) = (count(requests), count(writes));
    let beyond = "requests beyond lists and watches";
    rows.add(beyond, requests, "writes", necessary, Some(1.1))?;
    rows.verbs(&ours.verbs(), against, &floor.verbs())?;
    let (peak, kept) = (Figure::Mebibytes(peak), Figure::Mebibytes(kept));
    rows.add("peak memory", peak, ALLOWED, kept, Some(1.0))?;
    Ok(writes)
}

/// Restart with nothing to do, beside a program that only lists.
pub(super) async fn again(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let once = ["run", "--once", "--kubeconfig", &scene.agent];
    let list = ["server", "--kubeconfig", &scene.floor, "list"];
    let (mut ours, mut lists) = (Runs::default(), Runs::default());
    let start = scene.now().await?;
    for _ in 0..RUNS * 2 {
        ours.add(scene, &mut programs.transom(&once)).await?;
        lists.add(scene, &mut programs.floor(&list)).await?;
    }
    let asked = count(scene.requests(&start).await?.all());
    let against = "list and decode with kube";
    let mut rows = Rows::about("restart with everything right".to_owned(), table);
    let nothing = "writes and single reads";
    rows.add(nothing, asked, "none", count(0), Some(1.0))?;
    let (cpu, floor) = (ours.cpu(), lists.cpu());
    rows.add("CPU of the agent", cpu, against, floor, Some(3.0))?;
    rows.add(SERVERS, ours.servers(), against, lists.servers(), None)?;
    rows.verbs(&ours.verbs(), against, &lists.verbs())
}

/// First run and restart of an agent that may not list the Secrets that it copies.
pub(super) async fn strict(
    programs: &Programs,
    scene: &Scene,
    writes: usize,
    table: &mut Table,
) -> Result<()> {
    let once = [
        "run",
        "--once",
        "--kubeconfig",
        &scene.agent,
        "--secret-reads",
        "strict",
    ];
    scene.clear_outputs().await?;
    let start = scene.now().await?;
    process::run(&mut programs.transom(&once))?;
    let first = scene.requests(&start).await?;
    let start = scene.now().await?;
    process::run(&mut programs.transom(&once))?;
    let again = scene.requests(&start).await?;
    let what = |rest: &str| format!("Secrets read one by one, {rest}");
    let asked = what("first run: requests beyond lists and watches");
    table.add(row(
        asked,
        count(first.all()),
        "writes",
        count(writes),
        Some(2.1),
    ))?;
    let (reads, primaries) = (count(again.gets), count(scene.clusters));
    table.add(row(
        what("restart: single reads"),
        reads,
        "HostedClusters",
        primaries,
        Some(1.0),
    ))?;
    table.add(row(
        what("restart: writes"),
        count(again.writes),
        "none",
        count(0),
        Some(1.0),
    ))
}
