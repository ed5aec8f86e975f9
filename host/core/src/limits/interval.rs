//! When an interval ends, and when what was approved in it ends before.

use super::{Ledger, LimitRecord, PolicyLimits};
use crate::digest::Digest;
use std::collections::BTreeMap;
use transom_api::policy::Limited;

impl Ledger {
    /// Makes a revision the active one: approvals for another one end, and the digests offered for it cannot be
    /// approved any more. The next [`Self::check`] returns the record to write.
    pub fn begin(&mut self, revision: &Digest, limits: &PolicyLimits) {
        if self.revision.replace(*revision) != Some(*revision) {
            self.offers.clear();
        }
        let Some(record) = &mut self.record else {
            return;
        };
        let is_for = record.approved_for.as_ref() == Some(&revision.to_string());
        if record.approved.is_empty() || is_for {
            return;
        }
        self.unrecorded = true;
        record.approved_for = None;
        let mut approved = std::mem::take(&mut record.approved);
        // A record of an earlier version also names kinds of which nothing was approved.
        approved.retain(|_, more| *more > 0);
        // Approved changes do not use up the limit of the next revision. But while something is withheld, old and new
        // changes are one event: the old ones count, up to the limit.
        let goes_on = record.reached || !self.withheld.is_empty();
        for kind in approved.into_keys() {
            let most = match goes_on {
                true => limits.share(kind, record.primaries),
                false => 0,
            };
            for counts in [&mut record.reserved, &mut self.done, &mut self.unknown] {
                cap(counts, kind, most);
            }
            if !goes_on {
                record.marks.remove(kind);
                for one in self.changed.values_mut() {
                    one.counted.remove(&kind);
                    one.standing.remove(&kind);
                }
            }
        }
    }

    /// The interval began now at the latest. A clock that was ahead and was set right would else have its record
    /// outlast newer ones of other replicas.
    pub(super) fn began_by(&mut self, now_seconds: i64) {
        let ahead = |record: &&mut LimitRecord| record.started_seconds > now_seconds;
        if let Some(record) = self.record.as_mut().filter(ahead) {
            record.started_seconds = now_seconds;
            self.unrecorded = true;
        }
    }

    /// Ends the interval when its time is over and nothing keeps it open.
    pub(super) fn turn(&mut self, limits: &PolicyLimits, now_seconds: i64) {
        self.began_by(now_seconds);
        let Some(record) = &mut self.record else {
            return;
        };
        // It never lasts longer than from now on: the clock may have been set back.
        let latest = now_seconds.saturating_add(i64::from(limits.interval_seconds()));
        record.ends_seconds = record.ends_seconds.min(latest);
        if now_seconds >= record.ends_seconds && !self.is_stopped(limits) {
            *self = Self {
                withheld: std::mem::take(&mut self.withheld),
                complete: self.complete,
                revision: self.revision,
                unrecorded: self.unrecorded,
                ..Self::default()
            };
        }
    }

    /// Whether standing and withheld changes together exceed the limit: then they are one event, which must not
    /// continue in a new interval.
    fn is_stopped(&self, limits: &PolicyLimits) -> bool {
        let Some(record) = &self.record else {
            return false;
        };
        // Until all were reconciled after a start, what was withheld before may still be withheld.
        record.reached && (!self.complete || self.exceeds(limits, record.primaries))
    }

    fn exceeds(&self, limits: &PolicyLimits, primaries: u32) -> bool {
        Limited::ALL.into_iter().any(|kind| {
            let withheld = self.withheld_of(kind);
            let all = self.standing(kind).saturating_add(withheld);
            let most = self.most(limits, kind, primaries);
            withheld > 0 && limits.is_limited(kind, primaries) && all > most
        })
    }
}

