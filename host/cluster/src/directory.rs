//! A cluster that is a directory of manifests, with the agent's own folder laid over them.
//! The agent never rewrites a user's file.

mod apply;
mod change;
mod cluster;
mod compact;
mod error;
mod feed;
mod folder;
mod load;
mod manifest;
mod merge;
mod names;
mod own;
mod patch;
mod settle;
mod shared;
mod signals;
mod slot;
mod start;
mod status;
mod store;
mod tree;
mod watch;
mod words;

pub use crate::ReadFailure;
pub use error::OpenError;
pub use feed::DirectoryObservations;
pub use settle::{OPEN, QUIET, SETTLE};

use crate::parallel::on_each;
use own::OwnFolder;
use shared::SharedDirectory;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use tree::{FilePlace, Tree};
use watch::Watch;

/// What to open, and how.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// Name of the connection; it is the cluster of every reference.
    pub name: String,
    /// A folder of manifests, or one file. If the path leads through links, it is followed to wherever it leads.
    pub root: PathBuf,
    /// The agent's own folder. `None` for `.transom` in the root; for `.transom-<name>` beside a root that is a link,
    /// if it is there, or can be made and the root has none yet; or for no folder if the root is a file.
    pub own: Option<PathBuf>,
    /// How long a file must be quiet before it is read.
    pub settle: Duration,
    /// The size limits.
    pub limits: SizeLimits,
    /// Whether anything may be written. If not, no own folder is made, but an existing one is read.
    pub writable: bool,
    /// Whether changes are followed.
    pub watch: bool,
    /// What counts as now, in seconds since 1970; `None` for the system's clock.
    pub now: Option<i64>,
}

impl DirectoryOptions {
    /// A folder that is written and watched, with the default limits.
    pub fn new(name: &str, root: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            root: root.into(),
            own: None,
            settle: SETTLE,
            limits: SizeLimits::default(),
            writable: true,
            watch: true,
            now: None,
        }
    }
}

/// Size limits; what exceeds them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// Bytes of one object as compact JSON.
    pub object_bytes: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self {
            object_bytes: 1_572_864,
            file_bytes: 268_435_456,
        }
    }
}

/// A directory of manifests as a cluster. Safe to share between threads.
pub struct Directory {
    shared: Arc<SharedDirectory>,
    /// Its thread ends when this is dropped.
    _watch: Option<Watch>,
}

impl Directory {
    /// Reads the whole tree; on return every object can be read.
    pub fn open(options: DirectoryOptions) -> Result<Self, OpenError> {
        let DirectoryOptions {
            name,
            root,
            own,
            settle,
            limits,
            writable,
            watch,
            now,
        } = options;
        let root_error = |cause| OpenError::Root {
            path: root.clone(),
            cause,
        };
        let canonical = root.canonicalize().map_err(root_error)?;
        let is_file = !canonical.is_dir();
        let given = std::path::absolute(&root).map_err(root_error)?;
        let own = own.or_else(|| (!is_file).then(|| tree::own_folder(&given, &canonical)));
        let (own, writer) = open_own(own, &canonical, writable)?;
        let (given, folder) = if is_file {
            let folder = canonical.parent().map(Path::to_owned).unwrap_or_default();
            (folder.clone(), folder)
        } else {
            (given, canonical.clone())
        };
        let tree = Tree {
            given,
            root: folder,
            own,
        };
        let mut shared = SharedDirectory::new(name, tree, limits, writer);
        shared.now = now;
        let shared = start::whole(shared, &canonical, is_file, settle).map_err(root_error)?;
        apply::write_patches(&shared);
        status::publish_unreadable(&shared).map_err(|cause| OpenError::Own {
            path: root.clone(),
            cause,
        })?;
        // A single file is read only once; only folders are watched.
        let watch = (watch && !is_file)
            .then(|| Watch::start(&shared, settle))
            .transpose();
        let watch = watch.map_err(|cause| OpenError::Watch {
            path: root.clone(),
            cause,
        })?;
        Ok(Self {
            shared,
            _watch: watch,
        })
    }

    /// The objects in the bytes of one file. `place` names the file in messages.
    pub fn from_bytes(name: &str, place: &str, bytes: &[u8], limits: SizeLimits) -> Self {
        let tree = Tree {
            given: PathBuf::new(),
            root: PathBuf::new(),
            own: None,
        };
        let shared = Arc::new(SharedDirectory::new(name.to_owned(), tree, limits, None));
        load::take_bytes(
            &shared,
            FilePlace::new(tree::Layer::User, Path::new(place)),
            bytes,
        );
        Self {
            shared,
            _watch: None,
        }
    }

