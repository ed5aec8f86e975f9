//! Candidates: a new revision of an active policy is tried on the live objects before it becomes active, and waits for
//! approval where its mode says so.

use super::trial::{RunningTrial, UNSTABLE};
use super::{ManifestState, Swap};
use crate::policies::active::{PolicyChanges, Rehearsed};
use crate::policies::load::LoadedPolicy;
use crate::policies::{Approval, Written};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_api::policy::{Limited, ModeSpec};
use transom_core::catalogue::Refusal;
use transom_core::policy::bound;
use transom_core::rollout::history::RevisionRecord;
use transom_core::rollout::{Candidate, Gate};

/// A revision that was loaded whole and is not active.
pub(super) struct Pending {
    pub(super) loaded: Arc<LoadedPolicy>,
    /// When it is tried next; `None` once it was refused.
    pub(super) due: Option<Instant>,
    /// What changed since it was refused of the objects that it failed for, and when it may be tried again for that.
    pub(super) refused: Option<(Rehearsed, Instant)>,
    /// How often it was refused.
    pub(super) refusals: u32,
    /// Whether the approval of the policy was already there when this became the candidate.
    pub(super) approved_before: bool,
    /// The trial that runs, which ends when this is dropped.
    pub(super) running: Option<RunningTrial>,
    /// Set when it has passed all gates, until the history records it as active.
    pub(super) passed: Option<PassedCandidate>,
    /// How often it passed and was not kept.
    pub(super) unkept: u32,
}

/// What a candidate that passed all gates takes with it.
#[derive(Clone)]
pub(super) struct PassedCandidate {
    /// What is kept of it: also its plan, and for how long it is watched.
    pub(super) record: RevisionRecord,
    /// What was approved, by what it counts for the limits; nothing when it needed no approval.
    pub(super) approved: BTreeMap<Limited, u32>,
    /// The primaries that its trial found up to date.
    pub(super) rehearsed: Option<Rehearsed>,
}

impl Pending {
    /// Has a candidate tried again that passed and is not active yet. Returns whether it is one.
    pub(super) fn try_again(&mut self, at: Instant) -> bool {
        let passed = self.passed.take().is_some();
        if passed {
            self.due = Some(at);
        }
        passed
    }
}

impl ManifestState {
    /// Takes the manifests as they are now, of which only the approval may differ.
    pub(super) fn approve(&mut self, written: Vec<Written>) {
        let before = self.approval();
        self.written = written;
        if before != self.approval()
            && let Some(pending) = &mut self.pending
        {
            pending.try_again(Instant::now());
            pending.approved_before = false;
            // One that was refused is not tried again.
            pending.due = pending.due.map(|_| Instant::now());
        }
    }

    pub(super) fn approval(&self) -> Option<Approval> {
        self.written.first().and_then(Written::approval)
    }
}

/// A candidate of which nothing is known yet.
pub(super) fn untried(loaded: &LoadedPolicy) -> Candidate {
    let reason = KnownReason::Trying;
    Candidate {
        revision: Arc::clone(&loaded.revision),
        gate: Gate::Answers,
        reason,
        message: reason.meaning().to_owned(),
        trial: None,
    }
}

impl Swap {
    /// Takes a revision that was loaded whole: it becomes active, is a candidate first, or is barred.
    pub(super) fn take_loaded(
        &mut self,
        name: &Arc<str>,
        loaded: Arc<LoadedPolicy>,
    ) -> PolicyChanges {
        let id = loaded.revision.id();
        let active = self.good.get(name).map(|good| good.revision.id());
        if let Some(why) = self.barred(name, &id)
            && active != Some(id)
            && self.rolls_out
        {
            return self.refuse_barred(name, &loaded, why);
        }
        // A kept one that could not be read is tried again.
        let recalled = match self.is_unrestored(name) {
            true => self.recalled.contains(name),
            false => self.recalled.remove(name),
        };
        let kept = self.active_by_history(name);
        let automatic = loaded.revision.policy.spec.rollout.mode == ModeSpec::Automatic;
        // The revision is active if the history says so, or if it is the first one. It is not the first one if another
        // was ever active, even one that cannot be restored or is barred by now. Of an agent of another version the
        // history has other builtin components.
        let history = self.histories.get(name);
        let is_first = || {
            let mut records = history.iter().flat_map(|history| history.records());
            automatic && records.all(|record| record.number == 0)
        };
        let is_kept = || kept.map_or_else(is_first, |kept| kept.goes_on_in(&loaded.revision));
        let is_active = match recalled && kept.is_some() || active.is_none() {
            true => is_kept(),
            false => active == Some(id),
        };
        // A load that was repeated for the kept one brings the same candidate, which may have passed or failed by now.
        let pending = self.newest.get(name).and_then(|one| one.pending.as_ref());
        if recalled
            && !is_active
            && pending.is_some_and(|pending| pending.loaded.revision.id() == id)
        {
            return self.narrow(name);
        }
        match is_active || !self.rolls_out {
            true => self.put_to_work(name, loaded),
            false => self.propose(name, loaded),
        }
    }

