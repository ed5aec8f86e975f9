//! `cargo xtask soak`: the end-to-end proofs in numbers that take long, with their figures. The tests do not include
//! them.

use crate::{check, guests, process, progress};
use anyhow::{Context as _, Result};
use std::time::Instant;

/// One proof.
struct Proof {
    /// The name of its test.
    name: &'static str,
    /// The file of tests that contains it.
    tests: &'static str,
    what: &'static str,
}

/// All proofs.
const PROOFS: [Proof; 4] = [
    Proof {
        name: "crash::soak",
        tests: "e2e",
        what: "200 kills over 500 clusters, compared with an undisturbed run",
    },
    Proof {
        name: "swap::soak",
        tests: "e2e",
        what: "100 swaps of a component over 20 clusters that change constantly",
    },
    Proof {
        name: "faults::soak",
        tests: "cluster",
        what: "100 kills over 300 clusters on a real API server",
    },
    Proof {
        name: "races::soak",
        tests: "cluster",
        what: "1,000 writes that are undone before their responses arrive, on a real API server",
    },
];

/// What to prove.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the test whose name begins with this: crash, swap, faults or races
    only: Option<String>,
}

/// Runs the proofs, one after the other.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| {
        args.only
            .as_ref()
            .is_none_or(|only| name.starts_with(only.as_str()))
    };
    let proofs: Vec<_> = PROOFS.iter().filter(|proof| wanted(proof.name)).collect();
    anyhow::ensure!(
        !proofs.is_empty(),
        "no such test; the tests are crash, swap, faults and races"
    );
    guests::run(&guests::Args::default())?;
    for Proof { name, tests, what } in proofs {
        progress::step(&format!("{name}: {what}"));
        let start = Instant::now();
        // The tests `cases` of the agent's own package make cargo build the binary; none of them has this name.
        let words = [
            "--test",
            tests,
            "--test",
            "cases",
            "--",
            name,
            "--exact",
            "--ignored",
            "--nocapture",
        ];
        let mut cargo = check::test(&words)?;
        process::run(&mut cargo).with_context(|| format!("the test `{name}` failed"))?;
        progress::say(&format!("    passed in {} s", start.elapsed().as_secs()));
    }
    Ok(())
}
