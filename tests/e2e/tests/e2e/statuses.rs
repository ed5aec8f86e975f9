//! Statuses that cannot be written for a while: the agent writes them as soon as possible, without any change of an
//! object, and never over a newer one.

use crate::ended::{code, stderr};
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use transom_e2e::agent::DEADLINE;
use transom_e2e::stage::Stage;
use transom_support::wait;

/// Puts a non-empty folder in the place of a file: writing fails, as on a full disk.
fn in_the_way(file: &Path) -> Result<()> {
    if file.exists() {
        fs::remove_file(file)?;
    }
    fs::create_dir_all(file.join("in/the"))?;
    Ok(fs::write(file.join("in/the/way"), "")?)
}

#[test]
fn writes_a_delayed_status_as_soon_as_possible() -> Result<()> {
    let stage = Stage::new(3, 3)?;
    ensure!(code(&stage.once()?) == Some(0));
    let blocked = [
        stage.hosted_status(0),
        stage.hosted_status(2),
        stage.policy_status("built-in-taints"),
    ];
    blocked.iter().try_for_each(|file| in_the_way(file))?;
    let output = stage.once()?;
    ensure!(
        code(&output) == Some(1),
        "a run that could not say what became of it is right: {}",
        stderr(&output)
    );
    for left in [
        "failed to write the status of 2 primaries: ",
        "failed to write the status of 1 policies",
    ] {
        ensure!(
            stderr(&output).contains(left),
            "`{left}` is missing: {}",
            stderr(&output)
        );
    }
    let agent = stage.watch()?;
    let told = |what: &str, many: usize| {
        let log = agent.log().unwrap_or_default();
        (log.lines().filter(|line| line.contains(what)).count() >= many).then_some(())
    };
    wait::until("a word on the primaries", DEADLINE, || {
        told("failed to write the status", 2)
    })?;
    wait::until("a word on the policy", DEADLINE, || {
        told("the status of built-in-taints", 1)
    })?;
    // A newer status replaces the one that could not be written.
    stage.edit(
        &stage.hosted(0),
        "status: \"True\"\n    type: Available",
        "status: \"False\"\n    type: Available",
    )?;
    wait::until("a word on the newer status", DEADLINE, || {
        told("failed to write the status", 3)
    })?;
    fs::remove_file(stage.hosted(2))?;
    stage.wait_for_end(&stage.secret(2))?;
    blocked.iter().try_for_each(fs::remove_dir_all)?;
    // No object changes from here on.
    stage.wait_for_text(&stage.hosted_status(0), "state: Held")?;
    stage.wait_for_text(&stage.policy_status("built-in-taints"), "counts:")?;
    let log = agent.stop()?;
    ensure!(
        !stage.hosted_status(2).exists(),
        "what is gone has a status: {log}"
    );
    ensure!(
        log.lines()
            .filter(|line| line.contains("failed to write the status"))
            .count()
            < 10,
        "each attempt is told"
    );
    Ok(())
}