    /// Whether the kept revision of a policy could not be read, and is tried again.
    pub(super) fn is_unrestored(&self, name: &str) -> bool {
        self.newest
            .get(name)
            .is_some_and(|newest| newest.unrestored)
    }

    /// Puts the revision to work that was active when the agent ended.
    pub(super) fn restore(&mut self, name: &Arc<str>, restored: LoadedPolicy) -> PolicyChanges {
        let earlier = &restored.revision.policy;
        let newest = self.newest.get(name).and_then(|one| one.policy.as_ref());
        let bounded = newest.map(|newest| bound::bounded(earlier, newest));
        if self.is_taken(name, bounded.as_ref().unwrap_or(earlier)) {
            return PolicyChanges::new();
        }
        let mut clusters = restored.revision.policy.clusters();
        let recalled = self.recalled.remove(name);
        if (self.good.contains_key(name) && !recalled)
            || self.barred(name, &restored.revision.id()).is_some()
            || !clusters.all(|(_, cluster)| self.places.has(cluster))
        {
            return PolicyChanges::new();
        }
        drop(clusters);
        let suspends = |newest: &ManifestState| newest.written.iter().any(Written::suspends);
        let suspends = self.newest.get(name).is_some_and(suspends);
        let mut changes = self.put_to_work(name, Arc::new(restored));
        if suspends {
            changes.extend(self.suspend(name));
        }
        changes
    }

    /// Drops the candidate of a policy, and ends its trial.
    pub(super) fn drop_candidate(&mut self, name: &str) {
        if let Some(newest) = self.newest.get_mut(name) {
            newest.pending = None;
        }
    }

    /// Drops the candidate because the newest manifest is refused. Keeps it if it is the active revision, which trials
    /// go on comparing in the mode `Shadow`.
    pub(super) fn drop_other_candidate(&mut self, name: &str) {
        let active = self.good.get(name).map(|good| good.revision.id());
        let pending = self.newest.get(name).and_then(|one| one.pending.as_ref());
        if pending.is_none_or(|pending| Some(pending.loaded.revision.id()) != active) {
            self.drop_candidate(name);
        }
    }

    pub(super) fn refuse_barred(
        &mut self,
        name: &Arc<str>,
        loaded: &LoadedPolicy,
        why: String,
    ) -> PolicyChanges {
        self.drop_candidate(name);
        let (reason, message) = match why.strip_prefix(UNSTABLE) {
            Some(message) => (KnownReason::AnswerUnstable, message.to_owned()),
            None => (KnownReason::RolledBack, why),
        };
        let candidate = Candidate {
            revision: Arc::clone(&loaded.revision),
            gate: Gate::Answers,
            reason,
            message,
            trial: None,
        };
        let mut changes = self.narrow(name);
        changes.extend(self.refuse_candidate(name, candidate));
        changes
    }

    /// Refuses a candidate at the gate where it stands.
    pub(super) fn refuse_candidate(
        &mut self,
        name: &Arc<str>,
        candidate: Candidate,
    ) -> PolicyChanges {
        let message = candidate.message.clone();
        let refusal = Refusal {
            retried: false,
            ..Refusal::new(candidate.reason, message).at(candidate.gate)
        };
        let mut changes = self.refuse(name, refusal, true);
        changes.extend(self.change(|known| {
            let catalogue = &known.catalogue;
            known.catalogue = catalogue.update(name, |entry| entry.candidate = Some(candidate));
        }));
        changes
    }

