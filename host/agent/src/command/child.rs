//! Programs of others that the agent starts, such as credential plugins, end with it, however it ends. A compiler of ours
//! ends with the pipe that it reads. Never does what they are for.

use crate::output::Ending;
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The very file that runs, whatever has taken its place meanwhile.
pub(crate) const PROGRAM: &str = "/proc/self/exe";
/// What shells end with for a program that is not there, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// What a program of somebody else is started behind.
pub(crate) fn guard() -> Vec<OsString> {
    [PROGRAM, "child", &parent(), "--"].map(OsString::from).to_vec()
}

/// How this process is named to its children.
fn parent() -> String {
    getpid().as_raw_nonzero().to_string()
}

/// Has this process end with the thread that started it, and so with the agent, which may also be killed.
///
/// # Errors
/// When it cannot be had, or the agent has ended before.
fn end_with(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("failed to be ended with the agent")?;
    ensure!(getppid().map(Pid::as_raw_nonzero).is_some_and(|now| now.get() == parent), "the agent has ended");
    Ok(())
}

/// Becomes another program that ends with the agent. Gives how to end where it cannot, without a word: its words would
/// stand where the program's do.
pub(crate) fn become_program(parent: i32, words: &[OsString]) -> anyhow::Result<Ending> {
    let (program, rest) = words.split_first().context("failed to run nothing")?;
    end_with(parent)?;
    // It comes back only when it fails.
    Ok(Ending::Code(match Command::new(program).args(rest).exec().kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    }))
}
