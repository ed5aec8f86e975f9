//! `cargo xtask cluster`: a real API server with the CRDs and an example fleet, to play with. Only builds and starts
//! the program of `tests/cluster`.

use crate::{progress, servers, workspace};
use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// What to start with.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// HostedClusters, each with secret, Service and namespaces
    #[arg(long, default_value_t = 8)]
    hosted: usize,
    /// ManagedClusters; the first belong to the HostedClusters
    #[arg(long, default_value_t = 10)]
    managed: usize,
}

/// Replaces this process by the cluster's program, so that Ctrl-C goes to it.
pub(crate) fn run(args: &Args) -> Result<()> {
    progress::step("preparing the servers");
    let folder = servers::prepare()?;
    progress::step("building the program that starts them (some minutes the first time)");
    let mut program = Command::new(workspace::program("transom-test-cluster")?);
    program
        .current_dir(workspace::read()?.root)
        .env(servers::VARIABLE, folder);
    program.args([
        "--hosted",
        &args.hosted.to_string(),
        "--managed",
        &args.managed.to_string(),
    ]);
    Err(program.exec()).context("failed to start the cluster")
}
