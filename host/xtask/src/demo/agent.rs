//! The agent that runs while the demo edits. Never outlives the demo.

use super::stage::Stage;
use crate::{process, progress};
use anyhow::{Context as _, Result};
use std::process::{Child, Command};
use std::time::Duration;
use transom_support::wait;

/// How long the agent may take to react; far more than it needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The running agent.
pub(super) struct Agent(Child);

/// Starts it on the fleet.
pub(super) fn start(stage: &Stage) -> Result<Agent> {
    let (fleet, policies) = (stage.shown(&stage.fleet), stage.shown(&stage.policies));
    let words = ["run", "--dir", &fleet, "--policies", &policies];
    progress::say(&format!("    $ {} {} &", stage.shown(&stage.program), words.join(" ")));
    let child = stage.command().args(words).spawn().context("failed to start the agent")?;
    Ok(Agent(child))
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
