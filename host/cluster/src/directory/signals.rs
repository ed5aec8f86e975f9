//! What the system told since the follower looked last: each path once, however often it was touched.
//! Never holds more paths than reading the whole tree once is worth.

use super::settle::Touch;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// More paths than this are not told one by one: everything is looked at again.
pub(super) const MOST: usize = 10_000;

/// What was told and not taken yet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Paths, with what happened to them last.
    pub(super) touched: BTreeMap<PathBuf, Touch>,
    /// Something was missed.
    pub(super) rescan: bool,
    /// The follower is to end.
    pub(super) stop: bool,
}

impl Heard {
    fn is_empty(&self) -> bool {
        self.touched.is_empty() && !self.rescan && !self.stop
    }
}

/// The place where those who hear and the one who follows meet.
#[derive(Debug, Default)]
pub(super) struct Signals {
    heard: Mutex<Heard>,
    news: Condvar,
}

impl Signals {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened to a path.
    pub(super) fn touch(&self, path: PathBuf, touch: Touch) {
        let mut heard = self.heard();
        if heard.touched.len() >= MOST && !heard.touched.contains_key(&path) {
            heard.rescan = true;
            // A file that is being written is not to be read by a look at everything.
            heard.touched.retain(|_, touch| *touch == Touch::Writing);
        }
        if heard.touched.len() < MOST || heard.touched.contains_key(&path) {
            let last = heard.touched.entry(path).or_insert(touch);
            *last = if touch == Touch::Other { *last } else { touch };
        }
        drop(heard);
        self.news.notify_one();
    }

    /// Something was missed: everything is to be looked at.
    pub(super) fn rescan(&self) {
        self.heard().rescan = true;
        self.news.notify_one();
    }

    /// The follower is to end.
    pub(super) fn stop(&self) {
        self.heard().stop = true;
        self.news.notify_one();
    }

    /// Takes what was told; waits for something until then, or for ever.
    pub(super) fn wait(&self, until: Option<Instant>) -> Heard {
        let mut heard = self.heard();
        while heard.is_empty() {
            heard = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.news.wait(heard).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => self.news.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        std::mem::take(&mut heard)
    }

    /// Takes what was told until now.
    pub(super) fn take(&self) -> Heard {
        std::mem::take(&mut self.heard())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_path_is_one_and_its_last_state_counts() {
        let signals = Signals::default();
        for _ in 0..100_000 {
            signals.touch("a".into(), Touch::Writing);
            signals.touch("a".into(), Touch::Other);
        }
        let heard = signals.wait(None);
        assert_eq!(heard.touched, [("a".into(), Touch::Writing)].into());
        assert!(!heard.rescan && signals.wait(Some(Instant::now())).is_empty());
        signals.touch("a".into(), Touch::Writing);
        signals.touch("a".into(), Touch::Whole);
        assert_eq!(signals.take().touched, [("a".into(), Touch::Whole)].into());
    }

    #[test]
    fn a_flood_of_paths_is_one_look_at_everything_but_what_is_being_written() {
        let signals = Signals::default();
        signals.touch("open".into(), Touch::Writing);
        for index in 0..10 * MOST {
            signals.touch(index.to_string().into(), Touch::Whole);
            assert!(signals.heard().touched.len() <= MOST);
        }
        let heard = signals.take();
        assert!(heard.rescan && heard.touched.get(std::path::Path::new("open")) == Some(&Touch::Writing));
        for index in 0..3 * MOST {
            signals.touch(index.to_string().into(), Touch::Writing);
        }
        assert!(signals.heard().touched.len() <= MOST && signals.heard().rescan);
    }

    #[test]
    fn whoever_waits_is_woken() {
        let signals = std::sync::Arc::new(Signals::default());
        let other = std::sync::Arc::clone(&signals);
        let waiting = std::thread::spawn(move || other.wait(None).stop);
        signals.stop();
        assert!(waiting.join().unwrap());
    }
}
