//! What happens to the machine on which the agent runs. Never changes the machine of the test: the full disk is a device
//! that takes nothing, and for files a limit of the process in the middle of what it keeps of compiled code.

use crate::stage::on_stage;
use anyhow::{Result, ensure};
use std::fs;
use std::process::Command;

/// A file that grows beyond 256 KiB is refused the rest, and standard output and standard error take nothing.
const FULL: &str = r#"ulimit -f 512; trap "" XFSZ; exec "$@" >/dev/full 2>/dev/full"#;

#[test]
fn a_full_disk_costs_no_work() -> Result<()> {
    on_stage(async |stage| {
        for name in ["one", "two"] {
            stage.ready(name, name == "one").await?;
        }
        let cache = stage.cluster.folder().join("full");
        fs::create_dir_all(&cache)?;
        let inner = stage.command(&["--log-format", "text"])?;
        let mut command = Command::new("sh");
        command.args(["-c", FULL, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(stage.cluster.folder()).env("RUST_LOG", "debug").env("XDG_CACHE_HOME", &cache);
        let agent = stage.start_command(&mut command)?;
        stage.wait_for_right("one", 6443).await?;
        stage.objects().namespace("klusterlet-two").await?;
        stage.wait_for_right("two", 6443).await?;
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        ensure!(agent.stop()?.is_empty(), "the log could be written");
        Ok(())
    })
}
