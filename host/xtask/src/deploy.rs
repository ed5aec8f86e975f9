//! `cargo xtask deploy`: writes the files below host/deploy and host/docs that are made from the sources. Only builds
//! and starts the program of `tests/deploy`.

use crate::{process, workspace};
use anyhow::Result;
use std::process::Command;

/// Builds and runs the program.
pub(crate) fn run() -> Result<()> {
    let transom = workspace::program("transom")?;
    let mut deploy = Command::new(workspace::program("transom-test-deploy")?);
    process::run(
        deploy
            .current_dir(workspace::read()?.root)
            .env("TRANSOM_BINARY", transom),
    )
}
