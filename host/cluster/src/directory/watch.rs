//! Follows the tree: reads changed files once they are quiet, and scans for changes whose events were missed.
//! Does not read an unchanged file.

mod gone;
mod root;

use super::SharedDirectory;
use super::apply;
use super::change::{DirectoryNews, Edit};
use super::load::{self, Scan, Scanned};
use super::settle::{SettlingPaths, Touch};
use super::signals::{Heard, Signals};
use super::status;
use super::tree::{FilePlace, Layer, is_manifest, may_be_folder};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many settling times pass before a folder that could not be listed is tried again.
const RETRY: u32 = 20;
/// How often everything is scanned although no event asks for it: some file systems, such as NFS and CephFS, have no
/// events of what another host writes.
const ROUND: Duration = Duration::from_secs(180);
/// How often a whole pass is put off because a file was touched while it was read.
const PATIENCE: u32 = 3;
/// Whether the system reports that a written file was closed.
const TELLS_CLOSE: bool = cfg!(target_os = "linux");

/// A thread that follows the tree until this is dropped.
pub(super) struct Watch {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches every folder, finds what changed since the tree was read, and follows it from then on.
    pub(super) fn start(shared: &Arc<SharedDirectory>, settle: Duration) -> io::Result<Self> {
        let signals = Arc::new(Signals::default());
        let watcher = watcher(&signals).map_err(io::Error::other)?;
        let mut follower = Follower::new(Arc::clone(shared), watcher, settle, Arc::clone(&signals));
        follower.begin(Instant::now());
        let work = move || follower.run();
        let thread = std::thread::Builder::new()
            .name("directory".to_owned())
            .spawn(work)?;
        Ok(Self {
            signals,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.signals.stop();
        // It fails only if the thread panicked, which was reported.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A watcher of no folder yet.
fn watcher(signals: &Arc<Signals>) -> notify::Result<RecommendedWatcher> {
    let signals = Arc::clone(signals);
    notify::recommended_watcher(move |event| hear(&signals, event))
}

/// Passes on the system's events that concern content.
fn hear(signals: &Signals, event: notify::Result<Event>) {
    let Some(event) = event.ok().filter(|event| !event.need_rescan()) else {
        return signals.rescan();
    };
    let touch = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Touch::Whole,
        // Mostly the agent's own reads.
        EventKind::Access(_) => return,
        EventKind::Modify(ModifyKind::Data(_)) if TELLS_CLOSE => Touch::Writing,
        EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => Touch::Whole,
        _ => Touch::Other,
    };
    event
        .paths
        .into_iter()
        .for_each(|path| signals.touch(path, touch));
}

/// The state of the thread.
struct Follower {
    shared: Arc<SharedDirectory>,
    watcher: RecommendedWatcher,
    /// The links through which the given path leads.
    links: Vec<PathBuf>,
    settling: SettlingPaths,
    settle: Duration,
    /// When everything is scanned again: in the next round, or sooner because an event was missed or a folder could not
    /// be listed.
    rescan: Instant,
    /// When a manifest of the user changed.
    changed: Instant,
    /// Before this, nothing is scanned only because objects may be gone.
    next_search: Instant,
    /// How often the last pass was put off.
    put_off: u32,
    signals: Arc<Signals>,
    stopped: bool,
}

impl Follower {
    /// Watches nothing yet.
    fn new(
        shared: Arc<SharedDirectory>,
        watcher: RecommendedWatcher,
        settle: Duration,
        signals: Arc<Signals>,
    ) -> Self {
        let settling = SettlingPaths::new(settle);
        Self {
            shared,
            watcher,
            links: Vec::new(),
            settling,
            settle,
            rescan: Instant::now() + ROUND,
            changed: Instant::now(),
            next_search: Instant::now(),
            put_off: 0,
            signals,
            stopped: false,
        }
    }

    /// Follows the tree until it is told to stop.
    fn run(mut self) {
        while !self.stopped {
            let due = self.settling.next_due().into_iter();
            let due = due.chain(self.next_gone()).fold(self.rescan, Instant::min);
            let heard = self.signals.wait(due);
            let now = Instant::now();
            self.note(heard, now);
            if due <= now {
                self.read_due(now);
            }
        }
    }

    /// Records events.
    fn note(&mut self, heard: Heard, now: Instant) {
        for (path, touch) in heard.touched {
            if !self.concerns(&path) {
                continue;
            }
            if self.is_users(&path) {
                self.changed = now;
            }
            self.settling.note(path, touch, now);
        }
        if heard.rescan {
            self.changed = now;
        }
        if self.settling.crowd() || heard.rescan {
            self.rescan_by(now + self.settle);
        }
        self.stopped |= heard.stop;
    }

    /// Has everything scanned by a time. An earlier time stays, so that a tree that never rests is scanned, too.
    fn rescan_by(&mut self, at: Instant) {
        self.rescan = self.rescan.min(at);
    }

    /// Records everything that happened until now. The watcher's thread handles a request and passes on events in any
    /// order, but it does both before it takes the next request.
    fn catch_up(&mut self) {
        for _ in 0..2 {
            // The result does not matter: the root is watched already, or it is away.
            drop(
                self.watcher
                    .watch(&self.shared.tree().root, RecursiveMode::NonRecursive),
            );
        }
        let heard = self.signals.take();
        self.note(heard, Instant::now());
    }

    /// Watches everything, and finds what changed since the tree was read. Files that may have been half written are
    /// read again.
    fn begin(&mut self, now: Instant) {
        let mut missed = self.scan(None);
        for place in std::mem::take(&mut missed.fresh) {
            missed.files.remove(&place);
            self.settling
                .note(self.shared.tree().path(&place), Touch::Other, now);
        }
        let edits = load::read_files(&self.shared, missed.files);
        load::take_over_at(&self.shared, edits, Some(now));
        apply::write_patches(&self.shared);
    }

    /// One pass: reads everything that is due, as one change.
    fn read_due(&mut self, now: Instant) {
        let mut found = Scanned::default();
        let exchanged = self.follow_root();
        if exchanged {
            // The new folder may still be filled.
            self.changed = now;
        }
        let mut everything = exchanged || self.rescan <= now;
        let mut gone = BTreeSet::new();
        if everything || self.next_search <= now {
            // Before an object counts as gone, everything is scanned: the file that has it now may have had no event.
            gone = self.gone(now);
            everything |= !gone.is_empty();
        }
        if everything {
            found.add(self.scan_all(now));
        }
        let due = self.settling.take_due(now);
        for path in &due {
            found.add(self.scan_path(path));
        }
        let edits = load::read_files(&self.shared, found.files);
        self.catch_up();
        let read = edits.len();
        let edits = self.complete(edits);
        let mut news = found.news;
        // A search is not put off: it takes long, and reads again itself what was touched.
        if edits.len() < read && gone.is_empty() && self.put_off < PATIENCE {
            self.put_off += 1;
            due.into_iter()
                .for_each(|path| self.settling.note(path, Touch::Other, now));
            if everything {
                self.rescan_by(now + self.settle);
            }
        } else {
            self.put_off = 0;
            self.note_change(&edits, now);
            news.extend(load::take_over_at(&self.shared, edits, Some(now)));
            news.extend(self.let_go(&gone, now));
            apply::write_patches(&self.shared);
        }
        let is_object = |news: &DirectoryNews| matches!(news, DirectoryNews::Object(_));
        if !news.iter().all(is_object) {
            // A failed write is repeated with the next change of what cannot be read; nothing depends on the file.
            drop(status::publish_unreadable(&self.shared));
        }
        if !self.shared.store().closed_folders(None).is_empty() {
            self.rescan_by(now + self.settle * RETRY);
        }
    }

    /// Records a change of a manifest of which no event may have told.
    fn note_change(&mut self, edits: &[(FilePlace, Edit)], now: Instant) {
        let mut manifests = edits.iter().filter(|(place, _)| is_manifest(&place.path));
        if manifests.any(|(_, edit)| edit.is_change()) {
            self.changed = now;
        }
    }

    /// Drops the edits of files that were touched while they were read: they may be incomplete, and are due again.
    fn complete(&self, mut edits: Vec<(FilePlace, Edit)>) -> Vec<(FilePlace, Edit)> {
        let tree = self.shared.tree();
        edits.retain(|(place, _)| !self.settling.contains(&tree.path(place)));
        edits
    }

    /// The files to read after a change of one path: scans a folder, reads a file, and forgets the known files below a
    /// folder that is gone.
    fn scan_path(&mut self, path: &Path) -> Scanned {
        if self.shared.tree().own.as_deref() == Some(path) {
            let mut found = self.scan(Some(&FilePlace::new(Layer::Made, Path::new(""))));
            found.add(self.scan(Some(&FilePlace::new(Layer::Patch, Path::new("")))));
            return found;
        }
        let Some(place) = self.shared.tree().place(path) else {
            return self.scan_links(path);
        };
        let is_root = place.path.as_os_str().is_empty();
        if is_root || may_be_folder(path) {
            return self.scan(Some(&place));
        }
        let news = self.shared.refuse_folders(Some(&place), Vec::new());
        let known: Vec<_> = self.shared.store().below(&place).cloned().collect();
        Scanned {
            files: known.into_iter().chain([place]).collect(),
            fresh: Vec::new(),
            news,
        }
    }

    /// The files of a mounted ConfigMap are links into a folder whose name starts with two dots. When that folder is
    /// exchanged, only its own name has an event.
    fn scan_links(&mut self, path: &Path) -> Scanned {
        let swapped = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".."));
        let folder = path
            .parent()
            .filter(|_| swapped)
            .and_then(|folder| self.shared.tree().place(folder));
        folder
            .map(|folder| self.scan(Some(&folder)))
            .unwrap_or_default()
    }

    /// Watches and scans a folder, or all of them. Leaves out files that are still settling.
    fn scan(&mut self, folder: Option<&FilePlace>) -> Scanned {
        if folder.is_none() {
            self.watch_root();
        }
        let tree = self.shared.tree();
        let Self {
            shared,
            watcher,
            settling,
            ..
        } = self;
        let ours = folder.is_none_or(|folder| folder.layer != Layer::User);
        if let Some(own) = tree.own.as_ref().filter(|_| ours) {
            // If nothing may be written it may not exist; then nothing below it exists either.
            drop(watcher.watch(own, RecursiveMode::NonRecursive));
        }
        let scan = Scan {
            folder: &mut |path| watch_folder(watcher, path),
            later: &|place| settling.contains(&tree.path(place)),
        };
        load::scan(shared, folder, scan)
    }
}

/// Watches one folder; a folder that disappears meanwhile is no error.
fn watch_folder(watcher: &mut RecommendedWatcher, folder: &Path) -> io::Result<()> {
    match watcher.watch(folder, RecursiveMode::NonRecursive) {
        Ok(()) => Ok(()),
        Err(error) => match error.kind {
            notify::ErrorKind::PathNotFound => Ok(()),
            notify::ErrorKind::MaxFilesWatch => Err(io::Error::other(
                "the limit of watched folders is reached; raise fs.inotify.max_user_watches",
            )),
            notify::ErrorKind::Io(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            notify::ErrorKind::Io(error) => Err(error),
            _ => Err(io::Error::other("it cannot be watched")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::SizeLimits;
    use super::super::tree::Tree;
    use super::*;

    pub(super) const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    /// A follower that gets no events, so that only scans find changes.
    pub(super) fn deaf(root: &Path) -> Follower {
        let tree = Tree {
            given: root.to_owned(),
            root: root.to_owned(),
            own: None,
        };
        let shared = Arc::new(SharedDirectory::new(
            "local".to_owned(),
            tree,
            SizeLimits::default(),
            None,
        ));
        let watcher = notify::recommended_watcher(|_: notify::Result<Event>| ()).unwrap();
        Follower::new(shared, watcher, Duration::ZERO, Arc::default())
    }

    /// The events of a full scan.
    pub(super) fn news(follower: &mut Follower) -> Vec<DirectoryNews> {
        let found = follower.scan(None);
        load::refresh(&follower.shared, found.files)
    }

    #[test]
    fn a_scan_reports_only_missed_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut follower = deaf(&root);
        std::fs::create_dir_all(root.join("sub")).unwrap();
        for (path, text) in [
            ("a.yaml", MAP.to_owned()),
            ("sub/b.yaml", MAP.replace("name: a", "name: b")),
        ] {
            std::fs::write(root.join(path), text).unwrap();
        }
        assert_eq!(news(&mut follower).len(), 2);
        assert_eq!(news(&mut follower), []);
        std::fs::write(root.join("a.yaml"), format!("{MAP}data: {{x: y}}\n")).unwrap();
        std::fs::write(root.join("sub/c.yaml"), "{").unwrap();
        std::fs::remove_file(root.join("sub/b.yaml")).unwrap();
        let told = news(&mut follower);
        assert_eq!(
            told.iter()
                .filter(|news| matches!(news, DirectoryNews::Object(_)))
                .count(),
            2
        );
        assert!(told.iter().any(
            |news| matches!(news, DirectoryNews::Unreadable(unreadable) if unreadable.place == "sub/c.yaml")
        ));
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn every_round_finds_what_no_event_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut follower = deaf(&root);
        let there = |follower: &Follower| {
            let store = follower.shared.store();
            store.references().count()
        };
        let start = Instant::now();
        follower.read_due(start + ROUND);
        std::fs::write(root.join("a.yaml"), MAP).unwrap();
        follower.read_due(start + ROUND * 2 - Duration::from_millis(1));
        assert_eq!(there(&follower), 0);
        follower.read_due(start + ROUND * 2);
        assert_eq!(there(&follower), 1);
    }

    #[test]
    fn a_scan_skips_files_that_are_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut follower = deaf(&root);
        std::fs::write(root.join("a.yaml"), MAP).unwrap();
        follower
            .settling
            .note(root.join("a.yaml"), Touch::Writing, Instant::now());
        assert_eq!(news(&mut follower), []);
        follower.settling = SettlingPaths::new(Duration::ZERO);
        assert_eq!(news(&mut follower).len(), 1);
    }
}
