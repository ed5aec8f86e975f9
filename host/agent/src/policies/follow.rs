//! A thread that follows the manifests of policies and the component files that they name, and reports what changed. A
//! file that keeps changing does not hold up another.

use super::FoundPolicies;
use super::files::{Listing, PolicyFiles, is_manifest};
use super::settling::{QUIET, SettlingFiles};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use transom_artifacts::Location;
use transom_artifacts::folder::{FileIdentity, Folder};
use transom_core::share::lock::MutexExt as _;

/// Minimum time between two looks, however many events arrive meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum time between two looks: how late a change is found that the system does not report, as on a network file
/// system.
const SLOW: Duration = Duration::from_secs(10);
/// The same when the system reports no events, or there is no path to watch.
const DEAF: Duration = Duration::from_secs(1);
/// Maximum number of watched folders; the slow look finds changes in the others.
const MAX_WATCHED: usize = 1_000;

/// What changed since the last time.
#[derive(Debug, Default)]
pub(super) struct SourceChanges {
    /// All written policies, if any manifest changed; or why they cannot be read.
    pub(super) found: Option<Result<FoundPolicies, String>>,
    /// The component files that changed; `None` for one that is gone.
    pub(super) components: BTreeMap<Location, Option<FileIdentity>>,
}

enum FollowSignal {
    Touched,
    Follow(BTreeSet<Location>),
    Stop,
}

/// A thread that follows files until this is dropped.
pub(super) struct Following {
    signals: Sender<FollowSignal>,
    wanted: BTreeSet<Location>,
}

impl Following {
    /// Follows the manifests at a path, if policies come from files. The first report holds everything.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(
        files: Option<PolicyFiles>,
        tell: UnboundedSender<SourceChanges>,
    ) -> std::io::Result<Self> {
        let (signals, received) = channel();
        let events = signals.clone();
        let mut follower = SourceFollower {
            files,
            ..SourceFollower::default()
        };
        let known = Arc::clone(&follower.names);
        let watcher = notify::recommended_watcher(move |event| {
            if concerns(event, &known) {
                drop(events.send(FollowSignal::Touched));
            }
        });
        follower.watcher = watcher.ok();
        std::thread::Builder::new()
            .name("policies".to_owned())
            .spawn(move || follower.run(&received, &tell))?;
        Ok(Self {
            signals,
            wanted: BTreeSet::new(),
        })
    }

    /// Follows these components from now on, and no others.
    pub(super) fn components(&mut self, wanted: BTreeSet<Location>) {
        if wanted != self.wanted {
            self.wanted.clone_from(&wanted);
            // Fails only when the thread has ended, and nothing is followed any more.
            drop(self.signals.send(FollowSignal::Follow(wanted)));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.signals.send(FollowSignal::Stop));
    }
}

/// File names of the components that are followed.
type ComponentNames = Arc<Mutex<BTreeSet<OsString>>>;

/// Whether an event may be about a manifest or a component. A write to another file, such as a log, is not.
fn concerns(event: notify::Result<Event>, names: &ComponentNames) -> bool {
    let Ok(event) = event else { return true };
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        is_manifest(name) || names.locked().contains(name)
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_)) => event.paths.iter().any(named),
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// The state of the thread.
#[derive(Default)]
struct SourceFollower {
    files: Option<PolicyFiles>,
    components: BTreeSet<Location>,
    names: ComponentNames,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, FileIdentity>,
    manifests: SettlingFiles<PathBuf>,
    fingerprints: SettlingFiles<Location>,
    /// The policies in each manifest.
    read: BTreeMap<PathBuf, FoundPolicies>,
    /// What could not be looked at the last time, or why nothing could.
    broken: Option<Result<FoundPolicies, String>>,
}

impl SourceFollower {
    fn run(mut self, signals: &Receiver<FollowSignal>, tell: &UnboundedSender<SourceChanges>) {
        loop {
            let changed = self.scan(Instant::now());
            let is_empty = changed.found.is_none() && changed.components.is_empty();
            if (!is_empty && tell.send(changed).is_err()) || !self.wait(signals) {
                return;
            }
        }
    }

    /// Waits until there is a reason for another look; false when the thread is to end.
    fn wait(&mut self, signals: &Receiver<FollowSignal>) -> bool {
        let begun = Instant::now();
        let mut until = begun + self.patience();
        loop {
            match signals.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(FollowSignal::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => return true,
                Ok(FollowSignal::Follow(components)) => self.follow(components),
                Ok(FollowSignal::Touched) => {}
            }
            until = until.min(begun + PAUSE);
        }
    }

    fn follow(&mut self, components: BTreeSet<Location>) {
        let name = |component: &Location| Some(component.file()?.1.file_name()?.to_owned());
        let names = components.iter().filter_map(name).collect();
        *self.names.locked() = names;
        self.components = components;
    }

    fn patience(&self) -> Duration {
        match (&self.broken, &self.watcher) {
            _ if !self.manifests.is_quiet() || !self.fingerprints.is_quiet() => QUIET,
            (Some(Err(_)), _) | (_, None) => DEAF,
            _ => SLOW,
        }
    }

