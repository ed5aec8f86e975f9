//! Decides when the content of a file counts: after it has been the same for a while, or after it has kept changing for
//! too long. Each file counts on its own. Does no I/O and reads no clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use transom_artifacts::folder::FileIdentity;
use transom_cluster::directory::{OPEN, QUIET, SETTLE};

/// How many times longer than any other a file may take that a program keeps writing.
pub(super) const MOST_WRITTEN: u32 = 10;

/// How long a file must stay the same before it counts, so that it is not read half written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SettlingTime {
    quiet: Duration,
    /// A file that keeps changing for this long counts as it is.
    most: Duration,
}

impl SettlingTime {
    /// Of a file that is replaced as a whole, or that is checked as a whole when it is loaded.
    pub(super) const REPLACED: Self = Self {
        quiet: Duration::from_millis(200),
        most: Duration::from_secs(2),
    };
    /// Of a file that is written in place: the writer may pause.
    pub(super) const IN_PLACE: Self = Self {
        quiet: SETTLE.saturating_mul(QUIET),
        most: SETTLE.saturating_mul(OPEN),
    };
    /// Of a file that a program still has open for writing.
    pub(super) const OPEN: Self = Self {
        quiet: SETTLE.saturating_mul(OPEN),
        most: SETTLE.saturating_mul(OPEN * MOST_WRITTEN),
    };

    fn is_over(self, now: Instant, moving: (Instant, Instant)) -> bool {
        let (since, first) = moving;
        now.duration_since(since) >= self.quiet || now.duration_since(first) >= self.most
    }
}

/// Files with the fingerprint that counts, and those with a change that does not count yet. A fingerprint stands for a
/// content.
#[derive(Debug)]
pub(super) struct SettlingFiles<K, M = FileIdentity> {
    taken: BTreeMap<K, M>,
    moving: BTreeMap<K, Moving<M>>,
    /// When a change was last seen.
    changed: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Moving<M> {
    fingerprint: Option<M>,
    since: Instant,
    first: Instant,
}

impl<K, M> Default for SettlingFiles<K, M> {
    fn default() -> Self {
        Self {
            taken: BTreeMap::new(),
            moving: BTreeMap::new(),
            changed: None,
        }
    }
}

impl<K: Clone + Ord, M: Copy + PartialEq> SettlingFiles<K, M> {
    /// Takes the current fingerprints of files, and returns those that count from now on. `time`: how long a file that
    /// changed takes to settle.
    pub(super) fn update(
        &mut self,
        now: Instant,
        mut there: BTreeMap<K, Option<M>>,
        time: impl Fn(&K, Option<M>) -> SettlingTime,
    ) -> BTreeMap<K, Option<M>> {
        for known in self.taken.keys().chain(self.moving.keys()) {
            there.entry(known.clone()).or_default();
        }
        there.retain(|key, fingerprint| self.settled(now, key, *fingerprint, &time));
        for (key, fingerprint) in &there {
            match fingerprint {
                Some(fingerprint) => drop(self.taken.insert(key.clone(), *fingerprint)),
                None => drop(self.taken.remove(key)),
            }
        }
        there
    }

    fn settled(
        &mut self,
        now: Instant,
        key: &K,
        fingerprint: Option<M>,
        time: impl Fn(&K, Option<M>) -> SettlingTime,
    ) -> bool {
        if self.taken.get(key) == fingerprint.as_ref() {
            if self.moving.remove(key).is_some() {
                self.changed = Some(now);
            }
            return false;
        }
        let moving = self.moving.entry(key.clone()).or_insert_with(|| {
            self.changed = Some(now);
            Moving {
                fingerprint,
                since: now,
                first: now,
            }
        });
        if moving.fingerprint != fingerprint {
            (moving.fingerprint, moving.since) = (fingerprint, now);
            self.changed = Some(now);
        }
        let settled = time(key, fingerprint).is_over(now, (moving.since, moving.first));
        if settled {
            self.moving.remove(key);
        }
        settled
    }

    /// Whether no file has a change that does not count yet.
    pub(super) fn is_quiet(&self) -> bool {
        self.moving.is_empty()
    }

    /// Whether every change counts, and no file changed for the settling time of one that is written in place.
    pub(super) fn rests(&self, now: Instant) -> bool {
        let quiet = |changed| now.duration_since(changed) >= SettlingTime::IN_PLACE.quiet;
        self.is_quiet() && self.changed.is_none_or(quiet)
    }

