//! Makes a component of a core module, and writes it to a file.

use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::path::Path;
use wit_component::ComponentEncoder;

/// What a write did to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It has new content.
    New,
    /// It had this content already and was not touched.
    Same,
}

/// Encodes a core module with its embedded world as a component, and validates the result.
pub(crate) fn encode(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)?
        .encode()
}

/// Writes atomically, and only when the content differs.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<Written> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(Written::Same);
    }
    let folder = path
        .parent()
        .with_context(|| format!("`{}` has no parent folder", path.display()))?;
    fs::create_dir_all(folder)
        .with_context(|| format!("failed to create the folder `{}`", folder.display()))?;
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&draft, bytes).with_context(|| format!("failed to write `{}`", draft.display()))?;
    fs::rename(&draft, path)
        .with_context(|| format!("failed to put `{}` in place", path.display()))?;
    Ok(Written::New)
}

/// Gives a component that stayed the same the time of its newly built module: `transom test` warns of components that
/// are older than their sources.
pub(crate) fn refresh(path: &Path, module: &Path) -> Result<()> {
    let of = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let built = of(module)?;
    if built > of(path)? {
        File::open(path)?.set_modified(built)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn writes_a_file_once_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guests/a.wasm");
        assert_eq!(write(&path, b"one").unwrap(), Written::New);
        assert_eq!(write(&path, b"one").unwrap(), Written::Same);
        assert_eq!(write(&path, b"two").unwrap(), Written::New);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::read_dir(folder.path().join("guests")).unwrap().count(),
            1
        );
    }

    #[test]
    fn an_unchanged_component_is_at_least_as_new_as_its_module() {
        let folder = tempfile::tempdir().unwrap();
        let (path, module) = (
            folder.path().join("a.component"),
            folder.path().join("a.wasm"),
        );
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let set = |path: &Path, time| {
            File::options()
                .append(true)
                .create(true)
                .open(path)?
                .set_modified(time)
        };
        let changed = || fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, b"one").unwrap();
        for (of_module, expected) in [(20, 20), (5, 10)] {
            set(&path, at(10)).unwrap();
            set(&module, at(of_module)).unwrap();
            refresh(&path, &module).unwrap();
            assert_eq!(changed(), at(expected));
        }
    }

    #[test]
    fn refuses_what_is_not_a_module() {
        assert!(encode(b"not wasm").is_err());
    }
}
