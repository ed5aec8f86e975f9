//! The command line of `cargo xtask`. Each task has a file of its own.

use crate::{bench, check, cluster, demo, deploy, fleet, fuzz, guests, monitoring, servers, soak};
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
    /// The main job on a folder of manifests, from nothing to a swapped component; or on a real API server
    Demo(demo::Args),
    /// A real API server with the CRDs and an example fleet, until Ctrl-C; prints its kubeconfig
    Cluster(cluster::Args),
    /// The real kube-apiserver, etcd, kubectl, helm and CRDs for the tests, built with Go where they are missing
    Servers,
    /// Write the files of host/deploy and host/docs that are made from the sources
    Deploy,
    /// Every check and every test: format, guests, servers, clippy, documentation, tests
    Test,
    /// What Transom costs, as ratios to floors of the same run; takes minutes and wants a quiet machine
    Bench(bench::Args),
    /// The end-to-end proofs in numbers that take long: kills and swaps
    Soak(soak::Args),
    /// Mutated cases and policies and damaged own folders against the binary: panics, hangs, shown credentials
    Fuzz(fuzz::Args),
    /// Write rules, dashboards and documentation from the list of metrics
    Monitoring,
    /// Write a generated fleet of HostedClusters and ManagedClusters as manifests
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
            Task::Test => check::run(),
            Task::Bench(args) => bench::run(&args),
            Task::Soak(args) => soak::run(&args),
            Task::Fuzz(args) => fuzz::run(&args),
            Task::Monitoring => monitoring::run(),
            Task::Fleet(args) => fleet::run(&args),
        }
    }
}

/// Reads the command line; ends the process with its help when it is wrong.
pub(crate) fn parse() -> Args {
    Args::parse()
}