    /// The files with a change that does not count yet.
    pub(super) fn moving(&self) -> impl Iterator<Item = &K> {
        self.moving.keys()
    }

    /// Forgets the files that are not wanted any more.
    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&K) -> bool) {
        self.taken.retain(|key, _| wanted(key));
        self.moving.retain(|key, _| wanted(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What counts from each look on; a look is 100 ms after the one before, and shows these files.
    fn looks(seen: &[Vec<(&'static str, u32)>], time: SettlingTime) -> Vec<Counted> {
        let (begun, mut settling) = (Instant::now(), SettlingFiles::<&str, u32>::default());
        let look = |(at, files): (u32, &Vec<(&'static str, u32)>)| {
            let there = files
                .iter()
                .map(|(name, fingerprint)| (*name, Some(*fingerprint)))
                .collect();
            let now = begun + Duration::from_millis(100) * at;
            let counted = settling.update(now, there, |_, _| time);
            counted.into_iter().collect()
        };
        (0..).zip(seen).map(look).collect()
    }

    type Counted = Vec<(&'static str, Option<u32>)>;

    #[test]
    fn a_file_counts_once_quiet_and_waits_for_no_other() {
        for (time, quiet, most) in [
            (SettlingTime::REPLACED, 2, 20),
            (SettlingTime::IN_PLACE, 20, 600),
        ] {
            let look = |at| {
                let changed = if at < quiet + 1 { 1 } else { 2 };
                vec![("busy", at), ("changed", changed), ("quiet", 7)]
            };
            let taken = looks(&(0..most + 1).map(look).collect::<Vec<_>>(), time);
            let at = |look: u32| &taken[look as usize];
            assert_eq!(*at(quiet), [("changed", Some(1)), ("quiet", Some(7))]);
            assert_eq!(*at(2 * quiet + 1), [("changed", Some(2))]);
            // A file that keeps changing is read now and then all the same.
            assert_eq!(*at(most), [("busy", Some(most))]);
            assert_eq!(taken.iter().flatten().count(), 4);
        }
    }

    #[test]
    fn a_file_that_is_open_for_writing_counts_once_it_did_not_change_for_long() {
        let look = |at: u32| vec![("a", at.min(1000))];
        let taken = looks(&(0..2000).map(look).collect::<Vec<_>>(), SettlingTime::OPEN);
        let first = taken.iter().position(|taken| !taken.is_empty());
        assert_eq!(first, Some(1600));
    }

    #[test]
    fn a_missing_file_counts_as_deleted_only_after_a_delay() {
        let (there, gone, replaced) = (vec![("a", 1)], vec![], vec![("a", 2)]);
        let looks = |then: [&Vec<_>; 4]| {
            let before = [&there, &there, &there].into_iter();
            let all: Vec<_> = before.chain(then).cloned().collect();
            looks(&all, SettlingTime::REPLACED)
        };
        let taken = looks([&gone, &gone, &gone, &gone]);
        assert_eq!(taken[5], [("a", None)]);
        let taken = looks([&gone, &replaced, &replaced, &replaced]);
        assert_eq!(taken.concat(), [("a", Some(1)), ("a", Some(2))]);
        let taken = looks([&gone, &there, &there, &there]);
        assert_eq!(taken.concat(), [("a", Some(1))]);
    }

    #[test]
    fn files_rest_once_every_change_counts_and_the_last_one_is_some_time_ago() {
        let (begun, mut settling) = (Instant::now(), SettlingFiles::<&str, u32>::default());
        let mut rests = |at: u32, fingerprint: Option<u32>| {
            let (now, time) = (begun + SETTLE * at, SettlingTime::REPLACED);
            settling.update(now, [("a", fingerprint)].into(), |_, _| time);
            settling.rests(now)
        };
        assert!(!rests(0, Some(1)) && !rests(QUIET - 1, Some(1)) && rests(QUIET, Some(1)));
        // What went and came back as it was has changed, too.
        assert!(!rests(50, None) && !rests(51, Some(1)) && !rests(49 + QUIET, Some(1)));
        assert!(!rests(50 + QUIET, Some(1)) && rests(51 + QUIET, Some(1)));
    }
}