    /// Looks at everything that is followed, and reads what changed.
    fn scan(&mut self, now: Instant) -> SourceChanges {
        let fingerprint = |one: &Location| (one.clone(), one.fingerprint());
        let fingerprints = self.components.iter().map(fingerprint).collect();
        let mut components = self.fingerprints.update(now, fingerprints);
        // Forgets components that no policy names any more.
        self.fingerprints
            .retain(|one| self.components.contains(one));
        components.retain(|one, _| self.components.contains(one));
        let Some(files) = self.files.clone() else {
            self.listen(Listing::default());
            let found = None;
            return SourceChanges { found, components };
        };
        let listing = files.list().map_err(|error| error.to_string());
        let found = self.manifests(now, &files, &listing);
        self.listen(listing.unwrap_or_default());
        SourceChanges { found, components }
    }

    /// All written policies, if anything changed.
    fn manifests(
        &mut self,
        now: Instant,
        files: &PolicyFiles,
        listing: &Result<Listing, String>,
    ) -> Option<Result<FoundPolicies, String>> {
        let mut changed = BTreeMap::new();
        if let Ok(Listing { manifests, .. }) = listing {
            let now_there = manifests
                .iter()
                .map(|(path, one)| (path.clone(), Some(*one)));
            changed = self.manifests.update(now, now_there.collect());
        }
        for (path, fingerprint) in &changed {
            match fingerprint {
                Some(_) => drop(self.read.insert(path.clone(), files.read(path))),
                None => drop(self.read.remove(path)),
            }
        }
        let missed = listing.as_ref().map_err(Clone::clone).map(|listing| {
            let mut missed = listing.missed();
            // A file that is not quiet yet was not read, and may hold a policy. When it goes before it was quiet, that
            // is reported, too.
            let mut unread: Vec<_> = self.manifests.moving().collect();
            unread.retain(|path| !self.read.contains_key(*path));
            let unread = unread.into_iter().map(|path| path.display().to_string());
            missed.unread.extend(unread);
            missed
        });
        if changed.is_empty() && self.broken.as_ref() == Some(&missed) {
            return None;
        }
        self.broken = Some(missed.clone());
        let all = missed.map(|mut found| {
            self.read.values().cloned().for_each(|one| found.add(one));
            found
        });
        Some(all)
    }

    /// Watches the folders that matter: those of manifests, and those that components lie in, or would lie in if they
    /// existed.
    fn listen(&mut self, listing: Listing) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let mut wanted = listing.folders;
        for component in &self.components {
            let file = component.file();
            wanted.extend(file.and_then(|(root, path)| nearest(root, &path)));
        }
        self.watched.retain(|path, fingerprint| {
            let now = wanted.get(path).map(FileIdentity::identity);
            let is_wanted = now == Some(fingerprint.identity());
            if !is_wanted {
                // Fails when the folder itself is gone, and with it the watch.
                drop(watcher.unwatch(path));
            }
            is_wanted
        });
        for (path, fingerprint) in wanted {
            if self.watched.len() < MAX_WATCHED && !self.watched.contains_key(&path) {
                // When this fails, the slow look finds what changes.
                drop(watcher.watch(&path, RecursiveMode::NonRecursive));
                self.watched.insert(path, fingerprint);
            }
        }
    }
}

/// The folder of a file below a root, or the nearest existing one above it.
fn nearest(root: &Path, path: &Path) -> Option<(PathBuf, FileIdentity)> {
    let Ok(folder) = Folder::open(root) else {
        // The root may be made later: its parent folder will report that.
        let above = super::folder_of(root);
        let fingerprint = Folder::open(&above).ok()?.stat(Path::new(".")).ok()?.1;
        return Some((above, fingerprint));
    };
    let mut below = path.parent()?;
    loop {
        match folder.stat(below) {
            Ok((_, fingerprint)) => return Some((root.join(below), fingerprint)),
            Err(_) => below = below.parent()?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const POLICY: &str =
        "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: a}\n";

    /// The manifests of one look: how many policies there are, and how many files may hold one.
    fn counts(follower: &mut SourceFollower, at: Instant) -> Option<(usize, usize)> {
        follower.scan(at).found.map(|found| {
            found
                .map(|found| (found.policies.len(), found.unread.len()))
                .unwrap()
        })
    }

    #[test]
    fn reports_a_file_deleted_before_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, begun) = (folder.path().join("a.yaml"), Instant::now());
        let mut follower = SourceFollower {
            files: Some(PolicyFiles::new(folder.path(), None)),
            ..SourceFollower::default()
        };
        fs::write(&path, POLICY).unwrap();
        // Not quiet yet: it may hold a policy.
        assert_eq!(counts(&mut follower, begun), Some((0, 1)));
        assert_eq!(counts(&mut follower, begun + PAUSE), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(counts(&mut follower, begun + PAUSE), Some((0, 0)));
        assert_eq!(counts(&mut follower, begun + QUIET), None);
        fs::write(&path, POLICY).unwrap();
        assert_eq!(counts(&mut follower, begun + QUIET), Some((0, 1)));
        assert_eq!(counts(&mut follower, begun + QUIET * 2), Some((1, 0)));
        // What was read stays until it has been gone for a while.
        fs::remove_file(&path).unwrap();
        assert_eq!(counts(&mut follower, begun + QUIET * 3), None);
        assert_eq!(counts(&mut follower, begun + QUIET * 4), Some((0, 0)));
    }
}
