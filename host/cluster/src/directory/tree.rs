//! Decides which files of the tree count, and for which layer; lists and opens them.

use super::folder::Folder;
use rustix::fs::{FileType, OFlags, Stat};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use transom_core::redact::visible::visible;

/// Folder of whole objects, in the agent's own folder.
pub(super) const OBJECTS: &str = "objects";
/// Folder of field patches, in the agent's own folder.
pub(super) const PATCHES: &str = "patches";
/// The least age of a modification time for which an equal stamp proves, on any system, that nothing changed.
const TICK: Duration = Duration::from_millis(20);

/// The role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Layer {
    /// A manifest of the user.
    User,
    /// A whole object that the agent made.
    Made,
    /// Fields that the agent laid over an object of the user.
    Patch,
}

/// A file: its layer and its path below that layer's folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// The role of the file.
    pub(super) layer: Layer,
    /// Relative path.
    pub(super) path: Arc<Path>,
}

impl Place {
    /// A file of a layer.
    pub(super) fn new(layer: Layer, path: &Path) -> Self {
        Self {
            layer,
            path: path.into(),
        }
    }

    /// The folders of all layers.
    pub(super) fn roots() -> Vec<Self> {
        [Layer::User, Layer::Made, Layer::Patch]
            .map(|layer| Self::new(layer, Path::new("")))
            .to_vec()
    }
}

/// For messages: escapes invisible characters.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = match self.layer {
            Layer::User => "",
            Layer::Made => "own objects/",
            Layer::Patch => "own patches/",
        };
        let path = if self.path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.path
        };
        write!(f, "{folder}{}", visible(&path.to_string_lossy()))
    }
}

/// Distinguishes a changed file from an unchanged one without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: SystemTime,
    bytes: u64,
    /// Another file with the same name may have the same time and size.
    inode: u64,
}

impl Stamp {
    /// The stamp of a file; `None` if it changed so recently that an equal stamp would prove nothing.
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        let modified = metadata.modified().ok()?;
        let settled = SystemTime::now()
            .duration_since(modified)
            .is_ok_and(|age| age >= TICK);
        settled.then(|| Self {
            modified,
            bytes: metadata.len(),
            inode: metadata.ino(),
        })
    }

    /// The same for an own file, from its metadata without opening it.
    fn of_own(stat: &Stat) -> Option<Self> {
        let (seconds, nanos) = (
            u64::try_from(stat.st_mtime).ok()?,
            u32::try_from(stat.st_mtime_nsec).ok()?,
        );
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))?;
        let settled = SystemTime::now()
            .duration_since(modified)
            .is_ok_and(|age| age >= TICK);
        settled.then(|| Self {
            modified,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            inode: stat.st_ino,
        })
    }
}

/// The folders of a directory.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The user's folder, or the one file; canonical.
    pub(super) root: PathBuf,
    /// The agent's own folder, if there is one; canonical.
    pub(super) own: Option<PathBuf>,
}

/// A step of a walk.
pub(super) enum Step<'a> {
    /// A folder is about to be listed.
    Folder(&'a Path),
    /// A file that counts.
    File(Place, Option<Stamp>),
    /// A folder that cannot be listed.
    Closed(Place, io::Error),
}

impl Tree {
    /// The folder of a layer.
    fn base(&self, layer: Layer) -> Option<PathBuf> {
        match layer {
            Layer::User => Some(self.root.clone()),
            Layer::Made => self.own.as_ref().map(|own| own.join(OBJECTS)),
            Layer::Patch => self.own.as_ref().map(|own| own.join(PATCHES)),
        }
    }

    /// The path of a file.
    pub(super) fn path(&self, place: &Place) -> PathBuf {
        let base = self.base(place.layer).unwrap_or_default();
        if place.path.as_os_str().is_empty() {
            base
        } else {
            base.join(&place.path)
        }
    }

    /// The place of a path; `None` if it is outside the tree, hidden, or in another folder of the agent.
    pub(super) fn place(&self, path: &Path) -> Option<Place> {
        if let Some(inside) = self
            .own
            .as_ref()
            .and_then(|own| path.strip_prefix(own).ok())
        {
            let mut parts = inside.components();
            let layer = match parts.next() {
                Some(Component::Normal(name)) if name == OBJECTS => Layer::Made,
                Some(Component::Normal(name)) if name == PATCHES => Layer::Patch,
                _ => return None,
            };
            return Some(Place::new(layer, parts.as_path()));
        }
        let inside = path.strip_prefix(&self.root).ok()?;
        let shown = inside.components().all(|part| !hidden(part.as_os_str()));
        shown.then(|| Place::new(Layer::User, inside))
    }

