//! The tasks that build a program of the workspace and start it: `cargo xtask cluster`, `demo --cluster`, `deploy` and
//! `bench`.

use crate::workspace::Workspace;
use crate::{guests, process, progress, servers, workspace};
use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The program of `tests/cluster`.
const CLUSTER: &str = "transom-test-cluster";

/// What a real API server for playing has.
#[derive(clap::Args)]
pub(crate) struct Cluster {
    /// HostedClusters, each with secret, Service and namespaces
    #[arg(long, default_value_t = 8)]
    hosted: usize,
    /// ManagedClusters; the first belong to the HostedClusters
    #[arg(long, default_value_t = 10)]
    managed: usize,
}

/// Replaces this process by one with a real API server, so that Ctrl-C goes to it.
pub(crate) fn cluster(args: &Cluster) -> Result<()> {
    progress::step("preparing the servers");
    let folder = servers::prepare()?;
    progress::step("building the program that starts them (some minutes the first time)");
    let mut program = Command::new(workspace::program(CLUSTER)?);
    program
        .current_dir(workspace::read()?.root)
        .env(servers::VARIABLE, folder);
    fleet(&mut program, args.hosted, args.managed);
    Err(program.exec()).context("failed to start the cluster")
}

/// Tells a program how many objects to create.
fn fleet(program: &mut Command, hosted: usize, managed: usize) {
    program.args(["--hosted", &hosted.to_string()]);
    program.args(["--managed", &managed.to_string()]);
}

/// Shows the main job on a real API server.
pub(crate) fn demo() -> Result<()> {
    let workspace = workspace::read()?;
    progress::step("building the guests, the agent and the servers (some minutes the first time)");
    guests::run(&guests::Args::shipped_and(&workspace, "calm"))?;
    let transom = workspace::program("transom")?;
    let mut show = Command::new(workspace::program(CLUSTER)?);
    show.current_dir(&workspace.root)
        .env(servers::VARIABLE, servers::prepare()?)
        .arg("--show")
        .arg(transom);
    process::run(&mut show)
}

/// Writes the files below host/deploy and host/docs that are made from the sources.
pub(crate) fn deploy() -> Result<()> {
    let transom = workspace::program("transom")?;
    let mut deploy = Command::new(workspace::program("transom-test-deploy")?);
    deploy
        .current_dir(workspace::read()?.root)
        .env("TRANSOM_BINARY", transom);
    process::run(&mut deploy)
}

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Measure the agent on a real API server instead of the directory
    #[arg(value_enum)]
    what: Option<What>,
    /// HostedClusters on the API server
    #[arg(long, default_value_t = 1000)]
    hosted: usize,
    /// ManagedClusters on the API server
    #[arg(long, default_value_t = 10_000)]
    managed: usize,
    /// Run only these parts: calls, load, start, swap, way, directory, render, plan, watch, memory; on an API server
    /// kubeconfigs, taints, sets, acceptance, leases, registered
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What can be measured apart.
#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// First run, restart, changes and taints on a real API server
    Cluster,
}

/// Builds the agent and the benchmarks for release, and returns their folder.
pub(crate) fn release(workspace: &Workspace) -> Result<PathBuf> {
    progress::say("    building for release; this takes some minutes, once");
    process::run(workspace::cargo().current_dir(&workspace.root).args([
        "build",
        "--release",
        "--package=transom",
        "--package=transom-bench",
    ]))?;
    Ok(workspace.target.join("release"))
}

/// Measures the release build; prints the table and writes it below the target folder: to `bench/bench.json`, or to
/// `bench/cluster.json` for an API server.
pub(crate) fn bench(args: &Bench) -> Result<()> {
    let workspace = workspace::read()?;
    guests::run(&guests::Args::shipped_and(&workspace, "calm"))?;
    let release = release(&workspace)?;
    let bench = workspace.target.join("bench");
    let mut measure = Command::new(release.join("transom-bench"));
    measure.arg("run");
    for (name, path) in [
        ("--transom", release.join("transom")),
        ("--guests", workspace.target.join("guests")),
        ("--work", bench.join("fleets")),
    ] {
        measure.arg(name).arg(path);
    }
    let mut only = args.only.join(",");
    if args.what.is_some() {
        measure
            .env(servers::VARIABLE, servers::prepare()?)
            .arg("--out")
            .arg(bench.join("cluster.json"));
        fleet(&mut measure, args.hosted, args.managed);
        if only.is_empty() {
            only.push_str("cluster");
        }
    } else {
        measure.arg("--out").arg(bench.join("bench.json"));
    }
    if !only.is_empty() {
        measure.args(["--only", &only]);
    }
    process::run(&mut measure)
}
