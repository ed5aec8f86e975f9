//! The agent that runs while the demo edits, with its log lines indented. It ends with the demo.

use super::stage::Stage;
use crate::{process, progress};
use anyhow::{Context as _, Result};
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use transom_support::wait;

/// How long the agent may take to react; far more than it needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The running agent.
pub(super) struct Agent(Child);

/// Starts the agent on the fleet, and waits until it has looked at every primary.
pub(super) fn start(stage: &Stage) -> Result<Agent> {
    let (fleet, policies) = (stage.shown(&stage.fleet), stage.shown(&stage.policies));
    let words = ["run", "--dir", &fleet, "--policies", &policies];
    progress::say(&format!(
        "    $ {} {} &",
        stage.shown(&stage.program),
        words.join(" ")
    ));
    // The agent writes the status again; a complete one shows that the first look is over.
    let status = stage.status();
    fs::remove_dir_all(&status)
        .with_context(|| format!("failed to remove `{}`", status.display()))?;
    let mut command = stage.command();
    let mut child = command
        .args(words)
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start the agent")?;
    let settled = Arc::new(AtomicBool::new(false));
    if let Some(log) = child.stderr.take() {
        let settled = Arc::clone(&settled);
        thread::spawn(move || relay(log, &settled));
    }
    let agent = Agent(child);
    wait("a status for every primary", || {
        (stage.primaries_with_status() == stage.primaries()).then_some(())
    })?;
    settled.store(true, Ordering::Relaxed);
    Ok(agent)
}

/// Shows the whole log once everything is settled; before that, only lines of another level than `INFO`.
fn relay(log: impl Read, settled: &AtomicBool) {
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        if settled.load(Ordering::Relaxed) || !line.contains(" INFO ") {
            progress::say(&format!("    | {line}"));
        }
    }
}

impl Agent {
    /// Asks the agent to end, and waits until it has.
    pub(super) fn stop(mut self) -> Result<()> {
        process::run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        wait::until("the end of the agent", DEADLINE, || {
            self.0.try_wait().ok().flatten()
        })?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // When it has ended already, both do nothing.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits for a result of the agent.
pub(super) fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> Result<T> {
    wait::until(what, DEADLINE, look).context("the agent did not react")
}
