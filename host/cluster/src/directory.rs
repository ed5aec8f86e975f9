//! A cluster that is a directory of manifests, with the agent's own folder laid over them.
//! Never rewrites a file of a user; never decides what should be written.

mod apply;
mod change;
mod error;
mod feed;
mod folder;
mod load;
mod manifest;
mod names;
mod own;
mod patch;
mod settle;
mod shared;
mod signals;
mod slot;
mod status;
mod store;
mod tree;
mod watch;

pub use crate::ReadFailure;
pub use error::OpenError;
pub use feed::Observations;

use load::Scan;
use own::Own;
use shared::Shared;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transom_api::labels;
use transom_api::status::{PolicyStatus, PrimaryStatus};
use transom_core::object::Object;
use transom_core::observation::Unreadable;
use transom_core::outcome::Outcome;
use transom_core::plan::Plan;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::stamp::Stamp;
use tree::{Place, Tree};
use watch::Watch;

/// What to open, and how.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// Name of the connection; the cluster of every reference.
    pub name: String,
    /// A folder of manifests, or one file.
    pub root: PathBuf,
    /// The agent's own folder; nothing for `.transom` in the root, or for none when the root is a file.
    pub own: Option<PathBuf>,
    /// How long a file must be quiet before it is read.
    pub settle: Duration,
    /// What is refused.
    pub limits: Limits,
    /// Whether anything may be written; otherwise no folder is made, but one that is there is read.
    pub writable: bool,
    /// Whether changes are told.
    pub watch: bool,
}

impl DirectoryOptions {
    /// A folder that is written and watched, with the default limits.
    pub fn new(name: &str, root: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            root: root.into(),
            own: None,
            settle: Duration::from_millis(100),
            limits: Limits::default(),
            writable: true,
            watch: true,
        }
    }
}

/// What is refused for its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one object as compact JSON.
    pub object_bytes: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { object_bytes: 1_572_864, file_bytes: 268_435_456 }
    }
}

/// A directory of manifests as a cluster. Safe to use from many threads.
pub struct Directory {
    shared: Arc<Shared>,
    /// Held for its thread, which ends with it.
    _watch: Option<Watch>,
}

impl Directory {
    /// Reads the whole tree; on return every object can be read.
    pub fn open(options: DirectoryOptions) -> Result<Self, OpenError> {
        let DirectoryOptions { name, root, own, settle, limits, writable, watch } = options;
        let root_error = |cause| OpenError::Root { path: root.clone(), cause };
        let canonical = root.canonicalize().map_err(root_error)?;
        let is_file = !canonical.is_dir();
        let own = own.or_else(|| (!is_file).then(|| canonical.join(".transom")));
        let (own, writer) = open_own(own, &canonical, writable)?;
        let folder =
            if is_file { canonical.parent().map(Path::to_owned).unwrap_or_default() } else { canonical.clone() };
        let shared = Arc::new(Shared::new(name, Tree { root: folder, own }, limits, writer));
        if is_file {
            // A file that is named is read, whatever its name ends in.
            let bytes = read_named(&canonical, shared.limits.file_bytes).map_err(root_error)?;
            let name = canonical.file_name().map(Path::new).unwrap_or(&canonical);
            load::take_bytes(&shared, Place::new(tree::Layer::User, name), &bytes);
        } else {
            std::fs::read_dir(&canonical).map_err(root_error)?;
            let scan = Scan { folder: &mut |_| Ok(()), later: &|_| false };
            load::refresh(&shared, load::scan(&shared, None, scan).files);
        }
        apply::forget_orphans(&shared);
        status::publish_unreadable(&shared).map_err(|cause| OpenError::Own { path: root.clone(), cause })?;
        // A single file is for reading once; what follows the tree is for folders.
        let watch = (watch && !is_file).then(|| Watch::start(&shared, settle)).transpose();
        let watch = watch.map_err(|cause| OpenError::Watch { path: root.clone(), cause })?;
        Ok(Self { shared, _watch: watch })
    }

    /// The objects of one file's bytes; `place` names it in messages, and its end says whether it is JSON.
    pub fn from_bytes(name: &str, place: &str, bytes: &[u8], limits: Limits) -> Self {
        let tree = Tree { root: PathBuf::new(), own: None };
        let shared = Arc::new(Shared::new(name.to_owned(), tree, limits, None));
        load::take_bytes(&shared, Place::new(tree::Layer::User, Path::new(place)), bytes);
        Self { shared, _watch: None }
    }

    /// The same objects as they are now, in memory: neither directory sees what becomes of the other.
    pub fn copy(&self) -> Self {
        Self { shared: Arc::new(self.shared.copy()), _watch: None }
    }

    /// Takes in one more file's bytes, in place of what it held; without bytes it is gone. For directories in memory.
    pub fn take(&self, place: &str, bytes: &[u8]) {
        load::take_bytes(&self.shared, Place::new(tree::Layer::User, Path::new(place)), bytes);
    }

    /// Takes in bytes as the agent's own file of an object, as if somebody had edited it; without bytes it is gone.
    /// For directories in memory.
    pub fn take_made(&self, object: &ObjectRef, bytes: &[u8]) {
        let place = Place::new(tree::Layer::Made, &names::object_file(object));
        if bytes.is_empty() {
            load::take_away(&self.shared, place);
        } else {
            load::take_bytes(&self.shared, place, bytes);
        }
    }

