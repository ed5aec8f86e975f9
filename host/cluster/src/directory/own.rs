//! The agent's own folder: checks that the agent made it, and replaces files atomically, through its open descriptor.
//! Does not call fsync: everything in it can be made again from the manifests.

use super::folder::OpenFolder;
use super::tree::{FileStamp, OBJECTS, PATCHES, gone};
use rustix::fs::{FileType, Mode};
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use transom_core::share::lock::{MutexExt as _, RwLockExt as _};

/// Folder of unfinished files.
const UNFINISHED: &str = "tmp";
/// Folder of status files.
pub(super) const STATUS: &str = "status";
/// Keeps git from tracking the folder, which contains credentials.
const IGNORE: (&str, &[u8]) = (".gitignore", b"*\n");
/// How often a write is tried if the folder disappears meanwhile, or a name is taken.
const TRIES: usize = 4;
/// Only the owner has access. The sticky bit marks a folder that the agent made: git does not store it, so a clone does
/// not have it.
const MARKED: Mode = Mode::RWXU.union(Mode::SVTX);

/// The agent's own folder, open for writing.
#[derive(Debug)]
pub(super) struct OwnFolder {
    path: RwLock<PathBuf>,
    next: AtomicU64,
    held: Mutex<HeldFolder>,
}

/// The folder that the agent has taken.
#[derive(Debug)]
struct HeldFolder {
    /// Device and inode.
    id: (u64, u64),
    /// Held open for its lock, which keeps other agents out.
    _lock: File,
}

impl OwnFolder {
    /// Makes the folder, or takes an existing one that the agent made; locks it, and removes what a killed agent left
    /// unfinished. An error of kind `WouldBlock` means that another agent uses it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let own = Self {
            path: RwLock::new(path.to_owned()),
            next: AtomicU64::new(0),
            held: Mutex::new(take(path)?),
        };
        let unfinished = own.folder()?.sub(OsStr::new(UNFINISHED))?;
        for (name, _) in unfinished.entries()? {
            unfinished.remove(&name)?;
        }
        own.keep_from_git()?;
        Ok(own)
    }

    /// The present folder. Makes it again if it was removed. Takes another folder in its place if the agent made that
    /// and no other agent uses it.
    fn folder(&self) -> io::Result<OpenFolder> {
        let mut held = self.held.locked();
        let path = self.path();
        match OpenFolder::open(&path) {
            Ok(folder) if id(&folder)? == held.id => return Ok(folder),
            Err(error) if !gone(&error) => return Err(error),
            // If the root is gone, the folder is not made again.
            Err(error) if !path.parent().is_some_and(Path::exists) => return Err(error),
            _ => {}
        }
        *held = take(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::other(format!(
                "the agent's own folder `{}` was removed, and another agent is using the new one",
                path.display()
            )),
            _ => error,
        })?;
        drop(held);
        self.keep_from_git()?;
        OpenFolder::open(&path)
    }

    /// Uses another path from now on. The folder is made or taken there when it is needed.
    pub(super) fn move_to(&self, path: &Path) {
        path.clone_into(&mut self.path.writing());
    }

    fn path(&self) -> PathBuf {
        let path = self.path.reading();
        path.clone()
    }

    /// Writes the file that keeps git from tracking credentials, unless it has the right content.
    fn keep_from_git(&self) -> io::Result<()> {
        let (name, text) = IGNORE;
        let mut found = Vec::new();
        if let Some(file) = self.file(Path::new(name))? {
            file.take(16).read_to_end(&mut found)?;
        }
        if found == text {
            Ok(())
        } else {
            self.write(Path::new(name), text)
        }
    }

    /// Opens a file of the folder; `None` if it does not exist.
    pub(super) fn file(&self, file: &Path) -> io::Result<Option<File>> {
        let (parent, name) = parts(file);
        match self
            .folder()
            .and_then(|folder| folder.descend(parent)?.file(name))
        {
            Err(error) if gone(&error) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The stamp of a file, to compare it with that of the file that was read; by its path, which is cheaper than to
    /// open each folder.
    pub(super) fn stamp(&self, file: &Path) -> Option<FileStamp> {
        let metadata = self.path().join(file).symlink_metadata();
        metadata.ok().and_then(|metadata| FileStamp::of(&metadata))
    }

    /// The entries of a subfolder, with their types; none if it does not exist.
    pub(super) fn entries(&self, folder: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        match self.folder().and_then(|own| own.descend(folder)?.entries()) {
            Err(error) if gone(&error) => Ok(Vec::new()),
            found => found,
        }
    }

    /// Puts a file in place by atomic rename; only its owner may read it.
    pub(super) fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut written = Ok(());
        for _ in 0..TRIES {
            written = self.try_write(file, bytes);
            // A folder disappeared meanwhile, or another program took the name.
            let again =
                |error: &io::Error| gone(error) || error.kind() == io::ErrorKind::AlreadyExists;
            if !written.as_ref().is_err_and(again) {
                break;
            }
        }
        written
    }

    fn try_write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let folder = self.folder()?;
        let unfinished = folder.make(Path::new(UNFINISHED))?;
        let name = OsString::from(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let mut new = unfinished.create(&name)?;
        let (parent, end) = parts(file);
        let written = new
            .write_all(bytes)
            .and_then(|()| unfinished.rename(&name, &folder.make(parent)?, end));
        if written.is_err() {
            // Report the first error. A leftover file is removed at the next start.
            drop(unfinished.remove(&name));
        }
        written
    }

    /// Removes a file, and its folder if that is empty then. An absent file is no error.
    pub(super) fn remove(&self, file: &Path) -> io::Result<()> {
        let (parent, name) = parts(file);
        let folder = match self.folder().and_then(|folder| folder.descend(parent)) {
            Err(error) if gone(&error) => return Ok(()),
            folder => folder?,
        };
        folder.remove(name)?;
        let (above, last) = parts(parent);
        if above.iter().count() > 0 {
            // Usually fails, because the folder is not empty.
            drop(
                self.folder()
                    .and_then(|own| own.descend(above)?.remove_empty(last)),
            );
        }
        Ok(())
    }
}

