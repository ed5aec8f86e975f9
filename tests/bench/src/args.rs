//! The command line of `transom-bench`: what can be measured. The other files say how.

use crate::process::Programs;
use crate::table::Table;
use crate::{calls, cluster, directory, floor, load, plan, scene, start, swap, watch, way};
use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Measures Transom against baselines.
#[derive(Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure, print the table, write it as JSON
    Run(Run),
    /// The baselines that are separate programs
    Floor(floor::Args),
}

#[derive(clap::Args)]
struct Run {
    /// The program `transom`, built for release
    #[arg(long)]
    transom: PathBuf,
    /// Folder for generated fleets; created if missing
    #[arg(long)]
    work: PathBuf,
    /// Folder of the built components
    #[arg(long)]
    guests: PathBuf,
    /// File for the table as JSON
    #[arg(long)]
    out: PathBuf,
    /// Only these parts; by default all except the cluster
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// HostedClusters on the API server
    #[arg(long, default_value_t = 1000)]
    hosted: usize,
    /// ManagedClusters on the API server
    #[arg(long, default_value_t = 10_000)]
    managed: usize,
}

/// A part of the table.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Calls,
    Load,
    Start,
    Swap,
    Way,
    Directory,
    Render,
    Plan,
    Watch,
    Memory,
    /// All parts on an API server, which follow.
    Cluster,
    Kubeconfigs,
    Taints,
    Sets,
    Acceptance,
    Leases,
    Registered,
}

impl Part {
    /// What of it is measured on an API server.
    fn on_server(self) -> &'static [cluster::Part] {
        match self {
            Self::Cluster => &cluster::Part::ALL,
            Self::Kubeconfigs => &[cluster::Part::Kubeconfigs],
            Self::Taints => &[cluster::Part::Taints],
            Self::Sets => &[cluster::Part::Sets],
            Self::Acceptance => &[cluster::Part::Acceptance],
            Self::Leases => &[cluster::Part::Leases],
            Self::Registered => &[cluster::Part::Registered],
            _ => &[],
        }
    }
}

impl Args {
    /// Does what was requested.
    pub(crate) fn run(self) -> Result<()> {
        match self.task {
            Task::Run(run) => run.measure(),
            Task::Floor(floor) => floor::run(&floor),
        }
    }
}

impl Run {
    fn measure(&self) -> Result<()> {
        let mut table = Table::default();
        let programs = Programs::new(&self.transom)?;
        let wanted = |part| self.only.is_empty() || self.only.contains(&part);
        std::fs::create_dir_all(&self.work)
            .with_context(|| format!("failed to create the folder `{}`", self.work.display()))?;
        if [Part::Calls, Part::Way, Part::Plan, Part::Swap]
            .into_iter()
            .any(wanted)
        {
            let scene = scene::Scene::load(&self.guests)?;
            if wanted(Part::Calls) {
                calls::measure(&scene, &mut table)?;
            }
            if wanted(Part::Way) {
                way::measure(&scene, &mut table)?;
            }
            if wanted(Part::Plan) {
                plan::measure(&programs, &scene, &self.work, &mut table)?;
            }
            if wanted(Part::Swap) {
                swap::measure(&programs, &scene, &self.work, &mut table)?;
            }
        }
        if wanted(Part::Load) {
            load::measure(&self.guests, &self.work, &mut table)?;
        }
        if wanted(Part::Start) {
            start::measure(&programs, &self.work, &mut table)?;
        }
        if wanted(Part::Directory) {
            directory::once(&programs, &self.work, &mut table)?;
        }
        if wanted(Part::Render) {
            directory::render(&programs, &self.work, &mut table)?;
        }
        if wanted(Part::Watch) {
            watch::measure(&programs, &self.work, &mut table)?;
        }
        if wanted(Part::Memory) {
            directory::memory(&programs, &self.work, &mut table)?;
            directory::idle_policies(&programs, &self.work, &mut table)?;
        }
        let sizes = cluster::Sizes {
            hosted: self.hosted,
            managed: self.managed,
        };
        for part in self.only.iter().flat_map(|part| part.on_server()) {
            cluster::measure(&programs, &self.work, (*part, sizes), &mut table)?;
        }
        table.finish(&self.out)
    }
}

/// Parses the command line; exits with its help if it is invalid.
pub(crate) fn parse() -> Args {
    Args::parse()
}
