//! Ends other programs that the agent starts, such as credential plugins, together with the agent, however it ends. The
//! agent's own compiler process ends when the pipe that it reads is closed.

use crate::output::CommandEnd;
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The file that this process runs, even when another one has taken its place.
pub(crate) const PROGRAM: &str = "/proc/self/exe";
/// The exit codes of shells for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// The command that another program is started through.
pub(crate) fn guard() -> Vec<OsString> {
    [PROGRAM, "child", &parent(), "--"]
        .map(OsString::from)
        .to_vec()
}

/// The id of this process, for its children.
fn parent() -> String {
    getpid().as_raw_nonzero().to_string()
}

/// Has this process killed when the thread that started it ends, and so with the agent, even when the agent is killed.
///
/// # Errors
/// When the kernel refuses that, or the agent has ended before.
fn end_with(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("failed to bind this process to the lifetime of the agent")?;
    ensure!(
        getppid()
            .map(Pid::as_raw_nonzero)
            .is_some_and(|now| now.get() == parent),
        "the agent has ended"
    );
    Ok(())
}

/// Becomes another program that ends with the agent. When it cannot, returns the exit code and prints nothing, because
/// that would pass for the program's own output.
pub(crate) fn become_program(parent: i32, words: &[OsString]) -> anyhow::Result<CommandEnd> {
    let (program, rest) = words
        .split_first()
        .context("failed to run a program: none is named")?;
    end_with(parent)?;
    // `exec` returns only when it fails.
    Ok(CommandEnd::Code(
        match Command::new(program).args(rest).exec().kind() {
            ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_RUN,
        },
    ))
}