    /// Every change from now on.
    pub fn changes(&self) -> Observations {
        Observations { shared: Arc::clone(&self.shared), feed: self.shared.listen_from_now() }
    }

    /// Everything that is there, `Synced`, then every change.
    pub fn observations(&self) -> Observations {
        Observations { shared: Arc::clone(&self.shared), feed: self.shared.listen() }
    }

    /// The objects, each in the place of its reference; nothing where there is none.
    pub fn read(&self, references: &[ObjectRef]) -> Vec<Result<Option<Object>, ReadFailure>> {
        references.iter().map(|reference| self.shared.read_one(reference)).collect()
    }

    /// Bytes that an object takes at most once it is read.
    pub fn weigh(&self, reference: &ObjectRef) -> usize {
        self.shared.store().slot(reference).map_or(0, slot::Slot::weigh)
    }

    /// The objects of a kind in a namespace, or in all.
    pub fn list(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Vec<ObjectRef> {
        let first = ObjectRef {
            cluster: self.shared.name.clone(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: String::new(),
        };
        let store = self.shared.store();
        let inside = |reference: &&ObjectRef| namespace.is_none() || reference.namespace.as_deref() == namespace;
        store.of_kind(first).filter(inside).cloned().collect()
    }

    /// Whether what is seen of an object is one that the agent made whole; such an object is never a primary.
    pub fn made(&self, reference: &ObjectRef) -> bool {
        matches!(self.shared.store().effective(reference), slot::Effective::Made(_))
    }

    /// The objects of a kind that bear a stamp of ours, in files of the user, too.
    pub fn stamped(&self, api_version: &str, kind: &str) -> Vec<Object> {
        let mut objects = self.list(api_version, kind, None);
        // To parse every Secret for a label that few have would double the start.
        objects.retain(|object| self.shared.store().effective(object).holds(labels::POLICY));
        objects
            .iter()
            .filter_map(|object| self.shared.read_one(object).ok().flatten())
            .filter(|object| Stamp::read(object).is_some())
            .collect()
    }

    /// Everything that cannot be read now.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.shared.store().unreadable()
    }

    /// A file or folder that cannot be read now, if there is one: what is not found may stand in it.
    pub fn unread(&self) -> Option<String> {
        self.shared.store().unread().map(|place| format!("`{place}`"))
    }

    /// Performs the steps of a plan in order, each only when its object is as it was read; stops at the first failure.
    pub fn apply(&self, plan: Plan) -> Outcome {
        apply::apply(&self.shared, plan)
    }

    /// Writes a primary's status when it differs in more than its times.
    pub fn publish(&self, report: &Report) -> io::Result<()> {
        status::publish(&self.shared, report)
    }

    /// What was told of a primary last, if anything was; also where nothing may be written.
    pub fn reported(&self, policy: &str, primary: &ObjectRef) -> io::Result<Option<PrimaryStatus>> {
        status::reported(&self.shared, policy, primary)
    }

    /// Removes the status of a primary.
    pub fn forget(&self, policy: &str, primary: &ObjectRef) -> io::Result<()> {
        status::forget(&self.shared, policy, primary)
    }

    /// Writes a policy's own status when it differs in more than its times.
    pub fn publish_policy(&self, policy: &str, status: &PolicyStatus) -> io::Result<()> {
        status::publish_policy(&self.shared, policy, status)
    }

    /// A policy's own status as it is there, if there is one.
    pub fn policy_status(&self, policy: &str) -> io::Result<Option<PolicyStatus>> {
        status::policy_status(&self.shared, policy)
    }

    /// Removes every status but those of the given policies and primaries; for the end of a start.
    pub fn retain_status(
        &self,
        policies: &BTreeSet<String>,
        primaries: &BTreeSet<(String, ObjectRef)>,
    ) -> io::Result<()> {
        status::retain(&self.shared, policies, primaries)
    }
}

/// The bytes of the file that is the root. A pipe is read to its end: whoever names one waits for it.
fn read_named(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    load::read_whole(file, &metadata, limit)
}

/// The path of the own folder, canonical up to its name, and the folder opened for writing when that is allowed.
fn open_own(own: Option<PathBuf>, root: &Path, writable: bool) -> Result<(Option<PathBuf>, Option<Own>), OpenError> {
    let Some(path) = own else { return Ok((None, None)) };
    let fail = |cause: io::Error| match cause.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse { path: path.clone() },
        _ => OpenError::Own { path: path.clone(), cause },
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if writable {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    // What stands before the name is the user's to choose; at the name there must be a folder of ours, and no link.
    let found = parent.canonicalize().map(|parent| parent.join(path.file_name().unwrap_or_default()));
    let found = found.unwrap_or_else(|_| path.clone());
    if root.starts_with(&found) {
        return Err(OpenError::Inside { path: found });
    }
    let writer = match writable {
        true => Some(Own::open(&found).map_err(fail)?),
        false => own::check_readable(&found).map(|()| None).map_err(fail)?,
    };
    Ok((Some(found), writer))
}
