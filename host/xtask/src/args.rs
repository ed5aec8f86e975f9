//! The command line of `cargo xtask`. Each task has a file of its own.

use crate::{bench, check, cluster, demo, deploy, fleet, fuzz, guests, servers, soak};
use anyhow::Result;
use clap::{Parser, Subcommand};

/// Tasks of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build every guest and every fixture as a component in target/guests
    Guests(guests::Args),
    /// Demo of the agent on a folder of manifests, from the first run to a component swap; or on a real API server
    Demo(demo::Args),
    /// Run a real API server with the CRDs and an example fleet until Ctrl-C; prints its kubeconfig
    Cluster(cluster::Args),
    /// Prepare kube-apiserver, etcd, kubectl, helm and CRDs for the tests; missing ones are built with Go
    Servers,
    /// Write the generated files of host/deploy and host/docs
    Deploy,
    /// Run the short loop of a developer: format, then clippy and tests of api, core and guests
    Unit,
    /// Run every check and every test: format, guests, servers, clippy, documentation, tests
    Test,
    /// Measure what Transom costs, as ratios to baselines of the same run; takes minutes, needs an idle machine
    Bench(bench::Args),
    /// Run the long end-to-end tests: kills, swaps, faults and races
    Soak(soak::Args),
    /// Fuzz the binary with mutated cases and policies and damaged own folders: panics, hangs, leaked credentials
    Fuzz(fuzz::Args),
    /// Generate a fleet of HostedClusters and ManagedClusters as manifests
    Fleet(fleet::Args),
}

impl Args {
    /// Runs the task that was asked for.
    pub(crate) fn run(self) -> Result<()> {
        match self.task {
            Task::Guests(args) => guests::run(&args),
            Task::Demo(args) => demo::run(&args),
            Task::Cluster(args) => cluster::run(&args),
            Task::Servers => servers::run(),
            Task::Deploy => deploy::run(),
            Task::Unit => check::unit(),
            Task::Test => check::run(),
            Task::Bench(args) => bench::run(&args),
            Task::Soak(args) => soak::run(&args),
            Task::Fuzz(args) => fuzz::run(&args),
            Task::Fleet(args) => fleet::run(&args),
        }
    }
}

/// Reads the command line; ends the process with its help when it is wrong.
pub(crate) fn parse() -> Args {
    Args::parse()
}
