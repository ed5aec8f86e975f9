//! `cargo xtask demo --cluster`: the main job on a real API server. Never anything else than starting what
//! `tests/cluster` shows.

use crate::{guests, process, progress, servers, workspace};
use anyhow::Result;

/// Builds what is needed, and shows it.
pub(super) fn run() -> Result<()> {
    let workspace = workspace::read()?;
    progress::step("building the guests, the agent and the servers (some minutes the first time)");
    guests::run(&guests::Args::shipped_and(&workspace, "calm"))?;
    process::run(workspace::cargo().current_dir(&workspace.root).args(["build", "--package=transom"]))?;
    let transom = workspace.target.join("debug/transom");
    let mut show = workspace::cargo();
    show.current_dir(&workspace.root).env(servers::VARIABLE, servers::prepare()?);
    show.args(["run", "--quiet", "--package", "transom-test-cluster", "--", "--show"]).arg(transom);
    process::run(&mut show)
}
