//! The content of a folder, as a comparable value. Shows no file content: it may be a secret.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file that was not rewritten has the same inode and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Print {
    /// The file itself.
    pub inode: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// Every file below a folder, in order; none if the folder does not exist. Files deleted meanwhile are skipped.
///
/// # Errors
/// When an existing folder cannot be listed.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    walk(folder, &mut found).with_context(|| format!("failed to list `{}`", folder.display()))?;
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found)?,
            Ok(_) => found.push(entry.path()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A digest of every file below a folder, by relative path.
///
/// # Errors
/// When one cannot be read.
pub fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    by_path(folder, |path| {
        let mut hasher = DefaultHasher::new();
        fs::read(path)?.hash(&mut hasher);
        Ok(hasher.finish())
    })
}

/// The inode and time of every file below a folder, by relative path.
///
/// # Errors
/// When the metadata of one cannot be read.
pub fn prints(folder: &Path) -> Result<BTreeMap<PathBuf, Print>> {
    by_path(folder, |path| {
        let about = fs::metadata(path)?;
        Ok(Print {
            inode: about.ino(),
            modified: about.modified()?,
        })
    })
}

fn by_path<T>(
    folder: &Path,
    of: impl Fn(&Path) -> std::io::Result<T>,
) -> Result<BTreeMap<PathBuf, T>> {
    let one = |path: PathBuf| {
        let value = of(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
        Ok((path.strip_prefix(folder).unwrap_or(&path).to_owned(), value))
    };
    files(folder)?.into_iter().map(one).collect()
}
