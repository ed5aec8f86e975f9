//! Links below the user's folder: which are followed, which need not be, and which may hide objects.

use super::{FilePlace, Layer, Tree, gone, is_manifest};
use std::io;
use std::path::{Path, PathBuf};

impl Tree {
    /// The path below the root of the file to which a user's link leads; `None` if nothing is missed without the link:
    /// it leads to a folder that is read where it is, into the agent's own folder, or to a file outside that it does
    /// not name as a manifest.
    ///
    /// # Errors
    /// When the link may hide objects. Outside the folder nothing is read: whoever wrote the folder may not read what
    /// the agent may.
    pub(super) fn target(&self, link: &FilePlace) -> io::Result<Option<PathBuf>> {
        let link_path = self.path(link);
        let path = link_path.canonicalize().map_err(|error| {
            // Unless the link itself is gone meanwhile.
            match gone(&error) && link_path.is_symlink() {
                true => io::Error::other("it is a link that leads nowhere"),
                false => error,
            }
        })?;
        if self.own.as_ref().is_some_and(|own| path.starts_with(own)) {
            return Ok(None);
        }
        match (path.strip_prefix(&self.root), path.is_dir()) {
            (Ok(inside), false) => Ok(Some(inside.to_owned())),
            (Ok(_), true) if self.place(&path).is_some() => Ok(None),
            (Ok(_), true) => Err(io::Error::other("it is a link to a hidden folder")),
            (Err(_), false) if !is_manifest(&link.path) => Ok(None),
            (Err(_), _) => Err(io::Error::other(
                "it is a link that leads out of the folder",
            )),
        }
    }

    /// Why there is no folder at a user's path where a link or a file is. What was in the folder is gone from there,
    /// unless a link may hide it.
    pub(super) fn no_folder(&self, path: &Path, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::InvalidInput {
            return error;
        }
        let parts = path.ancestors();
        let parts: Vec<_> = parts
            .map(|part| FilePlace::new(Layer::User, part))
            .collect();
        // From the top, without the root.
        let mut parts = parts.iter().rev().skip(1);
        let link = parts.find(|part| self.path(part).is_symlink());
        match link.map(|link| (link, self.target(link))) {
            Some((link, Err(error))) if *link.path != *path => {
                io::Error::other(format!("`{link}`: {error}"))
            }
            Some((_, Err(error))) => error,
            Some((_, Ok(_))) | None => io::ErrorKind::NotADirectory.into(),
        }
    }
}

/// Whether to scan a user's path as a folder. A link may have taken the place of one.
pub(in crate::directory) fn may_be_folder(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|about| about.is_dir() || about.is_symlink() && !is_manifest(path))
}
