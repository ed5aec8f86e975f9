//! `cargo xtask deploy`: writes the files below host/deploy and host/docs that are made from the sources. Never anything
//! else than starting what `tests/deploy` is.

use crate::{process, workspace};
use anyhow::Result;

/// Runs it.
pub(crate) fn run() -> Result<()> {
    let mut cargo = workspace::cargo();
    cargo.current_dir(workspace::read()?.root).args(["run", "--quiet", "--package", "transom-test-deploy"]);
    process::run(&mut cargo)
}
