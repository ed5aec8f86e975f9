//! File events of the system that the follower has not taken yet: each path once, however often it was touched.
//! Their number is bounded; with more, the whole tree is scanned.

use super::settle::Touch;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use transom_core::share::lock::MutexExt as _;

/// With more paths than this, everything is scanned instead.
pub(super) const MOST: usize = 10_000;

/// The events that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The paths, with the last thing that happened to each.
    pub(super) touched: BTreeMap<PathBuf, Touch>,
    /// Some events were missed.
    pub(super) rescan: bool,
    /// The follower must end.
    pub(super) stop: bool,
}

impl Heard {
    fn is_empty(&self) -> bool {
        self.touched.is_empty() && !self.rescan && !self.stop
    }
}

/// Passes events from the system's watcher to the follower.
#[derive(Debug, Default)]
pub(super) struct Signals {
    heard: Mutex<Heard>,
    news: Condvar,
}

impl Signals {
    /// Something happened to a path.
    pub(super) fn touch(&self, path: PathBuf, touch: Touch) {
        let mut heard = self.heard.locked();
        if heard.touched.len() >= MOST && !heard.touched.contains_key(&path) {
            heard.rescan = true;
            // Keep the files that are being written: a scan must not read them.
            heard.touched.retain(|_, touch| *touch == Touch::Writing);
        }
        if heard.touched.len() < MOST || heard.touched.contains_key(&path) {
            let last = heard.touched.entry(path).or_insert(touch);
            *last = if touch == Touch::Other { *last } else { touch };
        }
        drop(heard);
        self.news.notify_one();
    }

    /// Some events were missed: everything must be scanned.
    pub(super) fn rescan(&self) {
        self.heard.locked().rescan = true;
        self.news.notify_one();
    }

    /// The follower must end.
    pub(super) fn stop(&self) {
        self.heard.locked().stop = true;
        self.news.notify_one();
    }

    /// Takes the events; waits for one until a time.
    pub(super) fn wait(&self, until: Instant) -> Heard {
        let mut heard = self.heard.locked();
        while heard.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.news.wait_timeout(heard, left);
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut heard)
    }

    /// Takes the present events without waiting.
    pub(super) fn take(&self) -> Heard {
        std::mem::take(&mut self.heard.locked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn many_signals_of_one_path_become_one_with_the_last_state() {
        let signals = Signals::default();
        for _ in 0..100_000 {
            signals.touch("a".into(), Touch::Writing);
            signals.touch("a".into(), Touch::Other);
        }
        let heard = signals.wait(Instant::now() + Duration::from_secs(60));
        assert_eq!(heard.touched, [("a".into(), Touch::Writing)].into());
        assert!(!heard.rescan && signals.wait(Instant::now()).is_empty());
        signals.touch("a".into(), Touch::Writing);
        signals.touch("a".into(), Touch::Whole);
        assert_eq!(signals.take().touched, [("a".into(), Touch::Whole)].into());
    }

    #[test]
    fn too_many_paths_become_one_full_scan_except_open_files() {
        let signals = Signals::default();
        signals.touch("open".into(), Touch::Writing);
        for index in 0..10 * MOST {
            signals.touch(index.to_string().into(), Touch::Whole);
            assert!(signals.heard.locked().touched.len() <= MOST);
        }
        let heard = signals.take();
        assert!(
            heard.rescan
                && heard.touched.get(std::path::Path::new("open")) == Some(&Touch::Writing)
        );
        for index in 0..3 * MOST {
            signals.touch(index.to_string().into(), Touch::Writing);
        }
        assert!(signals.heard.locked().touched.len() <= MOST && signals.heard.locked().rescan);
    }

    #[test]
    fn wakes_every_waiter() {
        let signals = std::sync::Arc::new(Signals::default());
        let other = std::sync::Arc::clone(&signals);
        let until = Instant::now() + Duration::from_secs(60);
        let waiting = std::thread::spawn(move || other.wait(until).stop);
        signals.stop();
        assert!(waiting.join().unwrap());
    }
}
