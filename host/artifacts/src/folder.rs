//! Opens files below a folder by descriptor: links may lead around inside the folder but never out of it. Reads only
//! regular files, and never blocks on a pipe.

use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, open, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path};

/// How many links one path may go through.
const MAX_LINKS: usize = 32;

/// With these flags a pipe opens without a writer, a terminal does not become the controlling one, and opening a link
/// fails, so that [`Folder::at`] follows it itself.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// A folder, held open. Everything that is opened through it lies below it, whatever links, `..` or names the path
/// has, and even if another process exchanges folders meanwhile.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A pipe, a socket, a device.
    Special,
}

impl FileKind {
    fn of(file_type: FileType) -> Self {
        match file_type {
            FileType::Directory => Self::Folder,
            FileType::RegularFile => Self::File,
            _ => Self::Special,
        }
    }
}

/// Identifies the content of a path without reading it, as its fingerprint: replacing or changing the file changes it,
/// even when size and time of modification stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIdentity {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Device and inode: two paths with the same pair lead to the same file.
    pub fn identity(&self) -> (u64, u64) {
        self.file
    }
}

/// The path leads out of its folder.
#[derive(Debug, thiserror::Error)]
#[error("the path leads out of the folder")]
struct Outside;

/// Whether an error says that a path leads out of its folder.
pub fn leads_out(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Outside>)
}

impl Folder {
    /// Opens a folder. Follows links on the way to it, because the caller chose that path.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: open(path, flags, Mode::empty())?,
        })
    }

    /// The kind and the fingerprint of what lies at a path below the folder.
    ///
    /// # Errors
    /// When nothing is there, or the path leads out.
    pub fn stat(&self, path: &Path) -> io::Result<(FileKind, FileIdentity)> {
        about(&self.at(path)?)
    }

    /// The bytes of a regular file, and its fingerprint.
    ///
    /// # Errors
    /// When it is not a regular file, cannot be read, leads out, or has more bytes than `most` (`FileTooLarge`).
    pub fn read(&self, path: &Path, most: u64) -> io::Result<(Vec<u8>, FileIdentity)> {
        let file = self.at(path)?;
        let (kind, fingerprint) = about(&file)?;
        if kind != FileKind::File {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(most.saturating_add(1))
            .read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true => Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is larger than {most} bytes"),
            )),
            false => Ok((bytes, fingerprint)),
        }
    }

    /// The names in a folder below this one, sorted; each with its kind, where the directory entry tells it.
    ///
    /// # Errors
    /// When it is no folder, leads out, or has more than `most` names.
    pub fn names(&self, path: &Path, most: usize) -> io::Result<Vec<(OsString, Option<FileKind>)>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.at(path)?)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == most {
                return Err(io::Error::other(format!("it has more than {most} entries")));
            }
            let kind = match entry.file_type() {
                FileType::Symlink | FileType::Unknown => None,
                known => Some(FileKind::of(known)),
            };
            names.push((name, kind));
        }
        names.sort();
        Ok(names)
    }

    /// Opens a path part by part. Every folder on the way stays open, so that `..` returns to the folder that the
    /// walk came from.
    fn at(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut way: Vec<OwnedFd> = Vec::new();
        let mut left = parts(path)?;
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                way.pop().ok_or_else(outside)?;
                continue;
            }
            let folder = way.last().unwrap_or(&self.root).as_fd();
            match openat(folder, &part, FLAGS, Mode::empty()) {
                Ok(found) => way.push(found),
                Err(Errno::LOOP) if links < MAX_LINKS => {
                    links += 1;
                    let target = readlinkat(folder, &part, Vec::new())?;
                    left.extend(parts(Path::new(OsStr::from_bytes(target.as_bytes())))?);
                }
                Err(error) => return Err(error.into()),
            }
        }
        way.pop().map_or_else(|| self.root.try_clone(), Ok)
    }
}

/// The parts of a relative path, the last one first.
fn parts(path: &Path) -> io::Result<Vec<OsString>> {
    let part = |part: Component<'_>| match part {
        Component::Prefix(_) | Component::RootDir => Some(Err(outside())),
        Component::CurDir => None,
        Component::ParentDir => Some(Ok("..".into())),
        Component::Normal(name) => Some(Ok(name.to_owned())),
    };
    let mut parts = path
        .components()
        .filter_map(part)
        .collect::<io::Result<Vec<_>>>()?;
    parts.reverse();
    Ok(parts)
}

fn outside() -> io::Error {
    io::Error::other(Outside)
}

