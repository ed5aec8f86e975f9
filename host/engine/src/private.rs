//! A folder of files that no other user could have written or read. Files are written whole or not at all.

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use std::{fs, process};

/// The mode bits that give access to other users.
const OTHERS: u32 = 0o077;

/// Counts the files that this process made.
static FILES: AtomicU64 = AtomicU64::new(0);

/// What tells this process from others: in containers that share a volume each may have the id 1.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(process::id()));

/// Such a folder.
#[derive(Clone, Debug)]
pub struct PrivateFolder {
    folder: PathBuf,
    /// The user of this process, which must own every file that is read.
    user: u32,
}

impl PrivateFolder {
    /// Opens a folder, which is created when it is missing.
    ///
    /// # Errors
    /// When it cannot be written, or other users have access.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let probe = folder.join(format!(".{}", unique()));
        let user = anew(&probe)?.metadata()?.uid();
        // Another process may have removed it to make room.
        fs::remove_file(&probe).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let about = fs::symlink_metadata(folder)?;
        let ours = about.is_dir() && about.uid() == user && about.mode() & OTHERS == 0;
        match ours {
            true => Ok(Self {
                folder: folder.to_owned(),
                user,
            }),
            false => Err(io::Error::other(
                "it is a link, or other users have access to it",
            )),
        }
    }

    /// Reads a file of at most so many bytes.
    ///
    /// # Errors
    /// When it is missing or larger, or when another user may have written it.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        // Open without following or blocking: a link is refused, and a pipe does not wait for a writer.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(self.folder.join(name))?;
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != self.user || about.mode() & OTHERS != 0 {
            return Err(io::Error::other("not ours alone"));
        }
        if about.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or_default());
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a file from several pieces; a concurrent reader sees all of it or nothing.
    ///
    /// # Errors
    /// When it cannot be written; nothing is kept then.
    pub fn write(&self, name: &str, pieces: &[&[u8]]) -> io::Result<()> {
        // Several threads and processes may write the same file.
        let partial = format!("{name}.partial-{}", unique());
        let partial = self.folder.join(partial);
        let fill = || {
            let mut file = anew(&partial)?;
            pieces.iter().try_for_each(|piece| file.write_all(piece))
        };
        fill()
            .and_then(|()| fs::rename(&partial, self.folder.join(name)))
            .inspect_err(|_| drop(fs::remove_file(&partial)))
    }

    /// Whether there is such a file; it may be unfit to be read.
    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// Makes a file count as new for [`PrivateFolder::prune`].
    pub fn touch(&self, name: &str) {
        // A folder that cannot be written prunes nothing, either.
        let _ = fs::File::open(self.folder.join(name))
            .and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Removes the oldest files, except those with spared names, until at most this many files and bytes are left.
    /// Returns whether that was possible.
    pub fn prune(&self, files: usize, bytes: u64, is_spared: impl Fn(&str) -> bool) -> bool {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries
            .filter_map(|entry| {
                let about = entry.metadata().ok()?;
                Some((about.modified().ok()?, entry.path(), about.len()))
            })
            .collect();
        all.sort();
        let mut left = (all.len(), all.iter().map(|(.., bytes)| bytes).sum::<u64>());
        let spared = |path: &Path| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(&is_spared)
        };
        for (_, path, length) in all {
            if left.0 <= files && left.1 <= bytes {
                break;
            }
            if !spared(&path) && fs::remove_file(&path).is_ok() {
                left = (left.0 - 1, left.1 - length);
            }
        }
        left.0 <= files && left.1 <= bytes
    }

    /// Like [`PrivateFolder::prune`], but removes nothing if the spared files alone are too many.
    pub fn make_room(&self, files: usize, bytes: u64, is_spared: impl Fn(&str) -> bool) -> bool {
        self.has_room(files, bytes, &is_spared) && self.prune(files, bytes, is_spared)
    }

    /// Whether the spared files alone stay within this many files and bytes.
    fn has_room(&self, files: usize, bytes: u64, is_spared: impl Fn(&str) -> bool) -> bool {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let spared = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_spared));
        let lengths = spared.filter_map(|entry| Some(entry.metadata().ok()?.len()));
        let spared = lengths.fold((0, 0), |(files, bytes), length| (files + 1, bytes + length));
        spared.0 <= files && spared.1 <= bytes
    }
}

/// A part of a name that no other file has, whatever process makes it.
fn unique() -> String {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    format!("{}-{:016x}-{number}", process::id(), *PROCESS)
}

/// Creates a new file.
fn anew(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    #[test]
    fn reads_no_file_of_another_owner_or_that_others_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        let private = PrivateFolder::open(&path).unwrap();
        private.write("a", &[b"12"]).unwrap();
        assert_eq!(private.read("a", 2).unwrap(), b"12");
        let stranger = PrivateFolder {
            user: private.user.wrapping_add(1),
            ..private.clone()
        };
        assert!(stranger.read("a", 2).is_err(), "it belongs to another user");
        for mode in [0o620, 0o602, 0o640] {
            fs::set_permissions(path.join("a"), fs::Permissions::from_mode(mode)).unwrap();
            assert!(private.read("a", 2).is_err(), "{mode:o}");
        }
        private.write("a", &[b"34"]).unwrap();
        assert_eq!(private.read("a", 2).unwrap(), b"34", "it is replaced");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = PrivateFolder::open(&path).unwrap_err().to_string();
        assert!(refused.contains("other users"), "{refused}");
        let below = path.join("a").join("b");
        assert!(PrivateFolder::open(&below).is_err(), "below a file");
    }

    #[test]
    fn disturbs_no_other_process_with_the_same_id() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        PrivateFolder::open(&path).unwrap();
        let id = process::id();
        let partial = (0..100).map(|number| format!("a.partial-{id}-{number}"));
        let others: Vec<_> = partial.chain([format!(".{id}")]).collect();
        for other in &others {
            fs::write(path.join(other), "").unwrap();
        }
        let private = PrivateFolder::open(&path).unwrap();
        private.write("a", &[b"12"]).unwrap();
        assert!(others.iter().all(|other| private.has(other)));
        // Nothing of its own is left.
        assert_eq!(fs::read_dir(&path).unwrap().count(), others.len() + 1);
    }

    #[test]
    fn keeps_the_newest_files_within_number_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        let private = PrivateFolder::open(&path).unwrap();
        let names = || {
            let entries = fs::read_dir(&path).unwrap();
            let mut names: Vec<_> = entries.map(|one| one.unwrap().file_name()).collect();
            names.sort();
            names.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        for (age, name) in ["d", "c", "b", "a"].iter().enumerate() {
            private.write(name, &[b"12", b"34"]).unwrap();
            let file = fs::File::open(path.join(name)).unwrap();
            let then = SystemTime::now() - Duration::from_secs(60 * (age as u64 + 1));
            file.set_modified(then).unwrap();
        }
        assert!(private.prune(3, u64::MAX, |_| false));
        assert_eq!(names(), "b c d");
        private.touch("b");
        assert!(private.prune(3, 8, |_| false));
        assert_eq!(names(), "b d");
        assert_eq!(private.read("b", 4).unwrap(), b"1234");
        assert!(private.read("b", 3).is_err() && private.read("a", 4).is_err());
        // What is spared stays, however old it is, and whatever room that leaves.
        assert!(private.prune(1, 8, |name| name == "d"));
        assert_eq!(names(), "d");
        assert!(!private.prune(0, 8, |name| name == "d"));
        assert_eq!(names(), "d");
    }
}
