//! What the parts of one directory share: its folders, its state, its listeners.
//! The lock of the state is not held during file I/O.

use super::change::DirectoryNews;
use super::feed::DirectoryFeed;
use super::manifest::FileFault;
use super::own::OwnFolder;
use super::slot::{Effective, SlotState};
use super::store::DirectoryStore;
use super::tree::{FilePlace, FileStamp, Tree};
use super::{ReadFailure, SizeLimits};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::SystemTime;
use transom_api::labels;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use transom_core::share::lock::{MutexExt as _, RwLockExt as _};
use transom_core::watches::Keep;

/// The most writes to own files at a time.
const STRIPES: usize = 64;

/// What is kept of the objects of each API version and kind.
type Kinds = BTreeMap<(String, String), Keep>;

/// What the parts of one directory share.
pub(super) struct SharedDirectory {
    /// Name of the connection.
    pub(super) name: String,
    /// The size limits.
    pub(super) limits: SizeLimits,
    /// The own folder, if it may be written.
    pub(super) own: Option<OwnFolder>,
    /// What counts as now, in seconds since 1970; `None` for the system's clock.
    pub(super) now: Option<i64>,
    /// Key of versions and prints, one per run.
    pub(super) key: RandomState,
    /// Its folders; others once the given path leads to another one.
    tree: RwLock<Arc<Tree>>,
    store: RwLock<DirectoryStore>,
    feeds: Mutex<Vec<Weak<DirectoryFeed>>>,
    /// API version and kind of the objects that are observed, with the parts that are read of them; `None` for all.
    wanted: RwLock<Option<Arc<Kinds>>>,
    /// What the status file of each primary says, and the file that says it.
    published: Mutex<Published>,
    stripes: Vec<Mutex<()>>,
    large: Mutex<()>,
}

/// A keyed hash of what a status file says, and the stamp of the file.
type Published = HashMap<PathBuf, (u64, FileStamp)>;

