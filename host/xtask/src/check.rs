//! `cargo xtask test`: every check and every test, in the order in which failures are cheapest. `cargo xtask unit`: the
//! short loop of a developer. Both stop at the first failure.

use crate::{guests, process, programs, progress, servers, workspace};
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::process::Command;
use std::thread;
use std::time::Instant;

/// One step: its name, and its function.
struct Step {
    what: &'static str,
    run: fn() -> Result<()>,
}

/// The first step of both.
const FORMAT: Step = Step {
    what: "format",
    run: || cargo(&["fmt", "--all", "--check"]),
};

/// The steps of `cargo xtask test`, cheapest first. Guests come before the first build, so that nothing is compiled
/// twice.
const STEPS: [Step; 6] = [
    FORMAT,
    Step {
        what: "guests",
        run: || guests::run(&guests::Args::default()),
    },
    Step {
        what: "servers",
        run: || servers::prepare().map(drop),
    },
    Step {
        what: "clippy, warnings denied",
        run: || {
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])
        },
    },
    Step {
        what: "documentation, warnings denied",
        run: documentation,
    },
    Step {
        what: "tests",
        run: programs::run,
    },
];

/// The steps of `cargo xtask unit`: what decides, without the binary, the components and the servers.
const UNIT: [Step; 3] = [
    FORMAT,
    Step {
        what: "clippy of api, core and guests, warnings denied",
        run: || {
            cargo(
                &[
                    &["clippy"],
                    &DECIDING[..],
                    &["--all-targets", "--", "-D", "warnings"],
                ]
                .concat(),
            )
        },
    },
    Step {
        what: "tests of api, core and guests",
        run: || cargo(&[&["test"], &DECIDING[..]].concat()),
    },
];

/// The packages that decide.
const DECIDING: [&str; 21] = [
    "--package=transom-addon-health",
    "--package=transom-api",
    "--package=transom-auto-import",
    "--package=transom-availability",
    "--package=transom-cleanup",
    "--package=transom-client-certificates",
    "--package=transom-cluster-acceptance",
    "--package=transom-cluster-access",
    "--package=transom-cluster-sets",
    "--package=transom-core",
    "--package=transom-default-sets",
    "--package=transom-detach",
    "--package=transom-guest",
    "--package=transom-hub-copies",
    "--package=transom-kubeconfig",
    "--package=transom-managed-namespaces",
    "--package=transom-set-bindings",
    "--package=transom-set-members",
    "--package=transom-taint-times",
    "--package=transom-taints",
    "--package=transom-trigger",
];

/// Runs every check and every test.
pub(crate) fn run() -> Result<()> {
    take(&STEPS)
}

/// Runs the checks and tests of the packages that decide.
pub(crate) fn unit() -> Result<()> {
    take(&UNIT)
}

fn take(steps: &[Step]) -> Result<()> {
    let start = Instant::now();
    for (index, step) in steps.iter().enumerate() {
        progress::step(&format!("[{}/{}] {}", index + 1, steps.len(), step.what));
        (step.run)().with_context(|| format!("failed at step `{}`", step.what))?;
    }
    progress::say(&format!(
        "==> all {} steps passed in {} s",
        steps.len(),
        start.elapsed().as_secs()
    ));
    Ok(())
}

fn documentation() -> Result<()> {
    process::run(in_root(&["doc", "--workspace", "--no-deps"])?.env("RUSTDOCFLAGS", "-D warnings"))
}

/// `cargo test` with these arguments, for all packages, so that nothing is built with other features. The tests of the
/// agent's own package make cargo build the binary; the end-to-end tests use it.
pub(crate) fn test(words: &[&str]) -> Result<Command> {
    let mut tests = in_root(&["test", "--workspace"])?;
    tests.args(words).envs(environment()?);
    Ok(tests)
}

/// Tells tests where the binary and the servers are, and how many run at a time: most of them wait. The error with
/// which a test ends says what failed; fifty lines of backtrace after it would push it out of what CI shows.
pub(crate) fn environment() -> Result<[(&'static str, OsString); 4]> {
    let binary = workspace::read()?.target.join("debug/transom");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Ok([
        ("TRANSOM_BINARY", binary.into()),
        (servers::VARIABLE, servers::prepare()?.into()),
        ("RUST_TEST_THREADS", (2 * cores).max(4).to_string().into()),
        ("RUST_LIB_BACKTRACE", "0".into()),
    ])
}

fn cargo(words: &[&str]) -> Result<()> {
    process::run(&mut in_root(words)?)
}

fn in_root(words: &[&str]) -> Result<Command> {
    let mut cargo = workspace::cargo();
    cargo.args(words).current_dir(workspace::read()?.root);
    Ok(cargo)
}
