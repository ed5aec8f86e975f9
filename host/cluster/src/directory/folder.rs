//! A folder of the agent's own, open: what lies below it is reached by name from its descriptor, never through a link.
//! Never opens, changes or removes anything but regular files and folders.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Only its owner may enter.
const PRIVATE: Mode = Mode::RWXU;
/// A folder that is opened must be one, and no link to one.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder by its path. Links before its name are followed, its name is not.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let look = || rustix::fs::lstat(path);
        rustix::fs::open(path, FOLDER, Mode::empty()).map(Self).map_err(|error| refused(error, name, look))
    }

    /// Opens a folder in this one.
    pub(super) fn sub(&self, name: &OsStr) -> io::Result<Self> {
        let opened = rustix::fs::openat(&self.0, name, FOLDER, Mode::empty());
        opened.map(Self).map_err(|error| refused(error, name, || self.look(name)))
    }

    /// Opens the folder at a path of names below this one; this one itself when there are none.
    pub(super) fn descend(&self, path: &Path) -> io::Result<Self> {
        path.iter().try_fold(self.again()?, |folder, name| folder.sub(name))
    }

    /// The same, and makes what is not there.
    pub(super) fn make(&self, path: &Path) -> io::Result<Self> {
        path.iter().try_fold(self.again()?, |folder, name| match rustix::fs::mkdirat(&folder.0, name, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => folder.sub(name),
            Err(error) => Err(error.into()),
        })
    }

    /// The same folder under one more descriptor.
    fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// What this folder is.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.0)?)
    }

    /// Sets who may do what in this folder.
    pub(super) fn allow(&self, mode: Mode) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, mode)?)
    }

    /// The folder as a file, to lock it.
    pub(super) fn into_file(self) -> File {
        self.0.into()
    }

    /// What lies in this folder under a name; a link counts as itself.
    pub(super) fn look(&self, name: &OsStr) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Every name in this folder, with what it is.
    pub(super) fn entries(&self) -> io::Result<Vec<(OsString, FileType)>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match self.look(name) {
                    Err(Errno::NOENT) => continue,
                    stat => FileType::from_raw_mode(stat?.st_mode),
                },
                known => known,
            };
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }

    /// Opens a regular file to read it. Never waits: a pipe is refused like a link.
    pub(super) fn file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty());
        let file = File::from(opened.map_err(|error| refused(error, name, || self.look(name)))?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(unfit(name, "it is no regular file")) }
    }

    /// Makes a file that is not there yet; only its owner may read it.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Gives a file of this folder a name in another, in place of what has it there; a link there is replaced itself.
    pub(super) fn rename(&self, name: &OsStr, folder: &Self, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &folder.0, to)?)
    }

    /// Removes a regular file; nothing there is no error.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        let removed = match self.look(name) {
            Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_file() => {
                return Err(unfit(name, "it is no regular file"));
            }
            Ok(_) => rustix::fs::unlinkat(&self.0, name, AtFlags::empty()),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a folder when nothing is in it.
    pub(super) fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }
}

/// Why something was not opened: the system's words for a link do not say that it is one.
fn refused(error: Errno, name: &OsStr, look: impl FnOnce() -> rustix::io::Result<Stat>) -> io::Error {
    if !matches!(error, Errno::NOTDIR | Errno::LOOP) {
        return error.into();
    }
    match look().map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Symlink) => unfit(name, "it is a link, and the agent follows none in its own folder"),
        Ok(_) => unfit(name, "it is no folder"),
        Err(error) => error.into(),
    }
}

/// Something in the way of what is ours.
fn unfit(name: &OsStr, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("`{}`: {why}", name.display()))
}
