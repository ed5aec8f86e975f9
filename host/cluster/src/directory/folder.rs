//! An open folder: everything below it is reached by name from its descriptor, never through a link.
//! Opens, changes and removes only regular files and folders.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Only the owner has access.
const PRIVATE: Mode = Mode::RWXU;
/// Opens only a folder, and no link to one.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Opens a folder only to reach what is in it: where the system can, that needs no right to list the folder, and tells
/// nobody who watches it.
#[cfg(target_os = "linux")]
const PASS: OFlags = FOLDER.union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = FOLDER;

/// An open folder.
#[derive(Debug)]
pub(super) struct OpenFolder(OwnedFd);

impl OpenFolder {
    /// Opens a folder by its path. Follows links before its name, but not a link in place of the folder.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::open_to(FOLDER, path)
    }

    /// Opens a folder in this one.
    pub(super) fn sub(&self, name: &OsStr) -> io::Result<Self> {
        self.sub_to(FOLDER, name)
    }

    /// Opens the folder at a path below another one, to reach what is in it. The other folder and every part of the
    /// path must be real folders.
    pub(super) fn reach(root: &Path, path: &Path) -> io::Result<Self> {
        path.iter()
            .try_fold(Self::open_to(PASS, root)?, |folder, name| {
                folder.sub_to(PASS, name)
            })
    }

    fn open_to(how: OFlags, path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let look = || rustix::fs::lstat(path);
        rustix::fs::open(path, how, Mode::empty())
            .map(Self)
            .map_err(|error| refused(error, name, look))
    }

    fn sub_to(&self, how: OFlags, name: &OsStr) -> io::Result<Self> {
        let opened = rustix::fs::openat(&self.0, name, how, Mode::empty());
        opened
            .map(Self)
            .map_err(|error| refused(error, name, || self.stat_at(name)))
    }

    /// Opens the folder at a path below this one; this folder itself for an empty path.
    pub(super) fn descend(&self, path: &Path) -> io::Result<Self> {
        path.iter()
            .try_fold(self.again()?, |folder, name| folder.sub(name))
    }

    /// Like `descend`, but makes missing folders.
    pub(super) fn make(&self, path: &Path) -> io::Result<Self> {
        path.iter().try_fold(self.again()?, |folder, name| {
            match rustix::fs::mkdirat(&folder.0, name, PRIVATE) {
                Ok(()) | Err(Errno::EXIST) => folder.sub(name),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// The same folder with another descriptor.
    fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// The metadata of this folder.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.0)?)
    }

    /// Sets the permissions of this folder.
    pub(super) fn allow(&self, mode: Mode) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, mode)?)
    }

    /// The folder as a file, to lock it.
    pub(super) fn into_file(self) -> File {
        self.0.into()
    }

    /// The metadata of an entry of this folder. Does not follow a link.
    pub(super) fn stat_at(&self, name: &OsStr) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Every entry of this folder: its name and its type.
    pub(super) fn entries(&self) -> io::Result<Vec<(OsString, FileType)>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match self.stat_at(name) {
                    Err(Errno::NOENT) => continue,
                    stat => FileType::from_raw_mode(stat?.st_mode),
                },
                known => known,
            };
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }

    /// Opens a regular file for reading. Does not block: a pipe is refused like a link.
    pub(super) fn file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty());
        let file = File::from(opened.map_err(|error| refused(error, name, || self.stat_at(name)))?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(unfit(name, "it is not a regular file"))
        }
    }

    /// Creates a file that must not exist yet; only its owner may read it.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Moves a file of this folder to another folder and name. Replaces an existing file; a link there is replaced
    /// itself.
    pub(super) fn rename(&self, name: &OsStr, folder: &Self, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &folder.0, to)?)
    }

    /// Removes a regular file; an absent one is no error.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        let removed = match self.stat_at(name) {
            Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_file() => {
                return Err(unfit(name, "it is not a regular file"));
            }
            Ok(_) => rustix::fs::unlinkat(&self.0, name, AtFlags::empty()),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty folder.
    pub(super) fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }
}

/// Why an entry was not opened. The system's error for a link does not say that it is a link.
fn refused(
    error: Errno,
    name: &OsStr,
    look: impl FnOnce() -> rustix::io::Result<Stat>,
) -> io::Error {
    if !matches!(error, Errno::NOTDIR | Errno::LOOP) {
        return error.into();
    }
    match look().map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Symlink) => unfit(
            name,
            "it is a link; the agent does not follow links in its own folder",
        ),
        Ok(_) => unfit(name, "it is not a folder"),
        Err(error) => error.into(),
    }
}

/// The error for an entry that the agent did not make.
fn unfit(name: &OsStr, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("`{}`: {why}", name.display()),
    )
}
