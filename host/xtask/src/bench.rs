//! `cargo xtask bench`: builds for release what is measured, and starts the program that measures it.

use crate::progress;
use crate::{guests, process, servers, workspace};
use anyhow::Result;
use std::process::Command;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure the agent on a real API server instead of the directory
    #[arg(value_enum)]
    what: Option<What>,
    /// HostedClusters on the API server
    #[arg(long, default_value_t = 1000)]
    hosted: usize,
    /// ManagedClusters on the API server
    #[arg(long, default_value_t = 10_000)]
    managed: usize,
    /// Run only these parts: calls, way, directory, render, watch, memory
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What can be measured apart.
#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// First run, restart, changes and taints on a real API server
    Cluster,
}

/// Prints the table and writes it below the target folder: to `bench/bench.json`, or to `bench/cluster.json` for an API
/// server.
pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = workspace::read()?;
    guests::run(&guests::Args::shipped_and(&workspace, "calm"))?;
    progress::say("    building for release; this takes some minutes, once");
    process::run(workspace::cargo().current_dir(&workspace.root).args([
        "build",
        "--release",
        "--package=transom",
        "--package=transom-bench",
    ]))?;
    let (release, bench) = (
        workspace.target.join("release"),
        workspace.target.join("bench"),
    );
    let mut measure = Command::new(release.join("transom-bench"));
    measure
        .arg("run")
        .arg("--transom")
        .arg(release.join("transom"));
    measure.arg("--guests").arg(workspace.target.join("guests"));
    measure.arg("--work").arg(bench.join("fleets"));
    if args.what.is_some() {
        let servers = servers::prepare()?;
        measure
            .env(servers::VARIABLE, servers)
            .args(["--only", "cluster"])
            .arg("--out")
            .arg(bench.join("cluster.json"));
        measure.args([
            "--hosted",
            &args.hosted.to_string(),
            "--managed",
            &args.managed.to_string(),
        ]);
        return process::run(&mut measure);
    }
    measure.arg("--out").arg(bench.join("bench.json"));
    if !args.only.is_empty() {
        measure.arg("--only").arg(args.only.join(","));
    }
    process::run(&mut measure)
}
