//! What happens to withheld changes by time and by approval, and what is told of them.

use super::{Ledger, LimitRecord, PolicyLimits, of};
use crate::digest::Digest;
use crate::reference::ObjectRef;
use crate::time::format_rfc3339;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::policy::Limited;
use transom_api::status::{ChangesStatus, LimitsStatus, MAX_WITHHELD};

/// How many digests can be approved: the newest ones, so that an approval may lag a little.
const OFFERS: usize = 32;

/// What limits are checked against from time to time.
#[derive(Clone, Copy, Debug)]
pub struct LimitCheck<'a> {
    /// The policy.
    pub policy: &'a str,
    /// Its limits.
    pub limits: &'a PolicyLimits,
    /// The active revision.
    pub revision: Digest,
    /// The digest that is approved, if any.
    pub approved: Option<&'a str>,
    /// Whether every primary was reconciled since the start, so that all that is withheld is known.
    pub complete: bool,
    /// How many primaries the policy has, while anything is withheld.
    pub primaries: u32,
    /// Whether all of them are listed now, while anything is withheld: only then the fleet may have shrunk.
    pub listed: bool,
    /// Seconds since 1970.
    pub now_seconds: i64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitResult {
    /// Primaries to reconcile again: there is room for them.
    pub released: Vec<Arc<ObjectRef>>,
    /// The digest that was approved just now.
    pub approved: Option<String>,
    /// Whether something is withheld, and nothing was at the check before.
    pub reached: bool,
    /// The record to write, because nothing is withheld any more, what was approved has ended, or it began in the
    /// future.
    pub over: Option<LimitRecord>,
}

/// What an approval lets pass.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    digest: String,
    more: BTreeMap<Limited, u32>,
}

impl Ledger {
    /// Whether every primary was reconciled since the start.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Every primary was reconciled since the start: what is not withheld now is not wanted any more.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// Checks what the time and what is approved let pass.
    pub fn check(&mut self, check: &LimitCheck<'_>) -> LimitResult {
        self.complete |= check.complete;
        self.begin(&check.revision, check.limits);
        let changed = self.take_unrecorded();
        let all = |_: &ObjectRef| true;
        self.offer(self.told(check.policy, check.limits, all).as_ref());
        let approved = check
            .approved
            .and_then(|digest| self.approve(digest, check));
        let is_small = self.is_small(check);
        if let Some(record) = self.record.as_mut()
            // A fleet that grew has room for more, and one that is small now is not limited.
            && (record.primaries < check.primaries || is_small && record.primaries > check.primaries)
        {
            record.primaries = check.primaries;
            self.unrecorded = true;
        }
        let reached = self.record.clone().filter(|record| record.reached);
        self.turn(check.limits, check.now_seconds);
        // A digest names the start of the interval: one that was set right is recorded for the next run.
        let changed = changed.or_else(|| self.take_unrecorded());
        if let Some(record) = self
            .record
            .as_mut()
            .filter(|_| self.complete && self.withheld.is_empty())
        {
            record.reached = false;
        }
        let still = self.record.as_ref().is_some_and(|record| record.reached);
        let over = reached.filter(|_| !still);
        let before = self.status.take();
        self.status = self.told(check.policy, check.limits, all);
        self.offer(self.status.clone().as_ref());
        LimitResult {
            released: self.release(check.limits),
            approved,
            reached: self.status.is_some() && before.is_none(),
            over: over
                .map(|record| LimitRecord {
                    reached: false,
                    ..record
                })
                .or(changed),
        }
    }

    /// Whether something is withheld of a kind that is not limited for so many primaries, and these are all. None were
    /// not counted.
    fn is_small(&self, check: &LimitCheck<'_>) -> bool {
        let mut kinds = self.withheld.values().flatten();
        self.complete
            && check.listed
            && check.primaries > 0
            && kinds.any(|kind| !check.limits.is_limited(*kind, check.primaries))
    }

    /// The record, if it changed without a write.
    fn take_unrecorded(&mut self) -> Option<LimitRecord> {
        let unrecorded = std::mem::take(&mut self.unrecorded);
        self.record.clone().filter(|_| unrecorded)
    }

    /// Whether an approval with this digest would let something pass.
    pub fn offers(&self, digest: &str) -> bool {
        self.offers.iter().any(|offer| offer.digest == digest)
    }

