//! The agent can be killed at any moment: the next start reaches the same state as an undisturbed run.

use anyhow::{Result, ensure};
use transom_e2e::crash::Crash;

#[test]
fn kills_at_random_moments_leave_no_trace() -> Result<()> {
    let crash = Crash {
        clusters: 60,
        kills: 20,
        seed: 1,
    };
    let survived = crash.run()?;
    ensure!(survived.at_work > 5 && survived.read > 100, "{survived:?}");
    Ok(())
}

#[test]
#[ignore = "takes many minutes: cargo xtask soak"]
fn soak() -> Result<()> {
    let crash = Crash {
        clusters: 500,
        kills: 200,
        seed: 2,
    };
    println!("{crash:?}: {:?}", crash.run()?);
    Ok(())
}