    /// A copy of the present objects in memory. Later changes of one directory do not affect the other.
    pub fn copy(&self) -> Self {
        Self {
            shared: Arc::new(self.shared.copy()),
            _watch: None,
        }
    }

    /// Sets the bytes of one file, in place of those that it had; without bytes the file has no objects. For
    /// directories in memory.
    pub fn take(&self, place: &str, bytes: &[u8]) {
        load::take_bytes(
            &self.shared,
            FilePlace::new(tree::Layer::User, Path::new(place)),
            bytes,
        );
    }

    /// Sets the bytes of the agent's own file of an object, as if a user had edited it; without bytes the file is gone.
    /// For directories in memory.
    pub fn take_made(&self, object: &ObjectRef, bytes: &[u8]) {
        let place = FilePlace::new(tree::Layer::Made, &names::object_file(object));
        if bytes.is_empty() {
            load::take_away(&self.shared, place);
        } else {
            load::take_bytes(&self.shared, place, bytes);
        }
    }

    /// Every change from now on.
    pub fn changes(&self) -> DirectoryObservations {
        DirectoryObservations {
            shared: Arc::clone(&self.shared),
            feed: self.shared.listen(),
        }
    }

    /// Reads objects; the results have the order of the references, and `None` for an absent object.
    pub fn read(&self, references: &[ObjectRef]) -> Vec<Result<Option<Object>, ReadFailure>> {
        on_each(references.iter(), |one| self.shared.read_one(one))
    }

    /// Reads one object in this directory and in a copy of it; `None` where it is absent.
    pub fn read_both(
        &self,
        copy: &Self,
        reference: &ObjectRef,
    ) -> [Result<Option<Object>, ReadFailure>; 2] {
        self.shared.read_both(&copy.shared, reference)
    }

    /// The objects of a kind in a namespace, or in all.
    pub fn list(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Vec<ObjectRef> {
        let first = self.first(api_version, kind);
        let store = self.shared.store();
        let inside = |reference: &&ObjectRef| {
            namespace.is_none() || reference.namespace.as_deref() == namespace
        };
        store.of_kind(first).filter(inside).cloned().collect()
    }

    /// Where the objects of a kind begin.
    fn first(&self, api_version: &str, kind: &str) -> ObjectRef {
        ObjectRef {
            cluster: self.shared.name.clone(),
            ..ObjectRef::local(api_version, kind, None, "")
        }
    }

    /// The objects of a kind with this namespace and name, in all groups and versions.
    pub fn find(&self, kind: &str, namespace: Option<&str>, name: &str) -> Vec<ObjectRef> {
        let store = self.shared.store();
        let meant = |one: &&Arc<ObjectRef>| {
            (&*one.kind, one.namespace.as_deref(), &*one.name) == (kind, namespace, name)
        };
        let found = store.references().filter(meant);
        found.map(|one| ObjectRef::clone(one)).collect()
    }

    /// Whether the effective object is one that the agent made whole.
    pub fn made(&self, reference: &ObjectRef) -> bool {
        matches!(
            self.shared.store().effective(reference),
            slot::Effective::Made(_)
        )
    }
}

/// The bytes of the file that is the root. Reads a pipe to its end: a user who names a pipe expects to wait.
fn read_named(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    load::read_whole(file, &metadata, limit)
}

/// The path of the own folder, canonical except for its name, and the folder opened for writing if that is allowed.
fn open_own(
    own: Option<PathBuf>,
    root: &Path,
    writable: bool,
) -> Result<(Option<PathBuf>, Option<OwnFolder>), OpenError> {
    let Some(path) = own else {
        return Ok((None, None));
    };
    let fail = |cause: io::Error| match cause.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse { path: path.clone() },
        _ => OpenError::Own {
            path: path.clone(),
            cause,
        },
    };
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if writable {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    // The path before the name may contain links. The own folder itself must be a real folder.
    let found = parent
        .canonicalize()
        .map(|parent| parent.join(path.file_name().unwrap_or_default()));
    let found = found.unwrap_or_else(|_| path.clone());
    if root.starts_with(&found) {
        return Err(OpenError::Inside { path: found });
    }
    let writer = match writable {
        true => Some(OwnFolder::open(&found).map_err(fail)?),
        false => own::check_readable(&found).map(|()| None).map_err(fail)?,
    };
    Ok((Some(found), writer))
}
