//! Files and folders, with their paths in errors.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("failed to read `{}`", path.display()))
}

/// Reads a file of text.
pub(crate) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read `{}`", path.display()))
}

/// Writes a file and renames it, so that nobody sees half of it; false when it had this content already and was not
/// touched.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<bool> {
    if fs::read(path).is_ok_and(|there| there == bytes.as_ref()) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&draft, bytes)
        .and_then(|()| fs::rename(&draft, path))
        .with_context(|| format!("failed to write `{}`", path.display()))?;
    Ok(true)
}

/// Copies a file with its permissions.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("failed to copy `{}`", from.display()))?;
    Ok(())
}

/// Gives a file or folder another name.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("failed to write `{}`", to.display()))
}

/// Creates a folder and those above it, as far as they are missing.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("failed to create `{}`", path.display()))
}

/// Removes a folder with all that is in it, if there is one.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path)
            .with_context(|| format!("failed to remove `{}`", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_a_file_once_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guests/a.wasm");
        assert!(write(&path, "one").unwrap());
        assert!(!write(&path, "one").unwrap());
        assert!(write(&path, "two").unwrap());
        assert_eq!(text(&path).unwrap(), "two");
        assert_eq!(
            fs::read_dir(folder.path().join("guests")).unwrap().count(),
            1
        );
    }
}
