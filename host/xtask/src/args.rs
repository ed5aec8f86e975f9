//! The command line of `cargo xtask`, and which function does each task.

use crate::{check, demo, fleet, guests, long, servers, start};
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
    Cluster(start::Cluster),
    /// Prepare kube-apiserver, kube-controller-manager, etcd, kubectl, helm, OCI registries and CRDs for the tests;
    /// missing ones are built with Go
    Servers,
    /// Write the generated files of host/deploy and host/docs
    Deploy,
    /// Run the short loop of a developer: format, then clippy and tests of api, core and guests
    Unit,
    /// Run every check and every test: format, guests, servers, clippy, documentation, tests
    Test,
    /// Measure what Transom costs, as ratios to baselines of the same run; takes minutes, needs an idle machine
    Bench(start::Bench),
    /// Run the long end-to-end tests: kills, swaps, faults and races
    Soak(long::Soak),
    /// Fuzz the binary with mutated cases and policies and damaged own folders: panics, hangs, leaked credentials
    Fuzz(long::Fuzz),
    /// Generate a fleet of HostedClusters and ManagedClusters as manifests
    Fleet(fleet::Args),
}

impl Args {
    /// Runs the task that was asked for.
    pub(crate) fn run(self) -> Result<()> {
        match self.task {
            Task::Guests(args) => guests::run(&args),
            Task::Demo(args) => demo::run(&args),
            Task::Cluster(args) => start::cluster(&args),
            Task::Servers => servers::run(),
            Task::Deploy => start::deploy(),
            Task::Unit => check::unit(),
            Task::Test => check::run(),
            Task::Bench(args) => start::bench(&args),
            Task::Soak(args) => long::soak(&args),
            Task::Fuzz(args) => long::fuzz(&args),
            Task::Fleet(args) => fleet::run(&args),
        }
    }
}
