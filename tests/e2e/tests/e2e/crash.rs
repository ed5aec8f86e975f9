//! The agent can be killed at any moment: the next start reaches the same state as an undisturbed run.

use anyhow::{Result, ensure};
use transom_e2e::crash::Crash;
use transom_e2e::size::Size;

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
    let size = Size::given(200, 500)?;
    let crash = Crash {
        clusters: size.clusters,
        kills: size.rounds,
        seed: 2,
    };
    println!("{crash:?}: {:?}", crash.run()?);
    Ok(())
}