    /// Makes a loaded revision the candidate. From now on its manifest bounds the active revision.
    pub(super) fn propose(&mut self, name: &Arc<str>, loaded: Arc<LoadedPolicy>) -> PolicyChanges {
        let Some(newest) = self.newest.get_mut(name) else {
            return PolicyChanges::new();
        };
        newest.pending = Some(Pending {
            loaded: Arc::clone(&loaded),
            due: Some(Instant::now()),
            refused: None,
            refusals: 0,
            approved_before: true,
            running: None,
            passed: None,
            unkept: 0,
        });
        let mut changes = self.narrow(name);
        changes.extend(self.waits(name, untried(&loaded)));
        changes
    }

    /// Drops what trials found: another replica may lead by now, and activate what this one refused or had wait.
    /// Candidates are tried anew once this one leads again. Why a newest manifest is refused stays: in the mode
    /// `Shadow` the active revision is compared meanwhile.
    pub(super) fn untry(&mut self) -> PolicyChanges {
        let now = Instant::now();
        let candidates = self.newest.iter_mut().filter_map(|(name, newest)| {
            let pending = newest.pending.as_mut().filter(|one| one.passed.is_none())?;
            pending.due = Some(now);
            let is_newest = !newest.failed && newest.refusal.is_none();
            is_newest.then(|| (Arc::clone(name), untried(&pending.loaded)))
        });
        let candidates: Vec<_> = candidates.collect();
        let changes = candidates.into_iter();
        changes
            .flat_map(|(name, candidate)| self.waits(&name, candidate))
            .collect()
    }

    /// The same revision with what its trial planned, as long as that is kept.
    fn expecting(&self, name: &str, loaded: Arc<LoadedPolicy>) -> Arc<LoadedPolicy> {
        let history = self.histories.get(name);
        let record = history.and_then(|history| history.find(&loaded.revision.id()));
        match record.and_then(RevisionRecord::expecting) {
            None => loaded,
            expecting => Arc::new(LoadedPolicy {
                expecting: expecting.map(Arc::new),
                ..(*loaded).clone()
            }),
        }
    }

    /// Activates a loaded revision and schedules the write of the history. Ends the probation of the previous one. The
    /// caller starts the probation of this one, unless it is new only to this replica.
    pub(super) fn put_to_work(
        &mut self,
        name: &Arc<str>,
        loaded: Arc<LoadedPolicy>,
    ) -> PolicyChanges {
        let loaded = self.expecting(name, loaded);
        let Some(newest) = self.newest.get_mut(name) else {
            return PolicyChanges::new();
        };
        newest.pending = None;
        {
            let mut known = self.active.lock();
            known.plans.remove(name);
            known.rehearsed.remove(name);
        }
        let mut place = newest.place.clone();
        if newest.loading.is_some() {
            // What is written there is still being loaded, and not observed yet.
            place.generation = None;
        }
        let shadows = self.rolls_out && newest.written.iter().any(Written::shadows);
        self.recalled.remove(name);
        self.unlisted.remove(name);
        let before = self.good.insert(Arc::clone(name), Arc::clone(&loaded));
        if before.is_some_and(|before| before.revision.id() != loaded.revision.id()) {
            self.probations.remove(name);
        }
        self.note(name);
        let works = match shadows {
            true => Arc::new(loaded.shadowed()),
            false => Arc::clone(&loaded),
        };
        let mut changes = self.change(|known| {
            let before = known.catalogue.revision(name);
            let same = before.is_some_and(|before| *before == works.revision);
            known.catalogue = known.catalogue.with((*works.revision).clone(), place);
            if !same {
                known.loaded.insert(Arc::clone(name), works);
            }
        });
        // The active revision writes nothing; trials compare what it would write.
        if shadows {
            changes.extend(self.propose(name, loaded));
        }
        changes
    }

    /// Shows where a candidate stands.
    pub(super) fn waits(&self, name: &str, candidate: Candidate) -> PolicyChanges {
        let place = self.newest.get(name);
        let place = place.map(|newest| newest.place.clone()).unwrap_or_default();
        self.change(|known| {
            known.catalogue = known.catalogue.update(name, |entry| {
                entry.refused = None;
                entry.place = place;
                entry.candidate = Some(candidate);
            });
        })
    }
}
