//! The binary as a running process. Never left behind: it is killed when its handle goes.

use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use transom_support::wait;

/// How long the agent may take for anything; far more than it needs on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A running agent with its log.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    /// Starts a command, with standard output and standard error in one file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("failed to make `{}`", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("failed to start the agent")?;
        Ok(Self { child, log })
    }

    /// Everything that it has said.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Bytes of memory that it holds now.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.bytes("VmRSS:")
    }

    /// The most bytes of memory that it ever held.
    ///
    /// # Errors
    /// When it is not running.
    pub fn peak_bytes(&self) -> Result<u64> {
        self.bytes("VmHWM:")
    }

    fn bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("the agent is not running")?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes * 1024)
    }

    /// How it ended, where it has.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends it at once, wherever it is.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it a signal, as `kill` spells it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        ensure!(sent.success(), "the agent had ended before it got {signal}");
        Ok(())
    }

    /// Asks it to end, and says what it said.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub fn stop(mut self) -> Result<String> {
        self.signal("-TERM")?;
        let status = wait::until("the end of the agent", DEADLINE, || self.child.try_wait().ok().flatten())?;
        ensure!(status.success(), "the agent ended with {status}");
        self.log()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Where it has ended already both have nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
