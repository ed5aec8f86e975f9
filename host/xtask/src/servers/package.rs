//! Files of the distribution's packages (Debian and its kin), unpacked beside the servers. Nothing is installed on the
//! machine: downloading a package takes no rights.

use crate::process;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package, unpacked until it is removed.
pub(super) struct Unpacked {
    room: PathBuf,
}

impl Unpacked {
    /// Downloads and unpacks a package under the folder; `None` when it cannot be downloaded.
    pub(super) fn fetch(folder: &Path, package: &str) -> Result<Option<Self>> {
        let room = folder.join(format!("{package}-package"));
        fs::create_dir_all(&room)
            .with_context(|| format!("failed to create `{}`", room.display()))?;
        let unpacked = Self { room };
        let download = process::run(
            Command::new("apt-get")
                .args(["download", "--quiet", package])
                .current_dir(&unpacked.room),
        );
        let Some(file) = download.ok().and_then(|()| unpacked.file()) else {
            unpacked.remove()?;
            return Ok(None);
        };
        process::run(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(&file)
                .arg(unpacked.root()),
        )?;
        Ok(Some(unpacked))
    }

    /// The folder with the files of the package, as it has them below `/`.
    pub(super) fn root(&self) -> PathBuf {
        self.room.join("unpacked")
    }

    /// Removes everything but what was copied.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.room)
            .with_context(|| format!("failed to remove `{}`", self.room.display()))
    }

    fn file(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.room)
            .ok()?
            .flatten()
            .map(|entry| entry.path());
        entries
            .filter(|path| path.extension().is_some_and(|end| end == "deb"))
            .max()
    }
}

/// Copies one file.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("failed to copy `{}`", from.display()))?;
    Ok(())
}