fn cap(counts: &mut BTreeMap<Limited, u32>, kind: Limited, most: u32) {
    if let Some(count) = counts.get_mut(&kind) {
        *count = (*count).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fleet;
    use super::*;
    use crate::limits::{Ask, LimitCheck};
    use crate::sample::hosted;
    use serde_json::json;
    use std::sync::Arc;
    use transom_api::policy::LimitsSpec;

    #[test]
    fn the_next_revision_has_no_limit_anew_for_a_kind_of_which_nothing_was_approved() {
        const CHANGED: Limited = Limited::ObjectsChanged;
        // An earlier version recorded such a kind with the number 0.
        for is_named in [false, true] {
            let mut fleet = Fleet::new(40, json!({}));
            assert_eq!(fleet.add(0..12), 12);
            assert_eq!(fleet.change(0..13, CHANGED), 12);
            fleet.look(None);
            let digest = fleet.status().approve.clone();
            assert_eq!(fleet.look(Some(&digest)).approved, Some(digest));
            assert_eq!(fleet.change(0..13, CHANGED), 13);
            assert_eq!(fleet.look(None).over.map(|one| one.reached), Some(false));
            let approved = &mut fleet.ledger.record.as_mut().unwrap().approved;
            assert_eq!(*approved, [(CHANGED, 1)].into());
            if is_named {
                approved.insert(Limited::ElementsAdded, 0);
            }
            fleet.swap(b"two").unwrap();
            assert_eq!(fleet.add(12..40), 0, "the limit is used up");
            assert_eq!(fleet.change(13..40, CHANGED), 12);
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stretch_the_interval() {
        let mut fleet = Fleet::new(40, json!({}));
        fleet.add(0..12);
        fleet.now = 10;
        assert_eq!(fleet.add(12..13), 0);
        fleet.ledger.forget(&hosted("12"));
        fleet.look(None);
        fleet.now += 600;
        assert_eq!(fleet.add(12..13), 1);
    }

    #[test]
    fn a_record_of_a_clock_that_was_ahead_gives_way_to_a_newer_one() {
        const NOW: i64 = 1_000;
        let mut ours = Ledger::found(Some(LimitRecord::new(NOW + 500, 600)));
        let stop = LimitRecord {
            reached: true,
            ..LimitRecord::new(NOW, 600)
        };
        ours.found_again(stop.clone(), NOW);
        assert_eq!(ours.record(), Some(&stop));
        let mut before = ours.clone();
        before.found_again(LimitRecord::new(NOW - 1, 600), NOW + 9);
        assert_eq!(before.record(), Some(&stop), "it is older");
        // Nor does it stay in the future: the digest that is approved names its start.
        let mut stopped = Ledger::found(Some(LimitRecord {
            reached: true,
            ..LimitRecord::new(NOW + 500, 600)
        }));
        let limits = LimitsSpec::default().into();
        let ask = |ledger: &mut Ledger, now_seconds| {
            ledger.admit(&Ask {
                primary: &Arc::new(hosted("a")),
                kinds: &[Limited::ElementsAdded].into(),
                limits: &limits,
                revision: Digest::of_bytes(b"one"),
                primaries: 1_000,
                now_seconds,
            })
        };
        // A primary asks before it is checked.
        drop(ask(&mut stopped, NOW));
        let mut check = |now_seconds| {
            let looked = stopped.check(&LimitCheck {
                policy: "p",
                limits: &limits,
                revision: Digest::of_bytes(b"one"),
                approved: None,
                complete: false,
                primaries: 0,
                listed: false,
                now_seconds,
            });
            looked.over.map(|record| record.started_seconds)
        };
        assert_eq!((check(NOW), check(NOW + 1)), (Some(NOW), None));
        // What it writes next does not begin in the future, either.
        let mut ahead = Ledger::found(Some(LimitRecord::new(NOW + 500, 600)));
        ahead.turn(&LimitsSpec::default().into(), NOW);
        assert_eq!(
            ahead.record().map(|record| record.started_seconds),
            Some(NOW)
        );
    }
}
