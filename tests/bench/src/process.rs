//! Whole processes: their wall time, CPU time and peak memory, as the kernel counts them. Ignores their output.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use transom_e2e::agent::Agent;

/// Milliseconds of a tick, the unit in which the kernel reports CPU time.
const TICK_MILLIS: f64 = 10.0;
/// The current time for every run, so that each does the same.
pub(crate) const NOW: &str = "2026-11-21T08:00:00Z";

/// The programs to run.
pub(crate) struct Programs {
    transom: PathBuf,
    floor: PathBuf,
}

/// The cost of one process.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// From start to end.
    pub(crate) wall_millis: f64,
    /// On all cores, in steps of 10.
    pub(crate) cpu_millis: f64,
}

impl Programs {
    /// The program at a path, and this one.
    pub(crate) fn new(transom: &Path) -> Result<Self> {
        let floor = std::env::current_exe().context("failed to find this program")?;
        let transom = transom
            .canonicalize()
            .with_context(|| format!("failed to find `{}`", transom.display()))?;
        Ok(Self { transom, floor })
    }

    /// `transom` with these arguments.
    pub(crate) fn transom(&self, words: &[&str]) -> Command {
        command(&self.transom, words)
    }

    /// `transom-bench floor` with these arguments.
    pub(crate) fn floor(&self, words: &[&str]) -> Command {
        let mut command = command(&self.floor, &["floor"]);
        command.args(words);
        command
    }
}

fn command(program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Starts a program that runs until the value is dropped; ignores its output.
pub(crate) fn start(command: &mut Command) -> Result<Agent> {
    Agent::start(command, "/dev/null".into())
}

/// Runs it to its end; a `render` with changes exits with `3`.
pub(crate) fn run(command: &mut Command) -> Result<Cost> {
    let before = children_millis()?;
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("failed to start {command:?}"))?;
    let wall_millis = start.elapsed().as_secs_f64() * 1e3;
    if !matches!(status.code(), Some(0 | 3)) {
        bail!("{command:?} ended with {status}");
    }
    Ok(Cost {
        wall_millis,
        cpu_millis: children_millis()? - before,
    })
}

/// Runs it to its end and returns its peak memory, in mebibytes.
pub(crate) fn peak(command: &mut Command) -> Result<f64> {
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start {command:?}"))?;
    let mut peak = 0.0;
    loop {
        // The kernel keeps the peak, so occasional looks miss nothing but the very end.
        peak = peak_of(child.id()).unwrap_or(peak);
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(peak),
            Some(status) => bail!("{command:?} ended with {status}"),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The peak memory of a process so far, in mebibytes; none if it has exited.
fn peak_of(id: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<f64>()
        .ok()
        .map(|kibibytes| kibibytes / 1024.0)
}

/// CPU time of a running process.
pub(crate) fn cpu_millis(id: u32) -> Result<f64> {
    ticks(&format!("/proc/{id}/stat"), 11)
}

/// CPU time of all children that have exited.
fn children_millis() -> Result<f64> {
    ticks("/proc/self/stat", 13)
}

/// User and system time in a file of `/proc`; the first of the two is at this position after the name.
fn ticks(path: &str, at: usize) -> Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read `{path}`"))?;
    sum(&text, at)
        .map(|ticks| ticks * TICK_MILLIS)
        .with_context(|| format!("failed to understand `{path}`"))
}

fn sum(text: &str, at: usize) -> Option<f64> {
    let (_, behind) = text.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(at).map(str::parse::<f64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_after_a_process_name_with_any_characters() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 11 12 13 14 20 0 1 0 5";
        assert_eq!(sum(text, 11), Some(23.0));
        assert_eq!(sum(text, 13), Some(27.0));
    }
}
