//! A program that runs and gives its output; it is killed when nobody waits for it any more.

use super::WAIT;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use transom_core::share::lock::MutexExt as _;

/// How often the agent checks whether a plugin has exited.
const LOOK: Duration = Duration::from_millis(10);
/// The most bytes that are read of a plugin's output.
const SAID_BYTES: u64 = 1 << 20;

/// A running program. One thread starts it, reads its output and waits for it, because the program may be bound to end
/// with the thread that started it.
#[derive(Default)]
pub(super) struct RunningPlugin(Mutex<Option<Child>>);

impl RunningPlugin {
    /// Runs a program to its end and returns its output. Fails if the program is still running 8 s after its output
    /// ended.
    pub(super) fn run(&self, mut command: Command) -> Result<Vec<u8>, String> {
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        let stdout = child.stdout.take().ok_or("has no output")?;
        *self.0.locked() = Some(child);
        let mut said = Vec::new();
        stdout
            .take(SAID_BYTES)
            .read_to_end(&mut said)
            .map_err(|_| "has output that cannot be read")?;
        let until = Instant::now() + WAIT;
        loop {
            let ended = self.0.locked().as_mut().ok_or("was aborted")?.try_wait();
            match ended {
                Ok(Some(status)) => {
                    // Another process may get its number now.
                    *self.0.locked() = None;
                    return if status.success() {
                        Ok(said)
                    } else {
                        Err(failed(status))
                    };
                }
                Ok(None) if Instant::now() < until => thread::sleep(LOOK),
                _ => return Err(late(WAIT)),
            }
        }
    }

    /// Kills the program, and its whole process group if it has one of its own.
    fn end(&self) {
        let Some(mut child) = self.0.locked().take() else {
            return;
        };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // A program that has exited may have left others that hold its output open. If it has no group of its own, no
        // group has this number, and the call has no effect.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        drop((child.kill(), child.wait()));
    }
}

/// Kills a program when it is dropped.
pub(super) struct Bound(pub(super) Arc<RunningPlugin>);

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn failed(status: ExitStatus) -> String {
    match status.code() {
        // The codes with which a shell, or the guard, reports that it cannot run a program.
        Some(126 | 127) => {
            format!("cannot be run, or needs a program that cannot be run: it failed with {status}")
        }
        _ => format!("failed with {status}"),
    }
}

pub(super) fn late(after: Duration) -> String {
    format!("did not exit within {} s", after.as_secs())
}
