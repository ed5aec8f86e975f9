//! Reads everything at the start, before anything is followed.

use super::load::{self, Scan};
use super::settle::QUIET;
use super::tree::{FilePlace, Layer};
use super::{SharedDirectory, read_named};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reads everything into a directory that has read nothing. A patch ends for good where a user changed its field: what
/// is being written at that moment is read again before that counts.
pub(super) fn whole(
    mut shared: SharedDirectory,
    root: &Path,
    is_file: bool,
    settle: Duration,
) -> io::Result<Arc<SharedDirectory>> {
    for _ in 0..QUIET {
        let loaded = Arc::new(shared);
        let is_fresh = all(&loaded, root, is_file)?;
        let ends = loaded.own.is_some() && !loaded.store().outdated().is_empty();
        match Arc::try_unwrap(loaded) {
            Ok(unsure) if is_fresh && ends => shared = unsure.unread(),
            Ok(loaded) => return Ok(Arc::new(loaded)),
            Err(loaded) => return Ok(loaded),
        }
        std::thread::sleep(settle);
    }
    let loaded = Arc::new(shared);
    all(&loaded, root, is_file)?;
    Ok(loaded)
}

/// Reads the whole tree, or one file, whatever its extension. Returns whether something may have been half written.
fn all(shared: &Arc<SharedDirectory>, root: &Path, is_file: bool) -> io::Result<bool> {
    if is_file {
        let bytes = read_named(root, shared.limits.file_bytes)?;
        let name = root.file_name().map(Path::new).unwrap_or(root);
        load::take_bytes(shared, FilePlace::new(Layer::User, name), &bytes);
        return Ok(false);
    }
    std::fs::read_dir(root)?;
    let scan = Scan {
        folder: &mut |_| Ok(()),
        later: &|_| false,
    };
    let found = load::scan(shared, None, scan);
    load::refresh(shared, found.files);
    let mut fresh = found.fresh.iter();
    Ok(fresh.any(|place| place.layer == Layer::User))
}
