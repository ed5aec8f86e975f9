//! `cargo xtask fleet`: writes a generated fleet of manifests. Never removes what is already in the folder.

use crate::progress;
use anyhow::Result;
use std::path::PathBuf;
use transom_support::fleet::Fleet;

/// What to generate, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to write to; made where it is missing
    #[arg(long)]
    out: PathBuf,
    /// HostedClusters, each with secret, Service and namespaces
    #[arg(long, default_value_t = 20)]
    clusters: usize,
    /// ManagedClusters; the first belong to the HostedClusters
    #[arg(long, default_value_t = 20)]
    managed: usize,
    /// Chooses identifiers and keys: one seed, one fleet
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Writes the fleet.
pub(crate) fn run(args: &Args) -> Result<()> {
    let fleet = Fleet { clusters: args.clusters, managed: args.managed, seed: args.seed };
    let written = fleet.write(&args.out)?;
    let (files, objects, mebibytes) = (written.files, written.objects, written.bytes as f64 / 1_048_576.0);
    progress::say(&format!("{}: {objects} objects in {files} files, {mebibytes:.1} MiB", args.out.display()));
    Ok(())
}
