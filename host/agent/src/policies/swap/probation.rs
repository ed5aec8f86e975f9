//! The probation of a new revision: its faults are counted for a while; too many of them roll it back.

use super::Swap;
use crate::policies::active::PolicyChanges;
use crate::policies::load::LoadedPolicy;
use crate::telemetry;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::policy::Policy;
use transom_core::rollout::history::RevisionRecord;
use transom_core::rollout::{self, Faults};

/// An active revision that is new.
pub(super) struct RunningProbation {
    /// The revision before it, which stays loaded.
    pub(super) before: Arc<LoadedPolicy>,
    /// When it ends, and how many primaries failed before it began; `None` until they are counted.
    pub(super) terms: Option<rollout::Probation>,
    /// Whether it was logged that a rollback is not possible.
    told: bool,
}

impl RunningProbation {
    /// The probation of the revision that replaces `before`.
    pub(super) fn after(before: Arc<LoadedPolicy>) -> Self {
        Self {
            before,
            terms: None,
            told: false,
        }
    }

    /// Tells once that the revision before cannot be put to work again.
    fn tell(&mut self, name: &str, why: &str) {
        if !std::mem::replace(&mut self.told, true) {
            let before = rollout::short(&self.before.revision.id());
            let message = format!(
                "going back to the revision {before}: it was not verified as spec.verify demands now, so the active revision stays although {why}"
            );
            telemetry::refused(name, KnownReason::SignatureMissing, &message, true);
        }
    }
}

/// Whether a revision was verified by keys that are also those of the one that works now: a name may stand for another
/// key by now.
fn is_trusted(before: &LoadedPolicy, now: &LoadedPolicy) -> bool {
    let guests = [
        Some(&before.revision.decide),
        before.revision.trigger.as_ref(),
    ];
    let mut signers = guests
        .into_iter()
        .flatten()
        .flat_map(|guest| &guest.signers);
    signers.all(|signer| {
        let key = before.keys.get(signer);
        key.is_some() && key == now.keys.get(signer)
    })
}

/// A revision as it works now: whether its policy is suspended is no part of it, and may have changed since.
fn resumed(before: &LoadedPolicy, suspend: bool) -> Arc<LoadedPolicy> {
    Arc::new(before.under(Policy {
        suspend,
        ..before.revision.policy.clone()
    }))
}

impl Swap {
    /// Whether what works is on probation by the history, and this replica has not got the revision before.
    pub(super) fn lacks_before(&self, name: &Arc<str>) -> bool {
        let history = self.histories.get(name);
        let works = self.good.get(name);
        !self.probations.contains_key(name)
            && history.zip(works).is_some_and(|(history, works)| {
                let active = history.active();
                active.is_some_and(|active| active.goes_on_in(&works.revision))
                    && self.loads.components().are_watching(history)
                    && history.previous().is_some()
            })
    }

    /// Continues the recorded probation of the active revision, after a restart or a change of the leader. Does nothing
    /// unless `before` is the previous revision of the history: this replica may have worked on another one.
    pub(super) fn watch_on(&mut self, name: &Arc<str>, before: Arc<LoadedPolicy>) {
        let history = self.histories.get(name);
        let previous = history.and_then(|history| history.previous());
        let is_it =
            |record: &RevisionRecord, loaded: &LoadedPolicy| record.goes_on_in(&loaded.revision);
        if previous.is_none_or(|previous| !is_it(previous, &before)) {
            return;
        }
        // The record before counts from this one: after a rollback that is not recorded yet, another one works.
        let active = history.and_then(|history| history.active());
        let works = self.good.get(name);
        let kept = active.filter(|active| works.is_some_and(|works| is_it(active, works)));
        if let Some(terms) = kept.and_then(|active| active.probation) {
            let probation = RunningProbation {
                terms: Some(terms),
                ..RunningProbation::after(before)
            };
            self.probations.insert(Arc::clone(name), probation);
        }
    }

    /// The policies whose active revision is new, so that its faults are watched.
    pub(in crate::policies) fn on_probation(&mut self) -> Vec<Arc<str>> {
        // Another replica may judge otherwise meanwhile.
        if !self.caught_up {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.probations);
        // There is no rollback to a barred revision.
        all.retain(|name, one| self.barred(name, &one.before.revision.id()).is_none());
        self.probations = all;
        // If another revision is active in the history, the one that works here is not judged.
        let watched = self.probations.keys();
        let watched = watched.filter(|name| !self.recalled.contains(*name));
        watched.cloned().collect()
    }

    /// Takes the faults of a policy whose active revision is new. Too many of them put the revision before it to work
    /// again, and bar the new one.
    pub(in crate::policies) fn observed(&mut self, name: &Arc<str>, now: &Faults) -> PolicyChanges {
        let (Some(probation), Some(failed)) = (self.probations.get_mut(name), self.good.get(name))
        else {
            return PolicyChanges::new();
        };
        let failed = Arc::clone(failed);
        // A manifest that is not valid may lack something by mistake.
        let newest = self.newest.get(name).and_then(|one| one.policy.as_ref());
        let policy = newest.unwrap_or(&failed.revision.policy);
        let rollback = policy.spec.rollout.rollback;
        // The revision before may have had faults, too.
        let begins = || rollout::Probation::new(now.at_seconds, now.now.len(), rollback);
        let terms = probation
            .terms
            .unwrap_or_else(begins)
            .bounded(now.at_seconds);
        probation.terms = Some(terms);
        if terms.is_over(now.at_seconds) {
            self.probations.remove(name);
            // What was planned for each primary is kept no longer.
            self.note(name);
            return PolicyChanges::new();
        }
        let Some(why) = rollout::rolls_back(terms.faults, now, rollback) else {
            return PolicyChanges::new();
        };
        let before = Arc::clone(&probation.before);
        // A revision that was active before other signatures were demanded, or before a name stood for another key, may
        // not satisfy the demand. It may change again, so the watch goes on.
        let is_same = policy.verify == before.revision.policy.verify;
        if policy.verify.is_some() && !(is_same && is_trusted(&before, &failed)) {
            probation.tell(name, &why);
            return PolicyChanges::new();
        }
        let before = resumed(&before, policy.suspend);
        let Some(newest) = self.newest.get_mut(name) else {
            return PolicyChanges::new();
        };
        // A newer candidate may be the fix: its rollout goes on.
        let pending = newest.pending.take();
        let pending = pending.filter(|one| one.loaded.revision.id() != failed.revision.id());
        let mut changes = self.put_to_work(name, before);
        self.bar(name, RevisionRecord::of(&failed.revision), &why);
        let Some(pending) = pending else {
            changes.extend(self.refuse_barred(name, &failed, why));
            return changes;
        };
        changes.extend(self.propose(name, pending.loaded));
        changes
    }
}
