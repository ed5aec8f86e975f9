//! Decides which files of the tree count, and for which layer; lists and opens them.

mod link;
mod root;
mod stamp;

pub(super) use link::may_be_folder;
pub(super) use root::own_folder;
pub(super) use stamp::FileStamp;

use super::folder::OpenFolder;
use super::names::shown;
use rustix::fs::{FileType, Stat};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Folder of whole objects, in the agent's own folder.
pub(super) const OBJECTS: &str = "objects";
/// Folder of field patches, in the agent's own folder.
pub(super) const PATCHES: &str = "patches";

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
pub(super) struct FilePlace {
    /// The role of the file.
    pub(super) layer: Layer,
    /// Relative path.
    pub(super) path: Arc<Path>,
}

impl FilePlace {
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
impl fmt::Display for FilePlace {
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
        f.write_str(folder)?;
        f.write_str(&shown(path))
    }
}

/// The folders of a directory.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The path of the user's folder as it was given, absolute. It may lead through links.
    pub(super) given: PathBuf,
    /// The user's folder to which it leads, or that of the one file; canonical.
    pub(super) root: PathBuf,
    /// The agent's own folder, if there is one; canonical.
    pub(super) own: Option<PathBuf>,
}

/// A step of a walk.
pub(super) enum WalkStep<'a> {
    /// A folder is about to be listed.
    Folder(&'a Path),
    /// A file that counts.
    File(FilePlace, Option<FileStamp>),
    /// A folder that cannot be listed, or a link that may lead to one.
    Closed(FilePlace, io::Error),
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
    pub(super) fn path(&self, place: &FilePlace) -> PathBuf {
        let base = self.base(place.layer).unwrap_or_default();
        if place.path.as_os_str().is_empty() {
            base
        } else {
            base.join(&place.path)
        }
    }

    /// The place of a path; `None` if it is outside the tree, hidden, or in another folder of the agent.
    pub(super) fn place(&self, path: &Path) -> Option<FilePlace> {
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
            return Some(FilePlace::new(layer, parts.as_path()));
        }
        let inside = path.strip_prefix(&self.root).ok()?;
        let shown = inside.components().all(|part| !hidden(part.as_os_str()));
        shown.then(|| FilePlace::new(Layer::User, inside))
    }

    /// Calls `each` for every folder and file of every layer.
    pub(super) fn walk_all(&self, each: &mut dyn FnMut(WalkStep<'_>)) {
        for folder in FilePlace::roots() {
            if self.base(folder.layer).is_some() {
                self.walk(&folder, each);
            }
        }
    }

    /// Calls `each` for a folder and everything below it; skips what disappears meanwhile. Does not follow links to
    /// folders.
    pub(super) fn walk(&self, folder: &FilePlace, each: &mut dyn FnMut(WalkStep<'_>)) {
        let is_root = folder.layer == Layer::User && folder.path.as_os_str().is_empty();
        match self.list(folder, each) {
            Err(error) if gone(&error) && !is_root => {}
            Err(error) => each(WalkStep::Closed(folder.clone(), error)),
            Ok(folders) => folders.iter().for_each(|folder| self.walk(folder, each)),
        }
    }

    /// Calls `each` for a folder and the files in it; returns the folders in it.
    fn list(
        &self,
        folder: &FilePlace,
        each: &mut dyn FnMut(WalkStep<'_>),
    ) -> io::Result<Vec<FilePlace>> {
        let path = self.path(folder);
        if folder.layer != Layer::User {
            return self.list_own(folder, &path, each);
        }
        // Open first, so that only a real folder is watched.
        let open = self.users_folder(&folder.path)?;
        each(WalkStep::Folder(&path));
        let mut folders = Vec::new();
        for (name, kind) in open.entries()? {
            let Some(place) = self.place(&path.join(name)) else {
                continue;
            };
            if kind == FileType::Directory {
                folders.push(place);
                continue;
            }
            if kind == FileType::Symlink && !is_manifest(&place.path) {
                match self.target(&place) {
                    Err(error) if !gone(&error) => each(WalkStep::Closed(place, error)),
                    Ok(_) | Err(_) => {}
                }
                continue;
            }
            let look = |folder: &OpenFolder, name: &OsStr| Ok(folder.stat_at(name)?);
            match self.users_file(&open, &place, look) {
                Ok(Some(stat)) if is_file(&stat) => {
                    each(WalkStep::File(place, FileStamp::of_stat(&stat)));
                }
                // Reading it fails again, and tells why.
                Err(error) if !gone(&error) => each(WalkStep::File(place, None)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(folders)
    }

    /// The same in the agent's own folder, where links are ignored.
    fn list_own(
        &self,
        folder: &FilePlace,
        path: &Path,
        each: &mut dyn FnMut(WalkStep<'_>),
    ) -> io::Result<Vec<FilePlace>> {
        // Open first, so that only a real folder is watched.
        let open = self.own_folder(folder.layer, &folder.path)?;
        each(WalkStep::Folder(path));
        let mut folders = Vec::new();
        for (name, kind) in open.entries()? {
            let place = FilePlace::new(folder.layer, &folder.path.join(&name));
            match kind {
                FileType::Directory => folders.push(place),
                FileType::RegularFile if is_manifest(&place.path) => {
                    if let Ok(stat) = open.stat_at(&name) {
                        each(WalkStep::File(place, FileStamp::of_stat(&stat)));
                    }
                }
                _ => {}
            }
        }
        Ok(folders)
    }

    /// Opens a folder at or below that of an own layer.
    fn own_folder(&self, layer: Layer, path: &Path) -> io::Result<OpenFolder> {
        let own = self.own.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let name = if layer == Layer::Patch {
            PATCHES
        } else {
            OBJECTS
        };
        OpenFolder::open(own)?.descend(&Path::new(name).join(path))
    }

    /// Opens a user's folder to list it.
    fn users_folder(&self, path: &Path) -> io::Result<OpenFolder> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let open = self.reach(parent)?.sub(name);
                open.map_err(|error| self.no_folder(path, error))
            }
            _ => OpenFolder::open(&self.root).map_err(|error| self.no_folder(path, error)),
        }
    }

    /// Opens a user's folder to reach a file in it. A link in place of a folder is not followed: the folder is gone, or
    /// it would be read twice, or it leads out of the root.
    fn reach(&self, path: &Path) -> io::Result<OpenFolder> {
        OpenFolder::reach(&self.root, path).map_err(|error| self.no_folder(path, error))
    }

    /// Calls `act` with the folder and the name of a user's file that counts: it has the name of a manifest, and is a
    /// regular file in this folder, or a link to something in the user's folder. `None` for any other file.
    ///
    /// # Errors
    /// When a link may hide objects.
    fn users_file<T>(
        &self,
        folder: &OpenFolder,
        place: &FilePlace,
        act: impl FnOnce(&OpenFolder, &OsStr) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let name = place.path.file_name();
        let Some(name) = name.filter(|_| is_manifest(&place.path)) else {
            return Ok(None);
        };
        match FileType::from_raw_mode(folder.stat_at(name)?.st_mode) {
            FileType::RegularFile => act(folder, name).map(Some),
            FileType::Symlink => {
                let target = self.target(place)?;
                let target = target.as_ref();
                let parts = target.and_then(|path| Some((path.parent()?, path.file_name()?)));
                // What takes the place of the target meanwhile is not followed again.
                let act = |(parent, name)| act(&self.reach(parent)?, name);
                parts.map(act).transpose()
            }
            _ => Ok(None),
        }
    }

    /// Opens a file that counts, and returns its metadata; `None` for any other file. Does not block on a pipe that
    /// takes its place meanwhile.
    pub(super) fn open(&self, place: &FilePlace) -> io::Result<Option<(File, Metadata)>> {
        let (Some(folder), Some(name)) = (place.path.parent(), place.path.file_name()) else {
            return Ok(None);
        };
        if !is_manifest(&place.path) {
            return Ok(None);
        }
        let file = if place.layer == Layer::User {
            let open = |folder: &OpenFolder, name: &OsStr| match folder.file(name) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
                file => file.map(Some),
            };
            let file = self.users_file(&self.reach(folder)?, place, open)?;
            let Some(file) = file.flatten() else {
                return Ok(None);
            };
            file
        } else {
            self.own_folder(place.layer, folder)?.file(name)?
        };
        let metadata = file.metadata()?;
        Ok(Some((file, metadata)))
    }
}

/// Whether it is the metadata of a regular file.
fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
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
            given: "/r".into(),
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
            let expected = expected.map(|(layer, path)| FilePlace::new(layer, Path::new(path)));
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
