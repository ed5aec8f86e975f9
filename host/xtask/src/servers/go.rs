//! The Go toolchain, which builds what tests run against. It is not installed from here.

use crate::process;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// A `go` command in a folder; fails with one sentence when there is no Go.
pub(super) fn command(folder: &Path) -> Result<Command> {
    ensure!(
        process::probe(Command::new("go").arg("version")).is_some(),
        "Go not found; it builds the kube-apiserver, etcd, kubectl, helm and registration controller of the tests and fetches the CRDs; install Go 1.26 or later (https://go.dev/dl)"
    );
    let mut go = Command::new("go");
    // Makes settings of the user, or of folders above, ineffective.
    go.current_dir(folder)
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0");
    Ok(go)
}
