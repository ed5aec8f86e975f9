//! `cargo xtask soak`: the end-to-end proofs in numbers that take long, with their figures. Never part of the tests.

use crate::{guests, process, progress, workspace};
use anyhow::{Context as _, Result};
use std::time::Instant;

/// The proofs, as their tests are called, and what each does.
const PROOFS: [(&str, &str); 2] = [
    ("crash::soak", "200 kills over 500 clusters, compared with an undisturbed run"),
    ("swap::soak", "100 swaps of a component over 20 clusters that change all the time"),
];

/// What to prove.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the proof whose name begins so: crash or swap
    only: Option<String>,
}

/// Runs the proofs, one after the other.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.starts_with(only.as_str()));
    let proofs: Vec<_> = PROOFS.iter().filter(|(name, _)| wanted(name)).collect();
    anyhow::ensure!(!proofs.is_empty(), "there is no such proof; there are crash and swap");
    guests::run(&guests::Args::default())?;
    let root = workspace::read()?.root;
    for (name, what) in proofs {
        progress::step(&format!("{name}: {what}"));
        let start = Instant::now();
        let mut cargo = workspace::cargo();
        cargo.current_dir(&root).args(["test", "--package", "transom-e2e", "--test", "e2e", "--", name]);
        cargo.args(["--exact", "--ignored", "--nocapture"]);
        process::run(&mut cargo).with_context(|| format!("failed at the proof `{name}`"))?;
        progress::say(&format!("    passed in {} s", start.elapsed().as_secs()));
    }
    Ok(())
}
