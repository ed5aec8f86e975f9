//! Prometheus and promtool: those on the path, else those of the distribution's package.

use super::package::{Unpacked, copy};
use crate::progress;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The programs that tests start.
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// Puts both into the folder, if they are missing.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    if PROGRAMS.iter().all(|name| folder.join(name).is_file()) {
        return Ok(());
    }
    let found: Option<Vec<PathBuf>> = PROGRAMS.iter().map(|name| on_path(name)).collect();
    if let Some(found) = found {
        return found
            .iter()
            .zip(PROGRAMS)
            .try_for_each(|(from, name)| copy(from, &folder.join(name)));
    }
    progress::say("    fetching Prometheus (a package of the distribution, 20 MB)");
    let Some(package) = Unpacked::fetch(folder, "prometheus")? else {
        bail!(
            "Prometheus not found: `prometheus` and `promtool` are not on the path, and `apt-get download` cannot fetch a package `prometheus` (try `apt-get update`); install Prometheus 2.40 or later"
        );
    };
    PROGRAMS.iter().try_for_each(|name| {
        copy(
            &package.root().join("usr/bin").join(name),
            &folder.join(name),
        )
    })?;
    package.remove()
}

/// A program on the path.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
