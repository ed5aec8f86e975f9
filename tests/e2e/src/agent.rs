//! The binary as a running process. It is killed when its handle is dropped.

use crate::bound::Bound;
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use transom_support::wait;

/// The deadline for anything that the agent does. It decides only about what never comes: a busy machine is slower than
/// an idle one by more than ten times.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// A running agent with its log.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    log: PathBuf,
    /// Dropped after the process, which runs inside it.
    bound: Option<Bound>,
}

impl Agent {
    /// Starts a command, with standard output and standard error in one file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let file =
            File::create(&log).with_context(|| format!("failed to make `{}`", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("failed to start the agent")?;
        Ok(Self {
            child,
            log,
            bound: None,
        })
    }

    /// The same within a memory limit.
    ///
    /// # Errors
    /// As for [`Agent::start`].
    pub fn bounded(command: &Command, log: PathBuf, bound: Bound) -> Result<Self> {
        let mut agent = Self::start(&mut bound.on(command), log)?;
        agent.bound = Some(bound);
        Ok(agent)
    }

    /// Its entire output.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Bytes of memory that it uses now.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.bytes("VmRSS:")
    }

    /// Its peak memory in bytes.
    ///
    /// # Errors
    /// When it is not running.
    pub fn peak_bytes(&self) -> Result<u64> {
        self.bytes("VmHWM:")
    }

    /// The peak memory in bytes of it and its children together, if the kernel counts that.
    ///
    /// # Errors
    /// When it has no limit, has exited, or a process was killed for exceeding the limit.
    pub fn held(&mut self) -> Result<Option<u64>> {
        let ended = self.ended()?;
        let peak = self.bound.as_ref().context("it has no bound")?.held()?;
        ensure!(
            ended.is_none(),
            "the agent ended within its bound: {ended:?}\n{}",
            self.log()?
        );
        Ok(peak)
    }

    fn bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .context("the agent is not running")?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes * 1024)
    }

    /// The ids of its running child processes.
    ///
    /// # Errors
    /// When the system does not provide this.
    pub fn children(&self) -> Result<Vec<u32>> {
        let own = self.child.id().to_string();
        let mut children = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(number) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if process(number).is_some_and(|(_, parent)| parent == own) {
                children.push(number);
            }
        }
        Ok(children)
    }

    /// Its exit status; none while it is running.
    ///
    /// # Errors
    /// When the system does not provide this.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills it at once.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it a signal, named as for `kill`.
    ///
    /// # Errors
    /// When it has already exited.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()?;
        ensure!(sent.success(), "the agent had ended before it got {signal}");
        Ok(())
    }

    /// Asks it to exit, and returns its output.
    ///
    /// # Errors
    /// When it does not exit, or exits with an error.
    pub fn stop(mut self) -> Result<String> {
        self.signal("-TERM")?;
        let status = wait::until("the end of the agent", DEADLINE, || {
            self.child.try_wait().ok().flatten()
        })?;
        ensure!(status.success(), "the agent ended with {status}");
        self.log()
    }
}

/// The state of a process, and the id of its parent; none if it does not exist.
fn process(number: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // A name in parentheses precedes them and may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// Whether a process has ended, even if it was not reaped yet.
pub fn has_ended(number: u32) -> bool {
    process(number).is_none_or(|(state, _)| state == "Z")
}

impl Drop for Agent {
    fn drop(&mut self) {
        // If it has already exited, both do nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