impl SharedDirectory {
    /// What the status file of each primary says.
    pub(super) fn published(&self) -> MutexGuard<'_, Published> {
        self.published.locked()
    }

    /// Has read nothing yet.
    pub(super) fn new(
        name: String,
        tree: Tree,
        limits: SizeLimits,
        own: Option<OwnFolder>,
    ) -> Self {
        let key = RandomState::new();
        let store = RwLock::new(DirectoryStore::new(&name, key.clone()));
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self {
            name,
            tree: RwLock::new(Arc::new(tree)),
            limits,
            own,
            now: None,
            key,
            store,
            feeds: Mutex::default(),
            wanted: RwLock::default(),
            published: Mutex::default(),
            stripes,
            large: Mutex::default(),
        }
    }

    /// The same directory, of which nothing was read.
    pub(super) fn unread(self) -> Self {
        let tree = Tree::clone(&self.tree());
        let mut unread = Self::new(self.name, tree, self.limits, self.own);
        unread.now = self.now;
        unread
    }

    /// A copy of the state in memory, without listeners.
    pub(super) fn copy(&self) -> Self {
        let (key, store) = (self.key.clone(), RwLock::new(self.store().clone()));
        Self {
            key,
            store,
            ..Self::new(
                self.name.clone(),
                Tree::clone(&self.tree()),
                self.limits,
                None,
            )
        }
    }

    /// The time, as an API server has its own.
    pub(super) fn now_seconds(&self) -> i64 {
        self.now.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs().cast_signed())
        })
    }

    /// The folders, as they are now.
    pub(super) fn tree(&self) -> Arc<Tree> {
        let tree = self.tree.reading();
        Arc::clone(&tree)
    }

    /// Exchanges the folders. The caller scans all of them then.
    pub(super) fn move_to(&self, tree: Tree) {
        if let Some((own, path)) = self.own.as_ref().zip(tree.own.as_ref()) {
            own.move_to(path);
        }
        *self.tree.writing() = Arc::new(tree);
    }

    /// The state, for reading.
    pub(super) fn store(&self) -> RwLockReadGuard<'_, DirectoryStore> {
        self.store.reading()
    }

    /// The state, for writing.
    pub(super) fn store_mut(&self) -> RwLockWriteGuard<'_, DirectoryStore> {
        self.store.writing()
    }

    /// Locks the own file of an object, for reading and writing.
    pub(super) fn stripe(&self, file: &Path) -> Option<MutexGuard<'_, ()>> {
        let index = usize::try_from(self.key.hash_one(file)).unwrap_or_default() % STRIPES;
        self.stripes.get(index).map(|stripe| stripe.locked())
    }

    /// Locks the parsing of large files.
    pub(super) fn large(&self) -> MutexGuard<'_, ()> {
        self.large.locked()
    }

    /// Sets the kinds whose objects are observed.
    pub(super) fn want(&self, kinds: Kinds) {
        *self.wanted.writing() = Some(Arc::new(kinds));
    }

    fn wanted(&self) -> Option<Arc<Kinds>> {
        let wanted = self.wanted.reading();
        wanted.clone()
    }

    /// Whether listeners are told of an object: of every wanted kind, and of what the agent made, whatever its kind. An
    /// object that is gone needs no look at its content.
    pub(super) fn observes(&self, reference: &ObjectRef) -> bool {
        self.wanted()
            .is_none_or(|kinds| keep_of(&kinds, reference).is_some())
            || match self.store().effective(reference) {
                Effective::Absent => true,
                present => present.holds(labels::POLICY),
            }
    }

    /// Adds a listener that is told what changes from now on.
    pub(super) fn listen(&self) -> Arc<DirectoryFeed> {
        let feed = Arc::new(DirectoryFeed::default());
        let _unchanged = self.store();
        self.feeds.locked().push(Arc::downgrade(&feed));
        feed
    }

    /// Notifies every listener. The caller holds the lock of the state, so that news arrive in the order of the
    /// changes.
    pub(super) fn tell(&self, _changed: &DirectoryStore, news: &[DirectoryNews]) {
        if news.is_empty() {
            return;
        }
        let mut feeds = self.feeds.locked();
        feeds.retain(|feed| match feed.upgrade() {
            Some(feed) => {
                feed.push(news.iter().cloned());
                true
            }
            None => false,
        });
    }

    /// Reads one object; parses it outside the lock.
    pub(super) fn read_one(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let (seen, effective) = self.state(reference);
        object(reference, &seen, effective.value(None))
    }

    /// Reads an object as the agent made it, even if a user's file defines it, too. Then the result has no version, so
    /// that writes fail: they would patch the user's file, and the agent would take that for its record.
    pub(super) fn read_made(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let made = self.store().slot(reference).and_then(|slot| {
            let text = Arc::clone(&slot.made.as_ref()?.text);
            let seen = match slot.effective() {
                Effective::Made(_) => slot.seen.clone(),
                _ => SlotState::Absent,
            };
            Some((seen, Effective::Made(text)))
        });
        let (seen, made) = made.unwrap_or((SlotState::Absent, Effective::Absent));
        object(reference, &seen, made.value(None))
    }

    /// Reads what is kept of one object, as a watch of its kind keeps it: the rest is not parsed.
    pub(super) fn read_kept(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let (seen, effective) = self.state(reference);
        let wanted = self.wanted();
        let keep = wanted.as_deref();
        let keep = keep.and_then(|kinds| keep_of(kinds, reference));
        let fields = keep.and_then(Keep::decoded);
        object(reference, &seen, effective.value(fields))
    }

    /// Reads one object in this directory and in another one.
    pub(super) fn read_both(
        &self,
        other: &Self,
        reference: &ObjectRef,
    ) -> [Result<Option<Object>, ReadFailure>; 2] {
        let ((here, ours), (there, others)) = (self.state(reference), other.state(reference));
        let [body, other] = ours.values(&others);
        [
            object(reference, &here, body),
            object(reference, &there, other),
        ]
    }

    /// The state of one object, and the effective object.
    fn state(&self, reference: &ObjectRef) -> (SlotState, Effective) {
        let store = self.store();
        store
            .slot(reference)
            .map_or((SlotState::Absent, Effective::Absent), |slot| {
                (slot.seen.clone(), slot.effective())
            })
    }

    /// Records folders that cannot be listed or watched, and those that can again; notifies the listeners.
    pub(super) fn refuse_folders(
        &self,
        scanned: Option<&FilePlace>,
        closed: Vec<(FilePlace, io::Error)>,
    ) -> Vec<DirectoryNews> {
        let mut store = self.store_mut();
        let mut news = Vec::new();
        for folder in store.closed_folders(scanned) {
            if !closed.iter().any(|(place, _)| *place == folder) {
                news.extend(store.reopened(&folder));
            }
        }
        for (place, error) in closed {
            news.extend(store.close(&place, FileFault::unread(&error)));
        }
        self.tell(&store, &news);
        news
    }
}

/// What is kept of the objects of this kind; `None` if it is not observed.
fn keep_of<'k>(kinds: &'k Kinds, object: &ObjectRef) -> Option<&'k Keep> {
    let mut all = kinds.iter();
    let found = all.find(|((api_version, kind), _)| {
        (api_version, kind) == (&object.api_version, &object.kind)
    });
    found.map(|(_, keep)| keep)
}

/// An object that was read, or the failure to read it.
fn object(
    reference: &ObjectRef,
    seen: &SlotState,
    body: Result<Option<Value>, FileFault>,
) -> Result<Option<Object>, ReadFailure> {
    let fail = |fault: FileFault| ReadFailure {
        reason: fault.reason,
        message: format!("failed to read {reference}: {}", fault.message),
    };
    Ok(body.map_err(fail)?.map(|body| Object {
        reference: reference.clone(),
        version: version_text(seen),
        body,
    }))
}

/// The version of an object as text, for preconditions.
pub(super) fn version_text(seen: &SlotState) -> String {
    match seen {
        SlotState::Value(version) => format!("{version:016x}"),
        SlotState::Absent | SlotState::Duplicate(_) => String::new(),
    }
}
