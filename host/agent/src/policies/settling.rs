//! Decides when the content of a file counts: after it has been the same for a while, or after it has kept changing for
//! too long. Each file counts on its own. Does no I/O and reads no clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use transom_artifacts::folder::FileIdentity;

/// How long a file must stay the same before it counts, so that it is not read half written.
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// A file that keeps changing for this long is read as it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Files with the fingerprint that counts, and those with a change that does not count yet. A fingerprint stands for a
/// content.
#[derive(Debug)]
pub(super) struct SettlingFiles<K, M = FileIdentity> {
    taken: BTreeMap<K, M>,
    moving: BTreeMap<K, Moving<M>>,
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
        }
    }
}

impl<K: Clone + Ord, M: Copy + PartialEq> SettlingFiles<K, M> {
    /// Takes the current fingerprints of files, and returns those that count from now on.
    pub(super) fn update(
        &mut self,
        now: Instant,
        mut there: BTreeMap<K, Option<M>>,
    ) -> BTreeMap<K, Option<M>> {
        for known in self.taken.keys().chain(self.moving.keys()) {
            there.entry(known.clone()).or_default();
        }
        there.retain(|key, fingerprint| self.settled(now, key, *fingerprint));
        for (key, fingerprint) in &there {
            match fingerprint {
                Some(fingerprint) => drop(self.taken.insert(key.clone(), *fingerprint)),
                None => drop(self.taken.remove(key)),
            }
        }
        there
    }

    fn settled(&mut self, now: Instant, key: &K, fingerprint: Option<M>) -> bool {
        if self.taken.get(key) == fingerprint.as_ref() {
            self.moving.remove(key);
            return false;
        }
        let moving = self.moving.entry(key.clone()).or_insert(Moving {
            fingerprint,
            since: now,
            first: now,
        });
        if moving.fingerprint != fingerprint {
            (moving.fingerprint, moving.since) = (fingerprint, now);
        }
        let settled = now.duration_since(moving.since) >= QUIET
            || now.duration_since(moving.first) >= PATIENCE;
        if settled {
            self.moving.remove(key);
        }
        settled
    }

    /// Whether no file has a change that does not count yet.
    pub(super) fn is_quiet(&self) -> bool {
        self.moving.is_empty()
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
    fn looks(seen: &[&[(&'static str, u32)]]) -> Vec<Vec<(&'static str, Option<u32>)>> {
        let (begun, mut settling) = (Instant::now(), SettlingFiles::<&str, u32>::default());
        let look = |(at, files): (u32, &&[(&'static str, u32)])| {
            let there = files
                .iter()
                .map(|(name, fingerprint)| (*name, Some(*fingerprint)))
                .collect();
            settling
                .update(begun + Duration::from_millis(100) * at, there)
                .into_iter()
                .collect()
        };
        (0..).zip(seen).map(look).collect()
    }

    #[test]
    fn a_file_counts_once_quiet_and_waits_for_no_other() {
        let seen: Vec<Vec<(&str, u32)>> = (0..30)
            .map(|at| {
                vec![
                    ("busy", at),
                    ("changed", if at < 10 { 1 } else { 2 }),
                    ("quiet", 7),
                ]
            })
            .collect();
        let seen: Vec<&[_]> = seen.iter().map(Vec::as_slice).collect();
        let taken = looks(&seen);
        assert_eq!(taken[2], [("changed", Some(1)), ("quiet", Some(7))]);
        assert_eq!(taken[12], [("changed", Some(2))]);
        // A file that keeps changing is read now and then all the same.
        assert_eq!(taken[20], [("busy", Some(20))]);
        assert_eq!(taken.iter().flatten().count(), 4);
    }

    #[test]
    fn a_missing_file_counts_as_deleted_only_after_a_delay() {
        let (there, gone): (&[_], &[_]) = (&[("a", 1)], &[]);
        assert_eq!(
            looks(&[there, there, there, gone, gone, gone])[5],
            [("a", None)]
        );
        let replaced: &[_] = &[("a", 2)];
        let taken = looks(&[there, there, there, gone, replaced, replaced, replaced]);
        assert_eq!(taken.concat(), [("a", Some(1)), ("a", Some(2))]);
        assert_eq!(
            looks(&[there, there, there, gone, there, there, there]).concat(),
            [("a", Some(1))]
        );
    }
}
