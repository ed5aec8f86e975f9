//! One server as a process that can be killed, frozen and restarted, and the process group of its cluster.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transom_support::wait;

/// The deadline for a frozen process to stop; far longer than needed.
const DEADLINE: Duration = Duration::from_secs(300);
/// Lines of a log that an error shows.
const TAIL: usize = 15;

/// A server, running or not; each start has the same ports and data.
pub struct Process {
    name: &'static str,
    program: PathBuf,
    flags: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
    log: PathBuf,
    group: i32,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// A server that is not started yet; its output is appended to `log`.
    pub(crate) fn new(
        name: &'static str,
        program: PathBuf,
        flags: Vec<String>,
        log: PathBuf,
        group: i32,
    ) -> Self {
        Self {
            name,
            program,
            flags,
            variables: Vec::new(),
            log,
            group,
            child: Mutex::new(None),
        }
    }

    /// The same with a variable in its environment.
    pub(crate) fn with_variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Starts it without waiting until it serves; an error if it is already running.
    pub fn start(&self) -> Result<()> {
        let mut child = self.child();
        ensure!(child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("failed to open `{}`", self.log.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.flags)
            .envs(self.variables.iter().copied())
            .process_group(self.group)
            .stdin(Stdio::null());
        command
            .stdout(log.try_clone().context("failed to share a log")?)
            .stderr(log);
        let started = command
            .spawn()
            .with_context(|| format!("failed to start `{}`", self.program.display()))?;
        *child = Some(started);
        Ok(())
    }

    /// Kills it (SIGKILL) and waits for its end; does nothing if it is not running.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.child().take() else {
            return Ok(());
        };
        child
            .kill()
            .with_context(|| format!("failed to kill {}", self.name))?;
        child
            .wait()
            .with_context(|| format!("failed to wait for the end of {}", self.name))?;
        Ok(())
    }

    /// Freezes it (SIGSTOP), and waits until all its threads have stopped; its connections stay open and silent.
    pub fn freeze(&self) -> Result<()> {
        self.signal("-STOP")?;
        let id = self
            .id()
            .with_context(|| format!("{} does not run", self.name))?;
        wait::until(
            &format!("the standstill of {}", self.name),
            DEADLINE,
            || is_stopped(id).then_some(()),
        )?;
        Ok(())
    }

    /// Lets it continue (SIGCONT).
    pub fn thaw(&self) -> Result<()> {
        self.signal("-CONT")
    }

    /// Its process id; none if it is not running.
    pub fn id(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Its entire output since it was first started.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log)
            .with_context(|| format!("failed to read `{}`", self.log.display()))
    }

    /// An error with the end of its log if it has exited by itself.
    pub(crate) fn check(&self) -> Result<()> {
        let ended = self
            .child()
            .as_mut()
            .and_then(|child| child.try_wait().ok().flatten());
        let Some(status) = ended else { return Ok(()) };
        let log = self.log()?;
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        bail!(
            "{} ended with {status}; the end of its log:\n{tail}",
            self.name
        )
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let id = self
            .id()
            .with_context(|| format!("{} does not run", self.name))?;
        let status = Command::new("kill")
            .args([signal, &id.to_string()])
            .status();
        let status = status.with_context(|| format!("failed to start `kill {signal} {id}`"))?;
        ensure!(status.success(), "`kill {signal} {id}` ended with {status}");
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether every thread of a process is stopped: the signal reaches one thread first, and the others a moment later.
fn is_stopped(id: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group has already been killed; this only reaps.
        drop(self.kill());
    }
}

/// Waits for the end of its input, which comes when the test process ends.
const SCRIPT: &str = r#"trap "" INT TERM HUP; cat >/dev/null; rm -rf -- "$1"; kill -KILL 0"#;

/// The process group of a cluster. Its leader is a shell that outlives the test process for a moment: it kills the
/// servers and removes their folder however the test process ends, even by a kill. When the value is dropped, the group
/// ends and the folder is removed.
pub(crate) struct ProcessGroup(Child);

impl ProcessGroup {
    /// Starts the leader; `folder` is removed with the group.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", SCRIPT, "group"])
            .arg(folder)
            .process_group(0);
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell
            .spawn()
            .context("failed to start `sh`, which ends the servers when we end")
            .map(Self)
    }

    /// The process group for the servers.
    pub(crate) fn group(&self) -> Result<i32> {
        i32::try_from(self.0.id()).context("failed to read the id of a process group")
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // If it has already exited, there is nothing to wait for.
        drop(self.0.wait());
    }
}
