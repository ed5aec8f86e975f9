//! `cargo xtask demo --cluster`: the main job on a real API server. Only builds and starts the program of
//! `tests/cluster`.

use crate::{guests, process, progress, servers, workspace};
use anyhow::Result;
use std::process::Command;

/// Builds what is needed, and runs the demo.
pub(super) fn run() -> Result<()> {
    let workspace = workspace::read()?;
    progress::step("building the guests, the agent and the servers (some minutes the first time)");
    guests::run(&guests::Args::shipped_and(&workspace, "calm"))?;
    let transom = workspace::program("transom")?;
    let mut show = Command::new(workspace::program("transom-test-cluster")?);
    show.current_dir(&workspace.root)
        .env(servers::VARIABLE, servers::prepare()?)
        .arg("--show")
        .arg(transom);
    process::run(&mut show)
}