    /// Calls `each` for every folder and file of every layer.
    pub(super) fn walk_all(&self, each: &mut dyn FnMut(Step<'_>)) {
        for folder in Place::roots() {
            if self.base(folder.layer).is_some() {
                self.walk(&folder, each);
            }
        }
    }

    /// Calls `each` for a folder and everything below it; skips what disappears meanwhile. Does not follow links to
    /// folders.
    pub(super) fn walk(&self, folder: &Place, each: &mut dyn FnMut(Step<'_>)) {
        let is_root = folder.layer == Layer::User && folder.path.as_os_str().is_empty();
        match self.list(folder, each) {
            Err(error) if gone(&error) && !is_root => {}
            Err(error) => each(Step::Closed(folder.clone(), error)),
            Ok(folders) => folders.iter().for_each(|folder| self.walk(folder, each)),
        }
    }

    /// Calls `each` for a folder and the files in it; returns the folders in it.
    fn list(&self, folder: &Place, each: &mut dyn FnMut(Step<'_>)) -> io::Result<Vec<Place>> {
        let path = self.path(folder);
        if folder.layer != Layer::User {
            return self.list_own(folder, &path, each);
        }
        each(Step::Folder(&path));
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(&path)?.flatten() {
            let Some(place) = self.place(&entry.path()) else {
                continue;
            };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(place);
                continue;
            }
            match self.users_file(&place) {
                Ok(Some((_, stamp))) => each(Step::File(place, stamp)),
                // Reading it fails again, and tells why.
                Err(error) if !gone(&error) => each(Step::File(place, None)),
                Ok(None) | Err(_) => {}
            }
        }
        Ok(folders)
    }

    /// The same in the agent's own folder, where links are ignored.
    fn list_own(
        &self,
        folder: &Place,
        path: &Path,
        each: &mut dyn FnMut(Step<'_>),
    ) -> io::Result<Vec<Place>> {
        // Open first, so that only a real folder is watched.
        let open = self.own_folder(folder.layer, &folder.path)?;
        each(Step::Folder(path));
        let mut folders = Vec::new();
        for (name, kind) in open.entries()? {
            let place = Place::new(folder.layer, &folder.path.join(&name));
            match kind {
                FileType::Directory => folders.push(place),
                FileType::RegularFile if is_manifest(&place.path) => {
                    if let Ok(stat) = open.look(&name) {
                        each(Step::File(place, Stamp::of_own(&stat)));
                    }
                }
                _ => {}
            }
        }
        Ok(folders)
    }

    /// Opens a folder at or below that of an own layer.
    fn own_folder(&self, layer: Layer, path: &Path) -> io::Result<Folder> {
        let own = self.own.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let name = if layer == Layer::Patch {
            PATCHES
        } else {
            OBJECTS
        };
        Folder::open(own)?.descend(&Path::new(name).join(path))
    }

    /// The real path and the stamp of a user's file that counts: it has the name of a manifest and is a regular file,
    /// or a link to one in the user's folder. `None` for any other file.
    ///
    /// # Errors
    /// When a link leads out of the folder: whoever wrote the folder may not read what the agent may.
    fn users_file(&self, place: &Place) -> io::Result<Option<(PathBuf, Option<Stamp>)>> {
        let mut path = self.path(place);
        if !is_manifest(&path) {
            return Ok(None);
        }
        let mut metadata = std::fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            path = path.canonicalize()?;
            if self.own.as_ref().is_some_and(|own| path.starts_with(own)) {
                return Ok(None);
            }
            if !path.starts_with(&self.root) {
                return Err(io::Error::other(
                    "it is a link that leads out of the folder",
                ));
            }
            metadata = std::fs::metadata(&path)?;
        }
        Ok(metadata.is_file().then(|| (path, Stamp::of(&metadata))))
    }

    /// Opens a file that counts, and returns its metadata; `None` for any other file. Does not block on a pipe that
    /// takes its place meanwhile, because the opened file is checked once more.
    pub(super) fn open(&self, place: &Place) -> io::Result<Option<(File, Metadata)>> {
        let file = if place.layer == Layer::User {
            let Some((path, _)) = self.users_file(place)? else {
                return Ok(None);
            };
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            File::options()
                .read(true)
                .custom_flags(nonblocking)
                .open(path)?
        } else {
            let (Some(folder), Some(name)) = (place.path.parent(), place.path.file_name()) else {
                return Ok(None);
            };
            if !is_manifest(&place.path) {
                return Ok(None);
            }
            self.own_folder(place.layer, folder)?.file(name)?
        };
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then_some((file, metadata)))
    }

    /// Whether the root exists. While it does not, no file in it counts as gone.
    pub(super) fn is_there(&self) -> bool {
        self.root.is_dir()
    }
}

/// Whether an error says that nothing exists at the path.
pub(super) fn gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Names that start with a dot are hidden, as usual; so are the lock files of editors.
fn hidden(name: &OsStr) -> bool {
    matches!(name.as_encoded_bytes().first(), Some(b'.' | b'#'))
}

/// Whether a file has the name of a manifest; backup files of editors have other extensions.
pub(super) fn is_manifest(path: &Path) -> bool {
    let known = path
        .extension()
        .is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
    known && path.file_name().is_some_and(|name| !hidden(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree {
            root: "/r".into(),
            own: Some("/r/.transom".into()),
        }
    }

    #[test]
    fn classifies_paths() {
        for (path, expected) in [
            ("/r/a/b.yaml", Some((Layer::User, "a/b.yaml"))),
            ("/r", Some((Layer::User, ""))),
            ("/r/.git/b.yaml", None),
            ("/r/a/.b.yaml", None),
            (
                "/r/.transom/objects/n/Secret.a.yaml",
                Some((Layer::Made, "n/Secret.a.yaml")),
            ),
            ("/r/.transom/patches", Some((Layer::Patch, ""))),
            ("/r/.transom/status/p/a.yaml", None),
            ("/r/.transom/tmp/1", None),
            ("/elsewhere/a.yaml", None),
        ] {
            let expected = expected.map(|(layer, path)| Place::new(layer, Path::new(path)));
            assert_eq!(tree().place(Path::new(path)), expected, "{path}");
            if let Some(place) = expected {
                assert_eq!(tree().path(&place), Path::new(path));
            }
        }
    }

    #[test]
    fn recognises_manifests_by_name() {
        for name in ["a.yaml", "a.yml", "a.b.json"] {
            assert!(is_manifest(Path::new(name)), "{name}");
        }
        for name in [
            "a",
            "a.yaml~",
            ".a.yaml.swp",
            ".#a.yaml",
            "#a.yaml#",
            "a.yaml.tmp",
            ".yaml",
            "4913",
            "a.txt",
        ] {
            assert!(!is_manifest(Path::new(name)), "{name}");
        }
    }
}
