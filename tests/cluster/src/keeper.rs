//! The process group of a cluster, led by a shell that outlives us by a moment: it ends the servers and removes their
//! folder however we end, also when we are killed. Never ends anything outside its group.

use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, which comes when we end.
const SCRIPT: &str = r#"trap "" INT TERM HUP; cat >/dev/null; rm -rf -- "$1"; kill -KILL 0"#;

/// The leader of the group; the group ends, and the folder goes, with the value.
pub(crate) struct Keeper(Child);

impl Keeper {
    /// Starts the leader; `folder` goes with the group.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "keeper"]).arg(folder).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().context("failed to start `sh`, which ends the servers when we end").map(Self)
    }

    /// What a server's group is set to.
    pub(crate) fn group(&self) -> Result<i32> {
        i32::try_from(self.0.id()).context("failed to read the id of a process group")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Where it has ended already there is nothing to wait for.
        drop(self.0.wait());
    }
}