/// Fails if a folder that is only read was not made by the agent. An absent or inaccessible folder is reported when it
/// is read.
pub(super) fn check_readable(path: &Path) -> io::Result<()> {
    match OpenFolder::open(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        Err(_) => Ok(()),
        Ok(folder) => check_mark(&folder),
    }
}

/// Opens a file of a folder that is only read; `None` if there is none. A link or a pipe does not count as a file.
pub(super) fn file_in(own: &Path, file: &Path) -> io::Result<Option<File>> {
    let (parent, name) = parts(file);
    match OpenFolder::open(own).and_then(|own| own.descend(parent)?.file(name)) {
        Err(error) if gone(&error) || error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        found => found.map(Some),
    }
}

/// Makes the folder or takes the existing one, and locks it.
fn take(path: &Path) -> io::Result<HeldFolder> {
    match rustix::fs::mkdir(path, MARKED) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = OpenFolder::open(path)?;
    let (owner, us) = (folder.stat()?.st_uid, geteuid().as_raw());
    if us != owner {
        return Err(refused(format!(
            "it belongs to the user {owner}, and the agent runs as {us}"
        )));
    }
    check_mark(&folder)?;
    folder.allow(MARKED)?;
    let lock = OpenFolder::open(path)?.into_file();
    lock.try_lock()?;
    check_entries(&folder, Path::new(""))?;
    let id = id(&folder)?;
    for part in [OBJECTS, PATCHES, STATUS, UNFINISHED] {
        folder.make(Path::new(part))?.allow(Mode::RWXU)?;
    }
    Ok(HeldFolder { id, _lock: lock })
}

/// Fails if the agent did not make the folder: then another user controls its content, and who reads it.
fn check_mark(folder: &OpenFolder) -> io::Result<()> {
    let is_marked = Mode::from_raw_mode(folder.stat()?.st_mode).contains(Mode::SVTX);
    if is_marked || folder.entries()?.is_empty() {
        return Ok(());
    }
    Err(refused(
        "the agent did not create it here: it came with a clone or a copy, and git may track the credentials in it; \
         remove it, the agent recreates it"
            .to_owned(),
    ))
}

/// Fails if the folder contains anything but regular files and folders.
fn check_entries(folder: &OpenFolder, path: &Path) -> io::Result<()> {
    for (name, kind) in folder.entries()? {
        let at = path.join(&name);
        match kind {
            FileType::Directory => check_entries(&folder.sub(&name)?, &at)?,
            FileType::RegularFile => {}
            FileType::Symlink => {
                return Err(refused(format!(
                    "`{}` in it is a link; remove it",
                    at.display()
                )));
            }
            _ => {
                return Err(refused(format!(
                    "`{}` in it is not a regular file; remove it",
                    at.display()
                )));
            }
        }
    }
    Ok(())
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Device and inode of a folder.
fn id(folder: &OpenFolder) -> io::Result<(u64, u64)> {
    let stat = folder.stat()?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The folder and the name of a file.
fn parts(file: &Path) -> (&Path, &OsStr) {
    (
        file.parent().unwrap_or(Path::new("")),
        file.file_name().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn refuses_a_second_agent_and_removes_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        let first = OwnFolder::open(&own).unwrap();
        assert_eq!(
            OwnFolder::open(&own).err().unwrap().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(first);
        std::fs::write(own.join("tmp/7"), "half").unwrap();
        let second = OwnFolder::open(&own).unwrap();
        assert_eq!(std::fs::read_dir(own.join("tmp")).unwrap().count(), 0);
        assert_eq!(
            std::fs::metadata(&own).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let file = Path::new("objects/n/Secret.a.yaml");
        second.write(file, b"x").unwrap();
        assert_eq!(
            std::fs::metadata(own.join(file))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        second.remove(file).unwrap();
        second.remove(file).unwrap();
        assert!(!own.join("objects/n").exists() && own.join("objects").exists());
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = OwnFolder::open(folder.path()).unwrap();
        std::fs::create_dir_all(folder.path().join("objects/taken/below")).unwrap();
        assert!(own.write(Path::new("objects/taken"), b"x").is_err());
        assert_eq!(
            std::fs::read_dir(folder.path().join("tmp"))
                .unwrap()
                .count(),
            0
        );
    }
}
