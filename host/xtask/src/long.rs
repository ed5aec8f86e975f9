//! `cargo xtask soak` and `cargo xtask fuzz`: the end-to-end tests that take long. `cargo xtask test` does not include
//! them.

use crate::start::release;
use crate::{check, guests, process, progress, workspace};
use anyhow::{Context as _, Result, ensure};
use std::ffi::OsString;
use std::time::Instant;

/// Tests of the soak: the name, the file that contains it, and what it does.
const SOAK: [(&str, &str, &str); 9] = [
    (
        "crash::soak",
        "e2e",
        "200 kills over 500 clusters, compared with an undisturbed run",
    ),
    (
        "swap::soak",
        "e2e",
        "200 swaps of two policies over 60 and 12,000 clusters that change constantly and are resynced every two seconds; release build",
    ),
    (
        "server_swap::soak",
        "cluster",
        "the same on a real API server, with a watch of every version and the audit log; release build",
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
        "hosting_faults::soak",
        "cluster",
        "100 kills over 40 HostedClusters that are imported, rotated, detached and removed, on a real API server",
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

/// Those whose demands on the agent are meant for a release build.
const RELEASED: [&str; 2] = ["swap::soak", "server_swap::soak"];

/// Which tests of the soak to run, and how large.
#[derive(clap::Args)]
pub(crate) struct Soak {
    /// Run only this test: crash, swap, server_swap, faults, hub_faults, hosting_faults, joining, succession or races
    only: Option<String>,
    /// Kills, swaps or leaders instead of the full number; not for joining and races
    #[arg(long)]
    rounds: Option<usize>,
    /// Clusters instead of the full number; not for joining and races
    #[arg(long)]
    clusters: Option<usize>,
}

/// Runs kills, swaps, faults, changes of leader and races in large numbers, one test after the other, and prints their
/// figures.
pub(crate) fn soak(args: &Soak) -> Result<()> {
    let is_wanted = |name: &str| {
        let file = name.split("::").next();
        args.only.is_none() || args.only.as_deref() == file
    };
    let wanted = || SOAK.iter().filter(|(name, ..)| is_wanted(name));
    ensure!(
        wanted().next().is_some(),
        "no such test; the tests are crash, swap, server_swap, faults, hub_faults, hosting_faults, joining, succession and races"
    );
    guests::run(&guests::Args::default())?;
    let sizes = [
        ("TRANSOM_SOAK_ROUNDS", args.rounds),
        ("TRANSOM_SOAK_CLUSTERS", args.clusters),
    ];
    for (name, file, what) in wanted() {
        progress::step(&format!("{name}: {what}"));
        let sized = sizes
            .iter()
            .filter_map(|(name, size)| Some((*name, size.as_ref()?)));
        let mut variables: Vec<(&str, OsString)> = sized
            .map(|(name, size)| (name, size.to_string().into()))
            .collect();
        if RELEASED.contains(name) {
            let binary = release(&workspace::read()?)?.join("transom");
            variables.push(("TRANSOM_BINARY", binary.into_os_string()));
        }
        let start = Instant::now();
        run(file, name, &variables).with_context(|| format!("the test `{name}` failed"))?;
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
