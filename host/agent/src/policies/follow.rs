//! A thread that follows the manifests of policies and the component files that they name, and reports what changed. A
//! file that keeps changing does not hold up another.

mod file_events;

use super::FoundPolicies;
use super::files::{Listing, PolicyFiles};
use super::settling::{MOST_WRITTEN, SettlingFiles, SettlingTime};
use file_events::{ComponentNames, TouchedManifests, concerns};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use transom_artifacts::Location;
use transom_artifacts::folder::{FileIdentity, Folder};
use transom_cluster::directory::{OPEN, SETTLE};
use transom_core::share::lock::MutexExt as _;

/// Minimum time between two looks, however many events arrive meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum time between two looks: how late a change is found that the system does not report, as on a network file
/// system.
const SLOW: Duration = Duration::from_secs(10);
/// The same when the system reports no events, or there is no path to watch.
const DEAF: Duration = Duration::from_secs(1);
/// The same while a change settles.
const SETTLING: Duration = Duration::from_millis(200);
/// How long at most a policy stays that no manifest has any more, if manifests change all the time.
const AWAY: Duration = SETTLE.saturating_mul(OPEN);
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
    /// `None` when events were missed.
    Touched(Option<Event>),
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
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let event = event.ok();
            if event.as_ref().is_none_or(|event| concerns(event, &known)) {
                drop(events.send(FollowSignal::Touched(event)));
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

/// The state of the thread.
#[derive(Default)]
struct SourceFollower {
    files: Option<PolicyFiles>,
    components: BTreeSet<Location>,
    names: ComponentNames,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, FileIdentity>,
    manifests: SettlingFiles<PathBuf>,
    touched: TouchedManifests,
    fingerprints: SettlingFiles<Location>,
    /// The policies in each manifest.
    read: BTreeMap<PathBuf, FoundPolicies>,
    /// The file that each manifest was read from: its path may lead through links.
    files_read: BTreeMap<PathBuf, PathBuf>,
    /// The manifests that changed or went, and when. What was written there may be written elsewhere in a moment.
    left: BTreeMap<PathBuf, Instant>,
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
                Ok(FollowSignal::Touched(event)) => self.touched.note(event),
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
            _ if !self.manifests.is_quiet() || !self.fingerprints.is_quiet() => SETTLING,
            _ if !self.left.is_empty() => SETTLING,
            (Some(Err(_)), _) | (_, None) => DEAF,
            _ => SLOW,
        }
    }

    /// Looks at everything that is followed, and reads what changed.
    fn scan(&mut self, now: Instant) -> SourceChanges {
        let fingerprint = |one: &Location| (one.clone(), one.fingerprint());
        let fingerprints = self.components.iter().map(fingerprint).collect();
        let time = |_: &Location, _| SettlingTime::REPLACED;
        let mut components = self.fingerprints.update(now, fingerprints, time);
        // Forgets components that no policy names any more.
        let named = |one: &Location| self.components.contains(one);
        self.fingerprints.retain(named);
        components.retain(|one, _| named(one));
        let Some(files) = self.files.clone() else {
            self.touched = TouchedManifests::default();
            self.listen(Listing::default());
            return SourceChanges {
                found: None,
                components,
            };
        };
        let listing = files.list().map_err(|error| error.to_string());
        let found = self.manifests(now, &files, &listing);
        self.listen(listing.unwrap_or_default());
        SourceChanges { found, components }
    }

    /// The manifests that count from now on.
    fn settled(
        &mut self,
        now: Instant,
        there: BTreeMap<PathBuf, Option<FileIdentity>>,
    ) -> BTreeMap<PathBuf, Option<FileIdentity>> {
        let Self {
            touched,
            files_read,
            ..
        } = self;
        let time = |path: &PathBuf, fingerprint: Option<FileIdentity>| match touched.time(path) {
            SettlingTime::IN_PLACE
                if fingerprint.is_none() || is_exchanged(path, files_read.get(path)) =>
            {
                SettlingTime::REPLACED
            }
            time => time,
        };
        let mut unread: BTreeSet<_> = self.manifests.moving().cloned().collect();
        unread.retain(|path| !self.read.contains_key(path));
        let changed = self.manifests.update(now, there, time);
        let moving: BTreeSet<_> = self.manifests.moving().collect();
        self.touched.retain(moving.iter().copied());
        // A manifest that went before it was quiet may hold a policy that was read at the start.
        unread.retain(|path| !moving.contains(path));
        let left = changed.keys().cloned().chain(unread);
        self.left.extend(left.zip(std::iter::repeat(now)));
        let rests = self.manifests.rests(now);
        let is_written = self.touched.any_written();
        self.left.retain(|_, since| {
            let most = AWAY * if is_written { MOST_WRITTEN } else { 1 };
            let is_away = now.duration_since(*since) >= most;
            !rests && !is_away
        });
        changed
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
            let there = manifests
                .iter()
                .map(|(path, one)| (path.clone(), Some(*one)));
            changed = self.settled(now, there.collect());
        }
        for (path, fingerprint) in &changed {
            match fingerprint {
                Some(_) => {
                    self.read.insert(path.clone(), files.read(path));
                    let file = path.canonicalize().unwrap_or_default();
                    self.files_read.insert(path.clone(), file);
                }
                None => {
                    self.read.remove(path);
                    self.files_read.remove(path);
                }
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
            let left = self.left.keys().map(|path| path.display().to_string());
            missed.unread.extend(left);
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

/// Whether a path leads through a link to another file than the one that was read. Then nobody writes what was there.
fn is_exchanged(path: &Path, before: Option<&PathBuf>) -> bool {
    match before {
        Some(before) => path.canonicalize().is_ok_and(|now| now != *before),
        None => path.is_symlink(),
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
    use std::os::unix::fs::symlink;
    use transom_cluster::directory::QUIET;

    const POLICY: &str =
        "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: a}\n";

    /// Follows the manifests in a folder, of which the system reports nothing.
    fn follower(folder: &Path) -> (SourceFollower, impl Fn(u32) -> Instant) {
        let begun = Instant::now();
        let follower = SourceFollower {
            files: Some(PolicyFiles::new(folder, None)),
            ..SourceFollower::default()
        };
        (follower, move |at| begun + SETTLE * at)
    }

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
        let path = folder.path().join("a.yaml");
        let (mut follower, at) = follower(folder.path());
        fs::write(&path, POLICY).unwrap();
        // Not quiet yet: it may hold a policy.
        assert_eq!(counts(&mut follower, at(0)), Some((0, 1)));
        assert_eq!(counts(&mut follower, at(1)), None);
        // It may be written again in a moment: what was read there at the start is not gone.
        fs::remove_file(&path).unwrap();
        assert_eq!(counts(&mut follower, at(1)), None);
        assert_eq!(counts(&mut follower, at(QUIET)), None);
        assert_eq!(counts(&mut follower, at(1 + QUIET)), Some((0, 0)));
        fs::write(&path, POLICY).unwrap();
        assert_eq!(counts(&mut follower, at(20)), Some((0, 1)));
        assert_eq!(counts(&mut follower, at(19 + QUIET)), None);
        assert_eq!(counts(&mut follower, at(20 + QUIET)), Some((1, 0)));
    }

    #[test]
    fn what_no_manifest_has_any_more_is_not_gone_until_no_manifest_changed_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
        let (mut follower, at) = follower(folder.path());
        fs::write(&a, POLICY).unwrap();
        counts(&mut follower, at(0));
        assert_eq!(counts(&mut follower, at(QUIET)), Some((1, 0)));
        // Its file may be written again, under this name or another one.
        fs::remove_file(&a).unwrap();
        assert_eq!(counts(&mut follower, at(100)), None);
        assert_eq!(counts(&mut follower, at(102)), Some((0, 1)));
        assert_eq!(counts(&mut follower, at(99 + QUIET)), None);
        fs::write(&b, POLICY).unwrap();
        assert_eq!(counts(&mut follower, at(99 + QUIET)), Some((0, 2)));
        assert_eq!(counts(&mut follower, at(99 + 2 * QUIET)), Some((1, 0)));
        // And so in a file that stays.
        fs::write(&b, "").unwrap();
        assert_eq!(counts(&mut follower, at(200)), None);
        fs::write(&a, "").unwrap();
        assert_eq!(counts(&mut follower, at(201)), Some((1, 1)));
        assert_eq!(counts(&mut follower, at(200 + QUIET)), Some((0, 2)));
        assert_eq!(counts(&mut follower, at(201 + QUIET)), Some((0, 0)));
        // A file that changes all the time does not keep it for ever.
        fs::write(&a, POLICY).unwrap();
        counts(&mut follower, at(300));
        assert_eq!(counts(&mut follower, at(300 + QUIET)), Some((1, 0)));
        fs::remove_file(&a).unwrap();
        let told = (400..500 + OPEN).filter_map(|look| {
            fs::write(&b, format!("# {look}")).unwrap();
            Some((look, counts(&mut follower, at(look))?))
        });
        // That file is read after a while as it is.
        let gone = [(402, (0, 1)), (400 + OPEN, (0, 2)), (402 + OPEN, (0, 1))];
        assert_eq!(told.collect::<Vec<_>>(), gone);
    }

    #[test]
    fn a_manifest_that_is_written_settles_longer_than_one_that_is_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (
            folder.path().join("a.yaml"),
            folder.path().join("link.yaml"),
        );
        for (number, policy) in [(1, POLICY.to_owned()), (2, POLICY.replace(": a", ": b"))] {
            let version = folder.path().join(format!("..{number}"));
            fs::create_dir(&version).unwrap();
            fs::write(version.join("link.yaml"), policy).unwrap();
        }
        symlink("..1", folder.path().join("..data")).unwrap();
        symlink("..data/link.yaml", &link).unwrap();
        let (mut follower, at) = follower(folder.path());
        counts(&mut follower, at(0));
        assert_eq!(counts(&mut follower, at(2)), Some((1, 1)));
        assert_eq!(counts(&mut follower, at(QUIET)), Some((1, 0)));
        symlink("..2", folder.path().join("..next")).unwrap();
        fs::rename(folder.path().join("..next"), folder.path().join("..data")).unwrap();
        fs::write(&path, POLICY).unwrap();
        counts(&mut follower, at(100));
        let found = follower.scan(at(102)).found.unwrap().unwrap();
        assert_eq!(found.policies[0].name(), Some("b"));
        // The other file is not read, and what the link led to may be written there.
        assert_eq!(found.unread.len(), 2);
        assert_eq!(counts(&mut follower, at(99 + QUIET)), None);
        assert_eq!(counts(&mut follower, at(100 + QUIET)), Some((2, 0)));
        // Through the same link, but in place.
        fs::write(folder.path().join("..2/link.yaml"), "").unwrap();
        counts(&mut follower, at(200));
        assert_eq!(counts(&mut follower, at(199 + QUIET)), None);
        assert_eq!(counts(&mut follower, at(200 + QUIET)), Some((1, 0)));
    }
}
