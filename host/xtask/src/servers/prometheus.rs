//! Prometheus and promtool: those on the path, else those of the distribution's package, unpacked beside the other servers.
//! Never installs anything on the machine, and never starts a service.

use crate::{process, progress};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests start.
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// Puts both into the folder, where they are not yet.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    if PROGRAMS.iter().all(|name| folder.join(name).is_file()) {
        return Ok(());
    }
    let found: Option<Vec<PathBuf>> = PROGRAMS.iter().map(|name| on_path(name)).collect();
    match found {
        Some(found) => found.iter().zip(PROGRAMS).try_for_each(|(from, name)| copy(from, &folder.join(name))),
        None => unpack(folder),
    }
}

/// The package of Debian and its kin; downloading one takes no rights.
fn unpack(folder: &Path) -> Result<()> {
    progress::say("    fetching Prometheus (a package of the distribution, 20 MB)");
    let room = folder.join("prometheus-package");
    fs::create_dir_all(&room).with_context(|| format!("failed to make `{}`", room.display()))?;
    let downloaded =
        process::run(Command::new("apt-get").args(["download", "--quiet", "prometheus"]).current_dir(&room));
    let Some(package) = downloaded.ok().and_then(|()| package_in(&room)) else {
        bail!(
            "there is no Prometheus: neither `prometheus` and `promtool` on the path, nor a package `prometheus` that `apt-get download` can fetch (does `apt-get update` help?); install Prometheus 2.40 or later"
        );
    };
    let unpacked = room.join("unpacked");
    process::run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&unpacked))?;
    PROGRAMS.iter().try_for_each(|name| copy(&unpacked.join("usr/bin").join(name), &folder.join(name)))?;
    fs::remove_dir_all(&room).with_context(|| format!("failed to remove `{}`", room.display()))
}

fn package_in(room: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(room).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "deb")).max()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("failed to copy `{}`", from.display()))?;
    Ok(())
}

/// A program on the path.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
