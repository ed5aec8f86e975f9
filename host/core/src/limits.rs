//! How many primaries a policy may change in an interval. [`crate::plan::write_limit`] limits each object; this limits
//! each policy, so that an accident of its inputs or its guests cannot change the whole fleet at once.
//!
//! Counts primaries, each once in an interval for each kind of change. Counts from a number that was recorded before
//! (`LimitRecord::reserved`), so that a process that ends can only lose a part of the limit.

mod allowed;
mod check;
mod interval;
mod kinds;
mod marks;
mod record;
mod unwritten;

pub use allowed::PolicyLimits;
pub use check::{LimitCheck, LimitResult};
pub use kinds::{LimitedKinds, counted, kinds};
pub use record::LimitRecord;
pub use unwritten::is_without_effect;

use crate::digest::Digest;
use crate::failure::Failure;
use crate::reference::ObjectRef;
use check::Offer;
use kinds::opposite;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use transom_api::KnownReason;
use transom_api::policy::Limited;
use transom_api::status::LimitsStatus;

/// A limit is reserved in this many parts: a killed process loses at most one part, and each part costs a write.
const PARTS: u32 = 5;

/// What is about to be changed.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The primary.
    pub primary: &'a Arc<ObjectRef>,
    /// The answer of [`kinds`].
    pub kinds: &'a LimitedKinds,
    /// The limits of the policy.
    pub limits: &'a PolicyLimits,
    /// The active revision: only what was approved for it counts.
    pub revision: Digest,
    /// How many primaries the policy has, including those that are gone and left objects behind.
    pub primaries: u32,
    /// Seconds since 1970.
    pub now_seconds: i64,
}

/// Whether it may be changed.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitVerdict {
    /// It may, and now counts for these kinds. Call [`Ledger::give_back`] if it is not changed after all.
    Admitted(LimitedKinds),
    /// Record this first, call [`Ledger::recorded`], and ask again.
    Reserve(LimitRecord),
    /// Not now: `LimitReached`.
    Withheld(Failure),
}

/// What a policy changed in the running interval, and what is withheld. In memory; [`LimitRecord`] is what is kept.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// As it was recorded last; none while no interval runs.
    record: Option<LimitRecord>,
    /// For how many primaries each kind counts.
    done: BTreeMap<Limited, u32>,
    /// How many of these an earlier process reserved, for primaries that are not known now.
    unknown: BTreeMap<Limited, u32>,
    changed: HashMap<Arc<ObjectRef>, ChangedPrimary>,
    /// The kinds whose limit keeps each primary from being changed.
    withheld: BTreeMap<Arc<ObjectRef>, LimitedKinds>,
    complete: bool,
    /// The withheld primaries that were enqueued again since there was room for them.
    released: BTreeSet<Arc<ObjectRef>>,
    /// The active revision, as far as it is known here.
    revision: Option<Digest>,
    /// Whether the record changed without a write: what was approved has ended, or it began in the future.
    unrecorded: bool,
    offers: Vec<Offer>,
    status: Option<LimitsStatus>,
}

/// What was changed for a primary in this interval.
#[derive(Clone, Debug, Default)]
struct ChangedPrimary {
    counted: LimitedKinds,
    /// Without what was undone since.
    standing: LimitedKinds,
}

fn of(counts: &BTreeMap<Limited, u32>, kind: Limited) -> u32 {
    counts.get(&kind).copied().unwrap_or_default()
}

impl Ask<'_> {
    /// Whether any of it can reach its limit.
    pub fn is_limited(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|kind| self.limits.is_limited(*kind, self.primaries))
    }
}

impl Ledger {
    /// A ledger with what an earlier process, or another replica, recorded. All that was reserved counts as done.
    pub fn found(record: Option<LimitRecord>) -> Self {
        let reserved = record.as_ref().map(|record| record.reserved.clone());
        let reserved = reserved.unwrap_or_default();
        Self {
            record,
            done: reserved.clone(),
            unknown: reserved,
            ..Self::default()
        }
    }

