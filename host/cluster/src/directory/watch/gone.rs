//! When an object is gone that no file has any more: once its folder is quiet, or it was away for long.

use super::super::change::DirectoryNews;
use super::super::load::{self, Scanned};
use super::super::settle::{OPEN, QUIET};
use super::super::tree::{FilePlace, Layer, is_manifest};
use super::{Follower, ROUND};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transom_core::reference::ObjectRef;

/// How many settling times one object may be away if files change all the time. As long as a program may keep a file
/// open for writing.
const AWAY: u32 = OPEN;
/// Of how much time the search for what is gone takes at most one part: a scan of many files takes long.
const SHARE: u32 = 10;
/// How often files are read that change while everything is scanned.
const ROUNDS: u32 = 5;

impl Follower {
    /// Whether a path is that of a user's manifest, or of a folder with some. Others do not matter: a log is written
    /// all the time.
    pub(super) fn is_users(&self, path: &Path) -> bool {
        let place = self.shared.tree().place(path);
        place
            .filter(|place| place.layer == Layer::User)
            .is_some_and(|place| {
                is_manifest(path) || self.shared.store().below(&place).next().is_some()
            })
    }

    /// Whether a user's file changed and was not read since.
    fn is_busy(&self) -> bool {
        self.settling.any(|path| self.is_users(path))
    }

    /// Whether a user's file is being written. It may have any object.
    fn is_written(&self) -> bool {
        self.settling.writes(|path| self.is_users(path))
    }

    /// Since when the first object has been leaving. While the root cannot be listed, no object is gone: its files may
    /// have been removed with the root.
    fn leaving_since(&self) -> Option<Instant> {
        let root = FilePlace::new(Layer::User, Path::new(""));
        let store = self.shared.store();
        let is_open = !store.closed_folders(None).contains(&root);
        store.leaving_since().filter(|_| is_open)
    }

    /// When the next object is gone that no file has any more, if nothing changes.
    pub(super) fn next_gone(&self) -> Option<Instant> {
        let since = self.leaving_since().filter(|_| !self.is_written())?;
        let late = since + self.settle * AWAY;
        let quiet = (!self.is_busy()).then(|| since.max(self.changed) + self.settle * QUIET);
        let next = quiet.map_or(late, |quiet| quiet.min(late));
        Some(next.max(self.next_search))
    }

    /// The objects that no file had for so long that they are gone.
    pub(super) fn gone(&self, now: Instant) -> BTreeSet<Arc<ObjectRef>> {
        if self.leaving_since().is_none() || self.is_written() {
            return BTreeSet::new();
        }
        let quiet = !self.is_busy() && self.changed + self.settle * QUIET <= now;
        let wait = self.settle * if quiet { QUIET } else { AWAY };
        self.shared.store().leaving(|since| since + wait <= now)
    }

    /// Scans everything.
    pub(super) fn scan_all(&mut self, now: Instant) -> Scanned {
        self.rescan = now + ROUND;
        let start = Instant::now();
        let found = self.scan(None);
        self.scanned(now, start.elapsed());
        found
    }

    /// Everything was scanned from a time on. The next search has to wait, also if nothing could be let go.
    fn scanned(&mut self, now: Instant, took: Duration) {
        self.next_search = now + (self.settle * QUIET).max(took * SHARE);
    }

    /// Lets those of these objects go that are still gone after everything was scanned.
    pub(super) fn let_go(
        &mut self,
        gone: &BTreeSet<Arc<ObjectRef>>,
        now: Instant,
    ) -> Vec<DirectoryNews> {
        let mut news = Vec::new();
        let mut rounds = 0..ROUNDS;
        // The scan left out what was changing, and one of these files may have an object now. No quiet moment is
        // awaited here, because there may be none.
        while !(gone & &self.gone(now)).is_empty() && self.is_busy() && rounds.next().is_some() {
            news.extend(self.read_whole(now));
        }
        if !self.is_busy() {
            news.extend(load::let_go(&self.shared, &(gone & &self.gone(now))));
        }
        news
    }

