//! Prometheus with promtool, and libfaketime: those of the machine, else those of the distribution's packages (Debian
//! and its kin), which are downloaded and not installed. Chromium and jq are installed, which takes the rights of root.

use crate::{files, process, progress};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What tests take from one package.
struct Wanted {
    package: &'static str,
    /// What the package has, and its size.
    shown: &'static str,
    files: &'static [&'static str],
    /// Finds a file on the machine.
    installed: fn(&str) -> Option<PathBuf>,
    /// Finds a file below the folder in which the package is unpacked.
    unpacked: fn(&Path, &str) -> Option<PathBuf>,
    /// What to install when the package cannot be fetched.
    advice: &'static str,
}

const WANTED: [Wanted; 2] = [
    Wanted {
        package: "prometheus",
        shown: "Prometheus (a package of the distribution, 20 MB)",
        files: &["prometheus", "promtool"],
        installed: on_path,
        unpacked: |root, name| Some(root.join("usr/bin").join(name)),
        advice: "Prometheus 2.40 or later",
    },
    // With it a test moves the clock of one process. The variant for programs with threads.
    Wanted {
        package: "libfaketime",
        shown: "libfaketime (a package of the distribution, 0.1 MB)",
        files: &["libfaketimeMT.so.1"],
        installed: |name| library(Path::new("/"), name),
        unpacked: library,
        advice: "faketime",
    },
];

/// Programs with libraries of their own, for which a downloaded package does not do: they are installed. Each has the
/// names under which it may be found, its package, what is shown of it, and what needs it.
const INSTALLED: [(&[&str], &str, &str, &str); 2] = [
    (
        &["chromium", "chromium-browser", "google-chrome", "chrome"],
        "chromium",
        "400 MB with its libraries",
        "a test looks at the page of `transom plan`",
    ),
    (
        &["jq"],
        "jq",
        "1 MB with its libraries",
        "tests follow the pages for operators, which use it",
    ),
];

/// Puts all into the folder, if they are missing.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    WANTED
        .iter()
        .try_for_each(|wanted| wanted.prepare(folder))?;
    INSTALLED
        .iter()
        .try_for_each(|(names, package, size, why)| install(names, package, size, why))
}

/// Installs a program, if it is not there under one of its names.
fn install(names: &[&str], package: &str, size: &str, why: &str) -> Result<()> {
    if names.iter().any(|name| on_path(name).is_some()) {
        return Ok(());
    }
    progress::say(&format!(
        "    installing {package} (a package of the distribution, {size})"
    ));
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        process::run(command.args(words))
    };
    let install = [
        "install",
        "--yes",
        "--quiet",
        "--no-install-recommends",
        package,
    ];
    apt(&install)
        .or_else(|_| apt(&["update", "--quiet"]).and_then(|()| apt(&install)))
        .with_context(|| format!("no {package} found, and it cannot be installed: {why}; install the package `{package}`"))
}

impl Wanted {
    fn prepare(&self, folder: &Path) -> Result<()> {
        if self.files.iter().all(|name| folder.join(name).is_file()) {
            return Ok(());
        }
        if self.copy(folder, self.installed)? {
            return Ok(());
        }
        progress::say(&format!("    fetching {}", self.shown));
        let room = folder.join(format!("{}-package", self.package));
        let root = self.unpack(&room).with_context(|| {
            format!(
                "{} not found: not all of it is installed, and the package `{}` cannot be fetched and unpacked (try `apt-get update`); install {}",
                self.files.join(" and "), self.package, self.advice
            )
        });
        let copied = root.and_then(|root| self.copy(folder, |name| (self.unpacked)(&root, name)));
        files::remove_folder(&room)?;
        anyhow::ensure!(
            copied?,
            "the package `{}` does not contain `{}`",
            self.package,
            self.files.join("`, `")
        );
        Ok(())
    }

    /// Copies the files from where they are found; false when one is not.
    fn copy(&self, folder: &Path, find: impl Fn(&str) -> Option<PathBuf>) -> Result<bool> {
        let found: Option<Vec<_>> = self.files.iter().map(|name| find(name)).collect();
        for (from, name) in found.iter().flatten().zip(self.files) {
            files::copy(from, &folder.join(name))?;
        }
        Ok(found.is_some())
    }

    /// Downloads the package and unpacks it; returns the folder that has its files as they lie below `/`.
    fn unpack(&self, room: &Path) -> Result<PathBuf> {
        files::create_folder(room)?;
        let mut download = Command::new("apt-get");
        process::run(
            download
                .args(["download", "--quiet", self.package])
                .current_dir(room),
        )?;
        let entries = fs::read_dir(room)?.flatten().map(|entry| entry.path());
        let file = entries
            .filter(|path| path.extension().is_some_and(|end| end == "deb"))
            .max()
            .context("`apt-get download` wrote no package")?;
        let root = room.join("unpacked");
        let mut extract = Command::new("dpkg-deb");
        process::run(extract.arg("--extract").arg(&file).arg(&root))?;
        Ok(root)
    }
}

/// A program on the path.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A library where a distribution keeps it: `usr/lib/faketime`, or in a folder of the architecture.
fn library(root: &Path, name: &str) -> Option<PathBuf> {
    let lib = root.join("usr/lib");
    let folders = fs::read_dir(&lib).ok()?.flatten().map(|entry| entry.path());
    folders
        .chain([lib])
        .map(|folder| folder.join("faketime").join(name))
        .find(|file| file.is_file())
}