    /// Another replica may have written the record since: takes it if it is not older than ours.
    pub fn found_again(&mut self, found: LimitRecord, now_seconds: i64) {
        self.began_by(now_seconds);
        let same = self.record.as_ref() == Some(&found);
        let ours = self.record.as_ref().map(|record| record.started_seconds);
        if !same && ours.is_none_or(|ours| found.started_seconds >= ours) {
            let withheld = std::mem::take(&mut self.withheld);
            *self = Self {
                withheld,
                revision: self.revision,
                ..Self::found(Some(found))
            };
        }
    }

    /// As it was recorded last.
    pub fn record(&self) -> Option<&LimitRecord> {
        self.record.as_ref()
    }

    /// Whether [`Self::check`] is needed: something is withheld, or has to be recorded.
    pub fn is_stopping(&self) -> bool {
        let reached = self.record.as_ref().is_some_and(|record| record.reached);
        reached || self.unrecorded || self.withholds() || self.status.is_some()
    }

    /// Whether anything is withheld.
    pub fn withholds(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// What is withheld, as of the last look.
    pub fn status(&self) -> Option<&LimitsStatus> {
        self.status.as_ref()
    }

    /// Whether a primary may be changed now; all of what is planned for it, or nothing.
    pub fn admit(&mut self, ask: &Ask<'_>) -> LimitVerdict {
        self.begin(&ask.revision, ask.limits);
        match self.withholds() {
            // Then only `check` ends the interval: it counts all that is withheld.
            true => self.began_by(ask.now_seconds),
            false => self.turn(ask.limits, ask.now_seconds),
        }
        let known = self.record.as_ref().map_or(0, |record| record.primaries);
        let primaries = known.max(ask.primaries);
        let counted = self.changed.get(ask.primary).map(|one| &one.counted);
        let is_new = |kind: &Limited| {
            let counted = counted.is_some_and(|counted| counted.contains(kind));
            let is_marked = |record: &LimitRecord| record.marks.contains(*kind, ask.primary);
            !counted
                && !self.record.as_ref().is_some_and(is_marked)
                && ask.limits.is_limited(*kind, primaries)
        };
        let new: LimitedKinds = ask.kinds.iter().copied().filter(is_new).collect();
        let most = |kind| self.most(ask.limits, kind, primaries);
        let over: LimitedKinds = new
            .iter()
            .copied()
            .filter(|kind| of(&self.done, *kind) >= most(*kind))
            .collect();
        if !over.is_empty() {
            return self.withhold(ask, over, primaries);
        }
        let reserved = |kind| {
            self.record
                .as_ref()
                .map_or(0, |record| of(&record.reserved, kind))
        };
        let short: LimitedKinds = new
            .iter()
            .copied()
            .filter(|kind| of(&self.done, *kind) >= reserved(*kind))
            .collect();
        if !short.is_empty() {
            return LimitVerdict::Reserve(self.reserving(ask, &short, primaries));
        }
        self.withheld.remove(ask.primary);
        self.count(ask, &new);
        LimitVerdict::Admitted(new)
    }

    /// Withholds a change. The record says so first: this keeps the interval open, also after a restart.
    fn withhold(&mut self, ask: &Ask<'_>, over: LimitedKinds, primaries: u32) -> LimitVerdict {
        if !self.record.as_ref().is_some_and(|record| record.reached) {
            let mut record = self.reserving(ask, &LimitedKinds::new(), primaries);
            record.reached = true;
            return LimitVerdict::Reserve(record);
        }
        let failure = self.failure(ask, &over, primaries);
        self.released.remove(ask.primary);
        self.withheld.insert(Arc::clone(ask.primary), over);
        LimitVerdict::Withheld(failure)
    }

    fn count(&mut self, ask: &Ask<'_>, new: &LimitedKinds) {
        for kind in new {
            *self.done.entry(*kind).or_default() += 1;
        }
        if new.is_empty() && !self.changed.contains_key(ask.primary) {
            return;
        }
        let changed = self.changed.entry(Arc::clone(ask.primary)).or_default();
        changed.counted.extend(new);
        for kind in ask.kinds {
            opposite(*kind).map(|undone| changed.standing.remove(&undone));
        }
        changed
            .standing
            .extend(ask.kinds.intersection(&changed.counted));
    }

    /// Nothing was written for a primary after all.
    pub fn give_back(&mut self, primary: &Arc<ObjectRef>, kinds: &LimitedKinds) {
        let Some(changed) = self.changed.get_mut(primary) else {
            return;
        };
        for kind in kinds.iter().filter(|kind| changed.counted.remove(*kind)) {
            changed.standing.remove(kind);
            let done = self.done.entry(*kind).or_default();
            *done = done.saturating_sub(1);
        }
    }

    /// Nothing is wanted for a primary any more, or it is gone.
    pub fn forget(&mut self, primary: &ObjectRef) {
        self.withheld.remove(primary);
    }

    /// Takes a record that was written, unless a later interval has begun since.
    pub fn recorded(&mut self, mut record: LimitRecord) {
        match &self.record {
            Some(begun) if begun.started_seconds > record.started_seconds => return,
            Some(before) if before.started_seconds == record.started_seconds => {
                // Approved while it was being written.
                record.approved = before.approved.clone();
                record.approved_for = before.approved_for.clone();
                record.ends_seconds = record.ends_seconds.max(before.ends_seconds);
            }
            _ => {}
        }
        self.record = Some(record);
    }

    /// Gives up what is reserved and not used, before an end after which nothing is asked any more. Also marks who
    /// counts, so that none counts twice after a start. Returns the record to write, if it differs.
    pub fn settle(&mut self, now_seconds: i64) -> Option<LimitRecord> {
        let counts = |record: &&LimitRecord| record.reached || now_seconds < record.ends_seconds;
        let mut settled = self.record.as_ref().filter(counts)?.clone();
        for (kind, reserved) in &mut settled.reserved {
            *reserved = (*reserved).min(of(&self.done, *kind));
        }
        for (primary, one) in &self.changed {
            settled.marks.add(primary, &one.counted);
        }
        let before = self.record.replace(settled.clone());
        (before.as_ref() != Some(&settled)).then_some(settled)
    }

    /// The record that reserves more of these kinds.
    fn reserving(&self, ask: &Ask<'_>, short: &LimitedKinds, primaries: u32) -> LimitRecord {
        let begins = || LimitRecord::new(ask.now_seconds, ask.limits.interval_seconds());
        let mut record = self.record.clone().unwrap_or_else(begins);
        record.primaries = primaries;
        for kind in short {
            let most = self.most(ask.limits, *kind, primaries);
            let done = of(&self.done, *kind);
            let part = most.div_ceil(PARTS).max(1);
            let reserved = done.saturating_add(part).min(most);
            record.reserved.insert(*kind, reserved);
        }
        record
    }

    /// How many primaries may be changed in this interval, with what was approved.
    fn most(&self, limits: &PolicyLimits, kind: Limited, primaries: u32) -> u32 {
        let approved = self
            .record
            .as_ref()
            .map_or(0, |record| of(&record.approved, kind));
        limits.share(kind, primaries).saturating_add(approved)
    }

    fn withheld_of(&self, kind: Limited) -> u32 {
        let withheld = self.withheld.values().filter(|kinds| kinds.contains(&kind));
        u32::try_from(withheld.count()).unwrap_or(u32::MAX)
    }

    /// For how many primaries something was changed in this interval that was not undone.
    fn standing(&self, kind: Limited) -> u32 {
        let standing = self
            .changed
            .values()
            .filter(|one| one.standing.contains(&kind));
        let standing = u32::try_from(standing.count()).unwrap_or(u32::MAX);
        standing.saturating_add(of(&self.unknown, kind))
    }

    fn failure(&self, ask: &Ask<'_>, over: &LimitedKinds, primaries: u32) -> Failure {
        let each = over.iter().map(|kind| {
            let (done, most) = (
                of(&self.done, *kind),
                self.most(ask.limits, *kind, primaries),
            );
            format!("{} {done} of {most}", kind.as_str())
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let message = format!(
            "nothing is written for {}: spec.limits of the policy allows no more changes now ({each}, for {primaries} \
             primaries); approve what is withheld, raise the limit, or fix the cause",
            ask.primary
        );
        let ends = self.record.as_ref().map(|record| record.ends_seconds);
        let ends = ends.filter(|ends| *ends > ask.now_seconds);
        Failure::known(KnownReason::LimitReached, message).until(ends)
    }
}

#[cfg(test)]
mod tests;