    /// Lets so many more pass as an offer says, once.
    fn approve(&mut self, digest: &str, check: &LimitCheck<'_>) -> Option<String> {
        let offer = self
            .offers
            .iter()
            .find(|offer| offer.digest == digest)?
            .clone();
        self.record.as_ref()?;
        self.let_pass(
            &offer.more,
            &check.revision,
            check.limits,
            check.now_seconds,
        );
        self.offers.clear();
        Some(offer.digest)
    }

    /// Lets so many more pass under a revision, once: they were approved for it. The interval begins anew for them.
    pub fn let_pass(
        &mut self,
        more: &BTreeMap<Limited, u32>,
        revision: &Digest,
        limits: &PolicyLimits,
        now_seconds: i64,
    ) {
        self.begin(revision, limits);
        let begins = || LimitRecord::new(now_seconds, limits.interval_seconds());
        let record = self.record.get_or_insert_with(begins);
        for (kind, more) in more.iter().filter(|(_, more)| **more > 0) {
            let approved = record.approved.entry(*kind).or_default();
            *approved = approved.saturating_add(*more);
        }
        record.approved_for = Some(revision.to_string());
        let ends = now_seconds.saturating_add(i64::from(limits.interval_seconds()));
        record.ends_seconds = ends;
    }

    /// Those that are withheld and for whose changes there is room now: each once, until it is withheld again or there
    /// was no room meanwhile.
    fn release(&mut self, limits: &PolicyLimits) -> Vec<Arc<ObjectRef>> {
        let primaries = self.record.as_ref().map_or(0, |record| record.primaries);
        let none = self.record.is_none();
        let has_room = |kind: &Limited| {
            none || of(&self.done, *kind) < self.most(limits, *kind, primaries)
                || !limits.is_limited(*kind, primaries)
        };
        let withheld = self.withheld.iter();
        let passing = withheld.filter(|(_, kinds)| kinds.iter().all(has_room));
        let passing: BTreeSet<_> = passing.map(|(one, _)| Arc::clone(one)).collect();
        let released = passing.difference(&self.released).cloned().collect();
        self.released = passing;
        released
    }

    /// Keeps what the status offers for approval.
    fn offer(&mut self, status: Option<&LimitsStatus>) {
        let Some(status) = status else { return };
        if self.offers(&status.approve) {
            return;
        }
        // The status also tells of kinds of which nothing is withheld. These are not approved.
        let withheld = status.changes.iter().filter(|one| one.withheld > 0);
        let more = withheld.map(|one| (one.limit, one.withheld));
        self.offers.push(Offer {
            digest: status.approve.clone(),
            more: more.collect(),
        });
        let surplus = self.offers.len().saturating_sub(OFFERS);
        self.offers.drain(..surplus);
    }

    /// What is withheld now of those primaries that are held by their results, and can be approved: what is published
    /// of both has to agree.
    pub fn agreed(
        &mut self,
        policy: &str,
        limits: &PolicyLimits,
        is_held: impl Fn(&ObjectRef) -> bool,
    ) -> Option<LimitsStatus> {
        let told = self.told(policy, limits, is_held);
        self.offer(told.as_ref());
        told
    }

