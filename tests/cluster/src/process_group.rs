//! The process group of a cluster, led by a shell that outlives the test process for a moment: it kills the servers and
//! removes their folder however the test process ends, even by a kill. Touches nothing outside its group.

use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, which comes when the test process ends.
const SCRIPT: &str = r#"trap "" INT TERM HUP; cat >/dev/null; rm -rf -- "$1"; kill -KILL 0"#;

/// The leader of the group; when the value is dropped, the group ends and the folder is removed.
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
