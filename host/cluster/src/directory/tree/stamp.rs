//! The stamp of a file, by which an unchanged file is known without reading it.

use rustix::fs::Stat;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// The least age of a modification time for which an equal stamp proves, on any system, that nothing changed.
const TICK: Duration = Duration::from_millis(20);

/// Distinguishes a changed file from an unchanged one without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::directory) struct FileStamp {
    modified: SystemTime,
    bytes: u64,
    /// Another file with the same name may have the same time and size.
    inode: u64,
}

impl FileStamp {
    /// The stamp of an open file; `None` if it changed so recently that an equal stamp would prove nothing.
    pub(in crate::directory) fn of(metadata: &Metadata) -> Option<Self> {
        Self::settled(metadata.modified().ok()?, metadata.len(), metadata.ino())
    }

    /// The same of a file that was not opened.
    pub(super) fn of_stat(stat: &Stat) -> Option<Self> {
        let (seconds, nanos) = (
            u64::try_from(stat.st_mtime).ok()?,
            u32::try_from(stat.st_mtime_nsec).ok()?,
        );
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))?;
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        Self::settled(modified, bytes, stat.st_ino)
    }

    fn settled(modified: SystemTime, bytes: u64, inode: u64) -> Option<Self> {
        let age = SystemTime::now().duration_since(modified);
        age.is_ok_and(|age| age >= TICK).then_some(Self {
            modified,
            bytes,
            inode,
        })
    }
}