fn about(file: &OwnedFd) -> io::Result<(FileKind, FileIdentity)> {
    let stat = fstat(file)?;
    let kind = FileKind::of(FileType::from_raw_mode(stat.st_mode));
    let fingerprint = FileIdentity {
        file: (stat.st_dev, stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        modified: (
            stat.st_mtime,
            i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        ),
        changed: (
            stat.st_ctime,
            i64::try_from(stat.st_ctime_nsec).unwrap_or_default(),
        ),
    };
    Ok((kind, fingerprint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A folder `in` with files and links, beside files that must not be reached.
    fn tree() -> (tempfile::TempDir, Folder) {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("in");
        fs::create_dir_all(inner.join("sub/..data.1")).unwrap();
        for (path, text) in [
            ("secret", "s"),
            ("in/a", "a"),
            ("in/sub/b", "b"),
            ("in/sub/..data.1/c", "c"),
        ] {
            fs::write(outer.path().join(path), text).unwrap();
        }
        for (target, link) in [
            ("sub/b", "to-file"),
            ("..data.1", "sub/..data"),
            ("..data/c", "sub/c"),
            ("sub/../a", "around"),
            ("../secret", "out"),
            ("sub/../../secret", "out-by-the-back"),
            ("/etc/passwd", "out-from-the-top"),
            ("..", "up"),
            ("loop", "loop"),
            ("nothing", "dangling"),
        ] {
            symlink(target, inner.join(link)).unwrap();
        }
        symlink(inner.join("a"), inner.join("absolute")).unwrap();
        let folder = Folder::open(&inner).unwrap();
        (outer, folder)
    }

    #[test]
    fn follows_links_inside_but_never_outside() {
        let (_outer, folder) = tree();
        let read = |path: &str| {
            folder
                .read(Path::new(path), 9)
                .map(|(bytes, _)| String::from_utf8(bytes).unwrap())
                .map_err(|error| leads_out(&error))
        };
        for (path, found) in [
            ("a", Ok("a")),
            ("./sub/b", Ok("b")),
            ("sub/../a", Ok("a")),
            ("to-file", Ok("b")),
            ("sub/c", Ok("c")),
            ("around", Ok("a")),
            ("out", Err(true)),
            ("out-by-the-back", Err(true)),
            ("out-from-the-top", Err(true)),
            ("absolute", Err(true)),
            ("up/in/a", Err(true)),
            ("../in/a", Err(true)),
            ("/etc/passwd", Err(true)),
            ("/", Err(true)),
            ("loop", Err(false)),
            ("dangling", Err(false)),
            ("nothing", Err(false)),
            ("a/b", Err(false)),
            ("sub", Err(false)),
        ] {
            assert_eq!(read(path), found.map(str::to_owned), "{path}");
        }
    }

    #[test]
    fn never_waits_for_a_pipe_and_bounds_sizes() {
        let (outer, folder) = tree();
        let pipe = outer.path().join("in/pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(folder.stat(Path::new("pipe")).unwrap().0, FileKind::Special);
        let refused = folder.read(Path::new("pipe"), 9).unwrap_err();
        assert_eq!(refused.to_string(), "it is not a regular file");
        fs::write(outer.path().join("in/a"), "0123456789").unwrap();
        assert_eq!(
            folder.read(Path::new("a"), 9).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert!(folder.names(Path::new("."), 2).is_err());
        let names = folder.names(Path::new("sub"), 9).unwrap();
        let kinds = [
            ("..data", None),
            ("..data.1", Some(FileKind::Folder)),
            ("b", Some(FileKind::File)),
            ("c", None),
        ];
        assert_eq!(names, kinds.map(|(name, kind)| (name.into(), kind)));
    }

    #[test]
    fn a_new_file_of_equal_size_and_time_has_another_fingerprint() {
        let (outer, folder) = tree();
        let path = outer.path().join("in/a");
        let (_, first) = folder.stat(Path::new("a")).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        // Once replaced, once written over.
        let other = outer.path().join("other");
        for to in [&other, &path] {
            fs::write(to, "b").unwrap();
            File::options()
                .write(true)
                .open(to)
                .unwrap()
                .set_modified(time)
                .unwrap();
            fs::rename(to, &path).unwrap();
            let (_, fingerprint) = folder.stat(Path::new("a")).unwrap();
            assert!(
                fingerprint != first
                    && (fingerprint.size, fingerprint.modified) == (first.size, first.modified)
            );
        }
    }
}
