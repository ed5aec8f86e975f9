//! `cargo xtask soak` and `cargo xtask fuzz`: the end-to-end tests that take long. `cargo xtask test` does not include
//! them.

use crate::start::release;
use crate::{check, guests, process, progress, workspace};
use anyhow::{Context as _, Result, ensure};
use std::ffi::OsString;
use std::time::Instant;

/// Tests of the soak: the name, the file that contains it, and what it does.
const SOAK: [(&str, &str, &str); 7] = [
    (
        "crash::soak",
        "e2e",
        "200 kills over 500 clusters, compared with an undisturbed run",
    ),
    (
        "swap::soak",
        "e2e",
        "200 swaps of two policies over 60 and 12,000 clusters that change constantly and are resynced every four seconds; release build",
    ),
    (
        "faults::soak",
        "cluster",
        "100 kills over 300 clusters on a real API server",
    ),
    (
        "hub_faults::soak",
        "cluster",
        "100 kills over 40 clusters that are accepted, denied and removed under all policies, on a real API server",
    ),
    (
        "joining::rotation",
        "cluster",
        "a client certificate of 170 s that the real registration agent renews",
    ),
    (
        "succession::soak",
        "cluster",
        "100 leaders that end during a rollout, on a real API server",
    ),
    (
        "races::soak",
        "cluster",
        "1,000 writes that are undone before their responses arrive, on a real API server",
    ),
];

/// Which tests of the soak to run.
#[derive(clap::Args)]
pub(crate) struct Soak {
    /// Run only the test whose name begins with this: crash, swap, faults, hub_faults, joining, succession or races
    only: Option<String>,
}

/// Runs kills, swaps, faults, changes of leader and races in large numbers, one test after the other, and prints their figures.
pub(crate) fn soak(args: &Soak) -> Result<()> {
    let only = args.only.as_deref().unwrap_or_default();
    let wanted = || SOAK.iter().filter(|(name, ..)| name.starts_with(only));
    ensure!(
        wanted().next().is_some(),
        "no such test; the tests are crash, swap, faults, hub_faults, joining, succession and races"
    );
    guests::run(&guests::Args::default())?;
    for (name, file, what) in wanted() {
        progress::step(&format!("{name}: {what}"));
        // How much it asks of the agent is said for a release build.
        let binary = match *name {
            "swap::soak" => Some(release(&workspace::read()?)?.join("transom")),
            _ => None,
        };
        let binary = binary.map(|path| ("TRANSOM_BINARY", path.into_os_string()));
        let start = Instant::now();
        run(file, name, binary.as_slice()).with_context(|| format!("the test `{name}` failed"))?;
        progress::say(&format!("    passed in {} s", start.elapsed().as_secs()));
    }
    Ok(())
}

/// How long to fuzz, and from which seed.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// Minutes to run
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Random seed: the same seed runs the same inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the binary on mutated cases, mutated policies and damaged own folders until the time is over; fails with all
/// that was found. `cargo xtask test` has a short run with a fixed seed.
pub(crate) fn fuzz(args: &Fuzz) -> Result<()> {
    guests::run(&guests::Args::default())?;
    let variables = [
        ("TRANSOM_FUZZ_SEED", args.seed.to_string().into()),
        ("TRANSOM_FUZZ_MINUTES", args.minutes.to_string().into()),
    ];
    run("e2e", "fuzz::long", &variables).context("the fuzz run failed; see the findings above")
}

/// Runs one ignored test. The tests `cases` of the agent's own package make cargo build the binary; none of them has
/// such a name.
fn run(file: &str, name: &str, variables: &[(&str, OsString)]) -> Result<()> {
    let mut cargo = check::test(&["--test", file, "--test", "cases", "--", name, "--exact"])?;
    cargo.args(["--ignored", "--nocapture"]);
    cargo.envs(variables.iter().cloned());
    process::run(&mut cargo)
}