    /// What is withheld of these primaries.
    fn told(
        &self,
        policy: &str,
        limits: &PolicyLimits,
        is_told: impl Fn(&ObjectRef) -> bool,
    ) -> Option<LimitsStatus> {
        let withheld = self.withheld.iter().filter(|(one, _)| is_told(one));
        let withheld: BTreeMap<_, _> = withheld.collect();
        let record = self.record.as_ref().filter(|_| !withheld.is_empty())?;
        let change = |limit| ChangesStatus {
            limit,
            done: of(&self.done, limit),
            most: self.most(limits, limit, record.primaries),
            withheld: count(withheld.values().filter(|kinds| kinds.contains(&limit))),
        };
        let changes = Limited::ALL.into_iter().map(change);
        let changes: Vec<_> = changes.filter(|one| one.done + one.withheld > 0).collect();
        let since = record.started_seconds;
        let revision = self.revision.map(|revision| revision.to_string());
        let approve = Digest::of(
            &json!({"policy": policy, "revision": revision, "since": since, "changes": changes}),
        );
        let shown = |primary: &Arc<ObjectRef>| match &primary.namespace {
            Some(namespace) => format!("{namespace}/{}", primary.name),
            None => primary.name.clone(),
        };
        Some(LimitsStatus {
            since: format_rfc3339(since),
            until: format_rfc3339(record.ends_seconds),
            changes,
            withheld: count(withheld.keys()),
            primaries: withheld.into_keys().take(MAX_WITHHELD).map(shown).collect(),
            approve: approve.to_string(),
        })
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fleet;
    use super::*;
    use crate::sample::hosted;

    #[test]
    fn a_fleet_that_shrinks_to_the_number_is_not_limited_any_more() {
        let mut fleet = Fleet::new(30, json!({}));
        assert_eq!(fleet.add(0..30), 10);
        fleet.look(None);
        assert_eq!(fleet.status().withheld, 20);
        // Still more than may be changed without a limit.
        for gone in 18..30 {
            fleet.ledger.forget(&hosted(&gone.to_string()));
        }
        for primaries in [11, 0] {
            fleet.primaries = primaries;
            fleet.now += 6_000;
            let looked = fleet.look(None);
            assert_eq!(
                (looked.released.len(), looked.over),
                (0, None),
                "{primaries}"
            );
        }
        fleet.primaries = 8;
        let looked = fleet.look(None);
        assert_eq!(looked.released.len(), 8);
        assert_eq!(looked.over.map(|record| record.primaries), Some(8));
        assert_eq!(fleet.add(10..18), 8);
        assert!(fleet.look(None).released.is_empty() && !fleet.ledger.withholds());
    }

    #[test]
    fn what_is_published_is_what_is_withheld_now_by_the_results_and_can_be_approved() {
        let mut fleet = Fleet::new(40, json!({}));
        fleet.add(0..32);
        // Before any look: 20 are withheld, and the results of 5 say so.
        let stopped: Vec<_> = fleet.ledger.withheld.keys().take(5).cloned().collect();
        let agreed = |fleet: &mut Fleet, of: usize| {
            let is_stopped = |one: &_| stopped.iter().take(of).any(|stopped| **stopped == *one);
            let limits = fleet.limits.clone();
            fleet.ledger.agreed("p", &limits, is_stopped)
        };
        assert_eq!(agreed(&mut fleet, 0), None);
        let status = agreed(&mut fleet, 5).unwrap();
        let withheld = status.changes[0].withheld;
        assert_eq!(
            (status.withheld, status.primaries.len(), withheld),
            (5, 5, 5)
        );
        let looked = fleet.look(Some(&status.approve));
        assert_eq!(looked.approved, Some(status.approve));
        assert_eq!(fleet.add(12..32), 5);
        // The look before knew of 20.
        assert!(fleet.look(None).approved.is_none());
        for one in fleet.ledger.withheld.clone().into_keys() {
            fleet.ledger.forget(&one);
        }
        assert!(fleet.ledger.status().is_some());
        assert_eq!(agreed(&mut fleet, 5), None);
    }

    #[test]
    fn what_has_no_room_is_not_released_with_what_has() {
        let mut fleet = Fleet::new(40, json!({"objectsPruned": {"count": 1}}));
        assert_eq!(fleet.change(0..3, Limited::ObjectsPruned), 1);
        fleet.add(3..17);
        assert_eq!(fleet.look(None).released, []);
        fleet.primaries = 44;
        let released = |fleet: &mut Fleet| {
            let released = fleet.look(None).released.into_iter();
            released.map(|one| one.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(released(&mut fleet), ["15", "16"]);
        assert_eq!(fleet.add(15..17), 1);
        assert_eq!(
            released(&mut fleet),
            [""; 0],
            "one more than there is room for"
        );
        // That others have room does not keep these from being released later.
        fleet.limits = PolicyLimits::of(json!({"objectsPruned": {"count": 2}}));
        assert_eq!(released(&mut fleet), ["1", "2"]);
    }

    #[test]
    fn a_fleet_that_grows_has_room_for_what_is_withheld() {
        let limits = json!({"elementsAdded": {"count": 10, "percent": 30}});
        let mut fleet = Fleet::new(20, limits);
        assert_eq!(fleet.add(0..20), 10);
        assert_eq!(fleet.look(None).released, []);
        // Nobody asks: those that join are right as they are.
        fleet.primaries = 40;
        assert_eq!(fleet.look(None).released.len(), 10, "12 may be changed");
        assert_eq!(fleet.status().changes[0].most, 12);
        fleet.primaries = 80;
        let looked = fleet.look(None);
        assert_eq!(looked.over.map(|record| record.primaries), Some(80));
        assert_eq!(fleet.add(0..20), 20);
    }
}