    /// Reads the files that are complete, although more may follow.
    fn read_whole(&mut self, now: Instant) -> Vec<DirectoryNews> {
        let mut found = Scanned::default();
        for path in self.settling.take_whole() {
            found.add(self.scan_path(&path));
        }
        let edits = load::read_files(&self.shared, found.files);
        self.catch_up();
        let edits = self.complete(edits);
        let mut news = found.news;
        news.extend(load::take_over_at(&self.shared, edits, Some(now)));
        news
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::settle::{SettlingPaths, Touch};
    use super::super::super::signals::Heard;
    use super::super::tests::{MAP, deaf, news};
    use super::*;
    use std::time::Duration;

    /// Settling times after which a round is due.
    const ROUND_AT: u32 = 2000;

    /// A follower with the file `a.yaml`, and its clock, in settling times.
    fn with_a(root: &Path) -> (Follower, impl Fn(u32) -> Instant) {
        let mut follower = deaf(root);
        follower.settle = Duration::from_millis(100);
        follower.settling = SettlingPaths::new(follower.settle);
        std::fs::write(root.join("a.yaml"), MAP).unwrap();
        news(&mut follower);
        let (start, settle) = (Instant::now() + Duration::from_secs(1), follower.settle);
        (follower, move |at| start + settle * at)
    }

    /// The same, after `a.yaml` was removed at 0.
    fn without_a(root: &Path) -> (Follower, impl Fn(u32) -> Instant) {
        let (mut follower, at) = with_a(root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
        (follower, at)
    }

    /// The files whose object is there, after an event and a look.
    fn after(follower: &mut Follower, path: Option<&Path>, now: Instant) -> Vec<String> {
        let touched = path.map(|path| (path.to_owned(), Touch::Whole));
        let touched = touched.into_iter().collect();
        let (rescan, stop) = (false, false);
        let heard = Heard {
            touched,
            rescan,
            stop,
        };
        follower.note(heard, now);
        if follower.settling.next_due().is_some_and(|due| due <= now)
            || follower.next_gone().is_some_and(|due| due <= now)
        {
            follower.read_due(now);
        }
        let store = follower.shared.store();
        let there = store.references().filter_map(|one| store.users_file(one));
        there.map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn an_object_that_moves_slowly_is_never_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = without_a(&root);
        for step in 1..15 {
            assert_eq!(after(&mut follower, None, at(step)), ["a.yaml"]);
        }
        std::fs::write(root.join("b.yaml"), MAP).unwrap();
        after(&mut follower, Some(&root.join("b.yaml")), at(15));
        assert_eq!(after(&mut follower, None, at(16)), ["b.yaml"]);
        assert_eq!(follower.next_gone(), None);
        // A file without an event is found before its object counts as gone.
        std::fs::rename(root.join("b.yaml"), root.join("c.yaml")).unwrap();
        after(&mut follower, Some(&root.join("b.yaml")), at(20));
        assert_eq!(after(&mut follower, None, at(21)), ["b.yaml"]);
        assert_eq!(after(&mut follower, None, at(21 + QUIET)), ["c.yaml"]);
    }

    #[test]
    fn an_object_stays_while_scans_without_events_find_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = with_a(&root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        follower.read_due(at(ROUND_AT));
        for step in 1..4 {
            let name = format!("n{step}.yaml");
            std::fs::write(root.join(&name), MAP.replace("name: a", "name: n")).unwrap();
            let there = after(&mut follower, None, at(ROUND_AT + step * QUIET));
            assert_eq!(there.first().map(String::as_str), Some("a.yaml"), "{step}");
        }
        std::fs::write(root.join("z.yaml"), MAP).unwrap();
        let there = after(&mut follower, None, at(ROUND_AT + 4 * QUIET));
        assert_eq!(there.first().map(String::as_str), Some("z.yaml"));
    }

    #[test]
    fn an_object_stays_while_the_root_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("fleet");
        std::fs::create_dir(&root).unwrap();
        let (mut follower, at) = with_a(&root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
        after(&mut follower, None, at(1));
        std::fs::remove_dir(&root).unwrap();
        let there = after(&mut follower, None, at(1 + QUIET));
        assert_eq!(there, ["a.yaml"]);
        assert_eq!(follower.next_gone(), None);
        std::fs::create_dir(&root).unwrap();
        follower.read_due(at(2 * AWAY));
        assert_eq!(after(&mut follower, None, at(3 * AWAY)), [""; 0]);
    }

    #[test]
    fn an_object_stays_while_the_next_version_is_filled() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("fleet");
        let next = root.with_file_name("next");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(&next).unwrap();
        let (mut follower, at) = with_a(&root);
        std::fs::rename(&root, root.with_file_name("last")).unwrap();
        std::os::unix::fs::symlink("next", &root).unwrap();
        follower.read_due(at(1));
        assert_eq!(*follower.shared.tree().root, *next);
        assert_eq!(after(&mut follower, None, at(QUIET)), ["a.yaml"]);
        std::fs::write(next.join("b.yaml"), MAP).unwrap();
        let found = (1..10).find(|more| after(&mut follower, None, at(QUIET + more)) == ["b.yaml"]);
        assert!(found.is_some());
        // And so again if nothing comes.
        std::fs::create_dir(root.with_file_name("empty")).unwrap();
        std::fs::remove_file(&root).unwrap();
        std::os::unix::fs::symlink("empty", &root).unwrap();
        follower.read_due(at(5 * QUIET));
        let there = after(&mut follower, None, at(6 * QUIET - 1));
        assert_eq!(there, ["b.yaml"]);
        assert_eq!(after(&mut follower, None, at(6 * QUIET)), [""; 0]);
    }

    #[test]
    fn an_object_is_gone_once_its_folder_is_quiet_or_it_was_away_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = without_a(&root);
        assert_eq!(after(&mut follower, None, at(1)), ["a.yaml"]);
        assert_eq!(after(&mut follower, None, at(QUIET)), ["a.yaml"]);
        assert_eq!(after(&mut follower, None, at(1 + QUIET)), [""; 0]);
        let (mut follower, at) = with_a(&root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
        let other = root.join("b.yaml");
        for step in 1..=AWAY {
            let there = after(&mut follower, Some(&other), at(step));
            assert_eq!(there, ["a.yaml"], "{step}");
        }
        let mut late = 1..=QUIET;
        let gone = late.find(|more| after(&mut follower, Some(&other), at(AWAY + more)).is_empty());
        assert!(gone.is_some());
    }

    #[test]
    fn a_busy_folder_has_no_object_deleted_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = without_a(&root);
        for step in 1..AWAY {
            after(&mut follower, Some(&root.join("b.yaml")), at(step));
        }
        after(&mut follower, None, at(AWAY + 4));
        // It is there again, and its event too, but it has not settled.
        std::fs::write(root.join("c.yaml"), MAP).unwrap();
        let there = after(&mut follower, Some(&root.join("c.yaml")), at(AWAY + 6));
        assert_eq!(there, ["c.yaml"]);
        assert!(!follower.is_busy());
    }

