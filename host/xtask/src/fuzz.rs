//! `cargo xtask fuzz`: mutated cases, mutated policies and damaged own folders against the binary, for as long as
//! wanted. The tests have a short run with a fixed seed.

use crate::{check, guests, process};
use anyhow::{Context as _, Result};

/// How long, and from which seed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Minutes to run
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Random seed: the same seed runs the same inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Tries until the time is over; fails with all that was found.
pub(crate) fn run(args: &Args) -> Result<()> {
    guests::run(&guests::Args::default())?;
    // The tests `cases` of the agent's own package make cargo build the binary; none of them has this name.
    let words = [
        "--test",
        "e2e",
        "--test",
        "cases",
        "--",
        "fuzz::long",
        "--exact",
        "--ignored",
        "--nocapture",
    ];
    let mut cargo = check::test(&words)?;
    cargo
        .env("TRANSOM_FUZZ_SEED", args.seed.to_string())
        .env("TRANSOM_FUZZ_MINUTES", args.minutes.to_string());
    process::run(&mut cargo).context("the fuzz run failed; see the findings above")
}
