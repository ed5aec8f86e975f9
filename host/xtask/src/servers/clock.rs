//! libfaketime, with which a test moves the clock of one process: the machine's own, else that of the distribution's
//! package.

use super::package::{Unpacked, copy};
use crate::progress;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// Puts it into the folder, if it is missing.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    let place = folder.join(LIBRARY);
    if place.is_file() {
        return Ok(());
    }
    if let Some(installed) = library(Path::new("/")) {
        return copy(&installed, &place);
    }
    progress::say("    fetching libfaketime (a package of the distribution, 0.1 MB)");
    let Some(package) = Unpacked::fetch(folder, "libfaketime")? else {
        bail!(
            "libfaketime not found: it is not installed, and `apt-get download` cannot fetch a package `libfaketime` (try `apt-get update`); install faketime"
        );
    };
    let Some(found) = library(&package.root()) else {
        bail!("the package `libfaketime` does not contain `{LIBRARY}`")
    };
    copy(&found, &place)?;
    package.remove()
}

/// Where a distribution keeps it: `usr/lib/faketime`, or in a folder of the architecture.
fn library(root: &Path) -> Option<PathBuf> {
    let lib = root.join("usr/lib");
    let folders = fs::read_dir(&lib).ok()?.flatten().map(|entry| entry.path());
    let places = folders
        .map(|folder| folder.join("faketime"))
        .chain([lib.join("faketime")]);
    places
        .map(|folder| folder.join(LIBRARY))
        .find(|file| file.is_file())
}
