//! Takes the results of loads.

use super::{ManifestState, Swap};
use crate::policies::active::PolicyChanges;
use crate::policies::load_queue::{JobOutput, JobResult, PreviousRevision, Restored};
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::catalogue::Refusal;
use transom_core::rollout::history::History;

impl Swap {
    /// Waits for the next policy that was loaded, refused or restored.
    pub(in crate::policies) async fn next(&mut self) -> JobOutput {
        self.loads.next().await
    }

    /// Takes the result of a load.
    pub(in crate::policies) fn finish(&mut self, given: JobOutput) -> PolicyChanges {
        let (name, changes) = match given {
            JobOutput::Done(done) => (Arc::clone(&done.policy), self.take_result(*done)),
            JobOutput::Restored(restored) => {
                (Arc::clone(&restored.policy), self.take_restored(*restored))
            }
            JobOutput::PreviousRevision(before) => {
                let name = Arc::clone(&before.policy);
                self.take_before(*before);
                (name, PolicyChanges::new())
            }
        };
        let kept = self.loads.components().kept();
        kept.use_loaded(&name, self.in_use(&name));
        self.active.loading(self.loads.count());
        changes
    }

    /// The components of a policy that work, or may do so without another load.
    fn in_use(&self, name: &str) -> BTreeSet<String> {
        let pending = self.newest.get(name).and_then(|one| one.pending.as_ref());
        let before = self.probations.get(name).map(|one| &one.before);
        let all = [self.good.get(name), before, pending.map(|one| &one.loaded)];
        let guests = all
            .into_iter()
            .flatten()
            .flat_map(|one| one.revision.guests());
        guests.map(|guest| guest.digest.to_string()).collect()
    }

    /// Takes a history that a load has read, unless a newer one was read or written since the load began. If it has no
    /// active revision, the one that works here is recorded. The load brings what is active, as far as it can be had.
    fn take_read(&mut self, name: &Arc<str>, number: u64, history: History) {
        self.unlisted.remove(name);
        let at = self.newest.get(name).map(|newest| newest.history_at);
        if at.is_some_and(|at| number <= at) && self.histories.contains_key(name) {
            return;
        }
        if history.active().is_none() && self.recalled.remove(name) {
            self.note(name);
        }
        self.put_history(name, history);
    }

    /// Takes the revision that a job restored before it reads the newest components. The newest manifest bounds it at
    /// once.
    fn take_restored(&mut self, given: Restored) -> PolicyChanges {
        let name = given.policy;
        let newest = self.newest.get(&name);
        if newest.is_none_or(|newest| newest.number != given.number) {
            return PolicyChanges::new();
        }
        self.take_read(&name, given.number, given.history);
        let mut changes = self.restore(&name, given.restored);
        changes.extend(self.narrow(&name));
        if let Some(before) = given.before {
            self.watch_on(&name, Arc::new(before));
        }
        changes.extend(self.refuse_overlaps());
        changes
    }

    /// Takes the previous revision for a rollback, if the active revision is not on probation yet. Whether it is still
    /// the previous one, [`Self::watch_on`] checks; whether the newest manifest allows a rollback, the rollback.
    fn take_before(&mut self, given: PreviousRevision) {
        let name = given.policy;
        let is_watched = self.probations.contains_key(&name);
        if let Some(before) = given.before
            && !is_watched
            && self.barred(&name, &before.revision.id()).is_none()
        {
            self.watch_on(&name, Arc::new(before));
        }
    }

    /// Takes a result, if it is that of the newest manifest.
    fn take_result(&mut self, done: JobResult) -> PolicyChanges {
        let asks_again = done.asks_again();
        let (name, mut changes) = (done.policy, PolicyChanges::new());
        let counts = |newest: &&mut ManifestState| newest.number == done.number;
        let Some(newest) = self.newest.get_mut(&name).filter(counts) else {
            return changes;
        };
        (newest.loading, newest.unrestored) = (None, done.unrestored);
        // These fingerprints are older than the load, so a component that changed during it counts as changed.
        newest.fingerprints = done.fingerprints;
        newest.versions = done.versions;
        let unread_before = newest.retry_later(asks_again, self.number);
        let was_loaded = newest.refusal.is_none();
        let failed = was_loaded && done.result.is_err();
        let failed_before = std::mem::replace(&mut newest.failed, failed);
        // Until now the newest manifest could not be loaded, so overlaps with it did not count; another policy may own
        // the same objects.
        if failed_before && !newest.failed {
            changes.extend(self.refuse_overlaps());
        }
        if self.newest.get_mut(&name).filter(counts).is_none() {
            return changes;
        }
        if let Some(history) = done.history {
            self.take_read(&name, done.number, history);
        }
        if let Some(restored) = done.restored {
            changes.extend(self.restore(&name, restored));
        }
        let retried = |refusal: Refusal| Refusal {
            retried: refusal.retried || done.incomplete,
            ..refusal
        };
        match done.result.map_err(retried) {
            Ok(loaded) => {
                let loaded = Arc::new(loaded);
                changes.extend(self.take_loaded(&name, loaded));
                if let Some(refusal) = done.refused.map(retried) {
                    changes.extend(self.refuse(&name, refusal, !unread_before));
                }
            }
            Err(refusal) => {
                let anew = was_loaded && !unread_before;
                changes.extend(self.take_refusal(&name, refusal, anew));
            }
        }
        if let Some(before) = done.before {
            self.watch_on(&name, Arc::new(before));
        }
        changes.extend(self.refuse_overlaps());
        self.load_reported(&name);
        changes
    }

    /// Takes why a load brought nothing new. A right to the history that is missing suspends nothing.
    fn take_refusal(&mut self, name: &Arc<str>, refusal: Refusal, anew: bool) -> PolicyChanges {
        if refusal.reason == KnownReason::ReadForbidden {
            self.unlisted.remove(name);
        }
        self.drop_other_candidate(name);
        let mut changes = self.narrow(name);
        changes.extend(self.refuse(name, refusal, anew));
        changes
    }
}
