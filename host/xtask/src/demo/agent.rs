//! The agent that runs while the demo edits, with its log lines indented. Never outlives the demo.

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

/// Starts it on the fleet, and waits until it has looked at every primary.
pub(super) fn start(stage: &Stage) -> Result<Agent> {
    let (fleet, policies) = (stage.shown(&stage.fleet), stage.shown(&stage.policies));
    let words = ["run", "--dir", &fleet, "--policies", &policies];
    progress::say(&format!("    $ {} {} &", stage.shown(&stage.program), words.join(" ")));
    // Status is derived: the agent writes it again, and its being there says that the first look is over.
    let status = stage.status();
    fs::remove_dir_all(&status).with_context(|| format!("failed to remove `{}`", status.display()))?;
    let mut command = stage.command();
    let mut child = command.args(words).stderr(Stdio::piped()).spawn().context("failed to start the agent")?;
    let settled = Arc::new(AtomicBool::new(false));
    if let Some(log) = child.stderr.take() {
        let settled = Arc::clone(&settled);
        thread::spawn(move || relay(log, &settled));
    }
    let agent = Agent(child);
    wait("a status for every primary", || (stage.primaries_with_status() == stage.primaries()).then_some(()))?;
    settled.store(true, Ordering::Relaxed);
    Ok(agent)
}

/// Shows the log from the moment that everything is settled; before, only what is no information.
fn relay(log: impl Read, settled: &AtomicBool) {
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        if settled.load(Ordering::Relaxed) || !line.contains(" INFO ") {
            progress::say(&format!("    | {line}"));
        }
    }
}

impl Agent {
    /// Asks it to end, and waits until it has.
    pub(super) fn stop(mut self) -> Result<()> {
        process::run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        wait::until("the end of the agent", DEADLINE, || self.0.try_wait().ok().flatten())?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Where it has ended already both have nothing to do.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits for what the agent is to bring about.
pub(super) fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> Result<T> {
    wait::until(what, DEADLINE, look).context("failed to see the agent react")
}