    #[test]
    fn no_object_is_gone_while_a_manifest_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = without_a(&root);
        after(&mut follower, None, at(1));
        let written = root.join("b.yaml");
        follower.settling.note(written, Touch::Writing, at(AWAY));
        assert_eq!(follower.next_gone(), None);
        follower.read_due(at(AWAY + 5));
        assert_eq!(after(&mut follower, None, at(AWAY + 5)), ["a.yaml"]);
        std::fs::write(root.join("b.yaml"), MAP).unwrap();
        after(&mut follower, Some(&root.join("b.yaml")), at(AWAY + 6));
        assert_eq!(after(&mut follower, None, at(AWAY + 7)), ["b.yaml"]);
    }

    #[test]
    fn what_is_no_manifest_does_not_keep_an_object() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("logs")).unwrap();
        let (mut follower, at) = with_a(&root);
        std::fs::write(root.join("keep.yaml"), MAP.replace("name: a", "name: k")).unwrap();
        news(&mut follower);
        assert!(follower.is_users(&root) && !follower.is_users(&root.join("logs")));
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
        for step in 1..=QUIET {
            let there = after(&mut follower, Some(&root.join("logs/x.log")), at(step));
            assert_eq!(there, ["a.yaml", "keep.yaml"], "{step}");
        }
        let there = after(&mut follower, Some(&root.join("README")), at(1 + 2 * QUIET));
        assert_eq!(there, ["keep.yaml"]);
    }

    #[test]
    fn a_search_of_many_files_is_not_repeated_soon() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = without_a(&root);
        after(&mut follower, None, at(1));
        follower.scanned(at(1), follower.settle * QUIET);
        assert_eq!(follower.next_gone(), Some(at(1 + SHARE * QUIET)));
        follower.read_due(at(SHARE * QUIET));
        assert_eq!(after(&mut follower, None, at(SHARE * QUIET)), ["a.yaml"]);
        assert_eq!(after(&mut follower, None, at(1 + SHARE * QUIET)), [""; 0]);
        follower.scanned(at(0), Duration::ZERO);
        assert_eq!(follower.next_search, at(QUIET));
    }
}
