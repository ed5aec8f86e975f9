//! For any invalid input the binary reports the error in time, and shows no credential.

use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Duration;
use transom_e2e::fuzz::Fuzz;

/// Where the input of a failed attempt is kept.
fn kept() -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz")
}

#[test]
fn withstands_mutations_from_a_fixed_seed() -> Result<()> {
    let tried = Fuzz {
        seed: 1,
        attempts: 40,
        time: Duration::ZERO,
    }
    .run(&kept())?;
    ensure!(
        tried.attempts == [20, 10, 10] && tried.canaries > 50,
        "{tried:?}"
    );
    ensure!(tried.findings.is_empty(), "{}", tried.findings.join("\n"));
    Ok(())
}

#[test]
#[ignore = "takes as long as it is told: cargo xtask fuzz"]
fn long() -> Result<()> {
    let number = |name: &str, otherwise| {
        std::env::var(name).map_or(Ok(otherwise), |text| text.parse::<u64>())
    };
    let (seed, minutes) = (
        number("TRANSOM_FUZZ_SEED", 1)?,
        number("TRANSOM_FUZZ_MINUTES", 10)?,
    );
    let tried = Fuzz {
        seed,
        attempts: 0,
        time: Duration::from_secs(minutes * 60),
    }
    .run(&kept())?;
    println!(
        "seed {seed}: {:?} attempts on cases, policies, own folders; {} canaries",
        tried.attempts, tried.canaries
    );
    ensure!(tried.findings.is_empty(), "{}", tried.findings.join("\n"));
    Ok(())
}
