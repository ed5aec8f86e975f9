//! When an object is gone that no file has any more: once its folder is quiet, or it was away for long.

use super::super::tree::{Layer, Place};
use super::Follower;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use transom_core::reference::ObjectRef;

/// How many settling times no file of the user changes before objects that no file has any more are gone. Longer than
/// files settle: a program that moves files may write the first one long after it removed the last one.
const QUIET: u32 = 20;
/// The same of one object, if files change all the time.
const AWAY: u32 = 100;

impl Follower {
    /// Whether a path may be that of a user's file.
    pub(super) fn is_users(&self, path: &Path) -> bool {
        let place = self.shared.tree().place(path);
        place.is_some_and(|place| place.layer == Layer::User)
    }

    /// Whether a user's file changed and was not read since.
    fn is_busy(&self) -> bool {
        self.settling.any(|path| self.is_users(path))
    }

    /// Since when the first object has been leaving. While the root cannot be listed, no object is gone: its files may
    /// have been removed with the root.
    fn leaving_since(&self) -> Option<Instant> {
        let root = Place::new(Layer::User, Path::new(""));
        let store = self.shared.store();
        let is_open = !store.closed_folders(None).contains(&root);
        store.leaving_since().filter(|_| is_open)
    }

    /// When the next object is gone that no file has any more, if nothing changes.
    pub(super) fn next_gone(&self) -> Option<Instant> {
        let since = self.leaving_since()?;
        let late = since + self.settle * AWAY;
        let quiet = (!self.is_busy()).then(|| since.max(self.changed) + self.settle * QUIET);
        Some(quiet.map_or(late, |quiet| quiet.min(late)))
    }

    /// The objects that no file had for so long that they are gone.
    pub(super) fn gone(&self, now: Instant) -> BTreeSet<Arc<ObjectRef>> {
        if self.leaving_since().is_none() {
            return BTreeSet::new();
        }
        let quiet = !self.is_busy() && self.changed + self.settle * QUIET <= now;
        let wait = self.settle * if quiet { QUIET } else { AWAY };
        self.shared.store().leaving(|since| since + wait <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::settle::{Settling, Touch};
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
        follower.settling = Settling::new(follower.settle);
        std::fs::write(root.join("a.yaml"), MAP).unwrap();
        news(&mut follower);
        let (start, settle) = (Instant::now() + Duration::from_secs(1), follower.settle);
        (follower, move |at| start + settle * at)
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
            follower.look(now);
        }
        let store = follower.shared.store();
        let there = store.references().filter_map(|one| store.users_file(one));
        there.map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn an_object_that_moves_slowly_is_never_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = with_a(&root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
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
        follower.look(at(ROUND_AT));
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
        follower.look(at(2 * AWAY));
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
        follower.look(at(1));
        assert_eq!(*follower.shared.tree().root, *next);
        assert_eq!(after(&mut follower, None, at(QUIET)), ["a.yaml"]);
        std::fs::write(next.join("b.yaml"), MAP).unwrap();
        let found = (1..10).find(|more| after(&mut follower, None, at(QUIET + more)) == ["b.yaml"]);
        assert!(found.is_some());
        // And so again if nothing comes.
        std::fs::create_dir(root.with_file_name("empty")).unwrap();
        std::fs::remove_file(&root).unwrap();
        std::os::unix::fs::symlink("empty", &root).unwrap();
        follower.look(at(5 * QUIET));
        let there = after(&mut follower, None, at(6 * QUIET - 1));
        assert_eq!(there, ["b.yaml"]);
        assert_eq!(after(&mut follower, None, at(6 * QUIET)), [""; 0]);
    }

    #[test]
    fn an_object_is_gone_once_its_folder_is_quiet_or_it_was_away_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (mut follower, at) = with_a(&root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
        assert_eq!(after(&mut follower, None, at(1)), ["a.yaml"]);
        assert_eq!(after(&mut follower, None, at(QUIET)), ["a.yaml"]);
        assert_eq!(after(&mut follower, None, at(1 + QUIET)), [""; 0]);
        let (mut follower, at) = with_a(&root);
        std::fs::remove_file(root.join("a.yaml")).unwrap();
        after(&mut follower, Some(&root.join("a.yaml")), at(0));
        for step in 1..=AWAY {
            let other = root.join("b.yaml");
            let there = after(&mut follower, Some(&other), at(step));
            assert_eq!(there, ["a.yaml"], "{step}");
        }
        let gone = (1..=10).find(|more| after(&mut follower, None, at(AWAY + more)).is_empty());
        assert!(gone.is_some());
    }
}
