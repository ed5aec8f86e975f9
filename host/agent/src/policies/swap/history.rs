//! Records in the history which revision is active and which are barred. A candidate is recorded as active before it
//! works. A note is the whole record that a policy should have; it is written until the history matches it.

use super::probation::RunningProbation;
use super::rollout::{PassedCandidate, Pending};
use super::{ManifestState, Swap};
use crate::policies::active::PolicyChanges;
use crate::policies::load::LoadedPolicy;
use crate::policies::revisions::Note;
use crate::policies::revisions::writer::{self, KeptNote, Unkept};
use crate::policies::{PolicySource, Written};
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_api::policy::RolloutSpec;
use transom_core::digest::Digest;
use transom_core::plan::WriteFailure;
use transom_core::rollout::Candidate;
use transom_core::rollout::history::{History, RevisionRecord};

impl Swap {
    /// Why a revision may not become active.
    pub(super) fn barred(&self, name: &Arc<str>, id: &Digest) -> Option<String> {
        let bars = self.bars.get(name);
        let bar = bars.and_then(|bars| Some(bars.get(id)?.1.clone()));
        let history = self.histories.get(name);
        bar.or_else(|| history.and_then(|history| history.find(id))?.barred.clone())
    }

    /// Bars a revision from becoming active, now and in the history.
    pub(super) fn bar(&mut self, name: &Arc<str>, record: RevisionRecord, why: &str) {
        let bars = self.bars.entry(Arc::clone(name)).or_default();
        bars.insert(record.id, (record, why.to_owned()));
        self.note(name);
    }

    /// Takes the history of a policy as it is now. A bar that it has lost, because somebody deleted the record, stays
    /// and is recorded again: else that revision would become active untried.
    pub(super) fn put_history(&mut self, name: &Arc<str>, history: History) {
        let before = self.histories.insert(Arc::clone(name), history);
        let keep = self.note_of(name).map(|note| note.keep);
        let (Some(before), Some(keep)) = (before, keep) else {
            return;
        };
        let lost = before.bars_lost_in(&self.histories[name], keep);
        let lost: Vec<_> = lost
            .filter_map(|record| Some((record.clone(), record.barred.clone()?)))
            .collect();
        for (record, why) in lost {
            self.bar(name, record, &why);
        }
    }

    /// The active revision of the history. Skips a revision whose bar is not recorded yet.
    pub(super) fn active_by_history(&self, name: &Arc<str>) -> Option<&RevisionRecord> {
        let mut usable = self.histories.get(name)?.usable();
        usable.find(|record| self.barred(name, &record.id).is_none())
    }

    /// Schedules a write of the history of a policy. It changes nothing if the history is up to date.
    pub(super) fn note(&mut self, name: &Arc<str>) {
        self.notes.insert(Arc::clone(name), Instant::now());
    }

    /// What is to be kept about a policy now: what works, what is to become active, and what is barred.
    fn note_of(&self, name: &Arc<str>) -> Option<Note> {
        let note = Note {
            policy: Arc::clone(name),
            uid: None,
            active: Vec::new(),
            before: None,
            barred: Vec::new(),
            keep: RolloutSpec::default().history,
            gone: true,
        };
        if self.gone.contains(name) {
            return Some(note);
        }
        let newest = self.newest.get(name).filter(|_| self.rolls_out)?;
        let good = self.good.get(name).map(|good| &*good.revision);
        // An invalid manifest does not say how many revisions to keep: the active revision does.
        let policy = newest.policy.as_ref().or(good.map(|good| &good.policy));
        let keep = policy.map(|policy| policy.spec.rollout.history);
        let good = good.map(RevisionRecord::of);
        // After an upgrade of the agent the watch goes on.
        let continued = self.active_by_history(name);
        let watched = self.probations.get(name);
        let good = good.map(|good| {
            let mut good = match continued {
                Some(continued) => good.continuing(continued),
                None => good,
            };
            // Somebody may have deleted the record that says for how long the revision is watched.
            let terms = watched.and_then(|watched| watched.terms);
            good.probation = good.probation.or(terms);
            good
        });
        let passed = newest
            .pending
            .as_ref()
            .and_then(|pending| Some(pending.passed.as_ref()?.record.clone()));
        // While the active revision of the history is being loaded, another one works here, which must not be recorded.
        // If the former cannot be read, a candidate that passed may replace it.
        let recalled = self.recalled.contains(name);
        let good = good.filter(|_| !recalled);
        let watched = watched.filter(|_| !recalled);
        let before = watched.map(|one| RevisionRecord::of(&one.before.revision));
        let passed = passed.filter(|_| !recalled || newest.unrestored);
        let counts = |record: &RevisionRecord| self.barred(name, &record.id).is_none();
        Some(Note {
            uid: self.uid(&newest.written).map(str::to_owned),
            active: good.into_iter().chain(passed).filter(counts).collect(),
            before: before.filter(counts),
            barred: (self.bars.get(name).into_iter())
                .flat_map(|bars| bars.values().cloned())
                .collect(),
            keep: keep.unwrap_or(note.keep),
            gone: false,
            ..note
        })
    }

    /// The uid of a policy, if it is an object; a file may bear the uid of an object on another cluster.
    pub(super) fn uid<'a>(&self, written: &'a [Written]) -> Option<&'a str> {
        let of_server = matches!(self.source, PolicySource::Given(_));
        written.first().and_then(Written::uid).filter(|_| of_server)
    }

    /// The uid of each policy that is an object.
    pub(super) fn uids(&self) -> BTreeMap<Arc<str>, String> {
        let uid = |(name, newest): (&Arc<str>, &ManifestState)| {
            Some((Arc::clone(name), self.uid(&newest.written)?.to_owned()))
        };
        self.newest.iter().filter_map(uid).collect()
    }

    /// Forgets the history of a removed policy, and schedules the deletion of its revisions. The API server deletes
    /// those of a `FleetPolicy` object.
    pub(super) fn forget_kept(&mut self, name: &Arc<str>, uid: Option<&str>) {
        self.histories.remove(name);
        self.bars.remove(name);
        self.notes.remove(name);
        self.recalled.remove(name);
        self.unlisted.remove(name);
        self.loads.components().forget_history(name);
        if uid.is_none() && self.rolls_out {
            self.gone.insert(Arc::clone(name));
            self.note(name);
        }
    }

    /// What is to be kept now, without the policies whose last note is still being written.
    pub(in crate::policies) fn take_notes(&mut self, busy: &BTreeSet<Arc<str>>) -> Vec<Note> {
        let now = Instant::now();
        let caught_up = self.caught_up;
        let is_due =
            |name: &Arc<str>, at: &mut Instant| caught_up && *at <= now && !busy.contains(name);
        let due: Vec<_> = self.notes.extract_if(.., is_due).collect();
        due.iter()
            .filter_map(|(name, _)| self.note_of(name))
            .collect()
    }

    /// Writes all pending notes. Returns the changes that follow, and the failures. A candidate whose note failed twice
    /// is not tried again: the caller does not wait.
    pub(crate) async fn keep_notes(&mut self) -> (PolicyChanges, Vec<(Arc<str>, WriteFailure)>) {
        let (mut changes, mut failed) = (PolicyChanges::new(), Vec::new());
        for name in std::mem::take(&mut self.notes).into_keys() {
            let Some(note) = self.note_of(&name) else {
                continue;
            };
            let components = self.loads.components().clone();
            let (note, result) = writer::keep(components, note).await;
            let result = result.map_err(|failure| {
                failed.push((Arc::clone(&name), failure.clone()));
                let delay = Duration::ZERO;
                Unkept { failure, delay }
            });
            changes.extend(self.kept(KeptNote { note, result }));
            if let Some(pending) = self.pending(&name).filter(|one| one.unkept > 1) {
                pending.due = None;
            }
        }
        (changes, failed)
    }

    /// Takes what became of a note.
    pub(in crate::policies) fn kept(&mut self, kept: KeptNote) -> PolicyChanges {
        match kept.result {
            Ok(history) => self.take_history(&kept.note, history),
            Err(unkept) => self.unkept(&kept.note.policy, unkept),
        }
    }

    /// Takes the history after a note was written; `None` if there is none. Activates a candidate that the history
    /// records as active.
    fn take_history(&mut self, note: &Note, history: Option<History>) -> PolicyChanges {
        let policy = &note.policy;
        let is_removed = note.gone && self.gone.remove(policy);
        let Some(newest) = self.newest.get(policy) else {
            return PolicyChanges::new();
        };
        let is_other = self.uid(&newest.written) != note.uid.as_deref();
        if is_removed || is_other || self.gone.contains(policy) {
            // That was another policy of the same name.
            self.note(policy);
            return PolicyChanges::new();
        }
        let active = history
            .as_ref()
            .map(|history| history.active().map(|one| one.id));
        let passed = newest.pending.as_ref().and_then(|pending| {
            let id = pending.loaded.revision.id();
            let is_kept = active.is_none_or(|active| active == Some(id));
            Some((Arc::clone(&pending.loaded), pending.passed.clone()?)).filter(|_| is_kept)
        });
        if let Some(history) = history {
            if let Some(bars) = self.bars.get_mut(policy) {
                bars.retain(|id, _| !history.is_barred(id));
            }
            self.put_history(policy, history);
            let number = self.number;
            if let Some(newest) = self.newest.get_mut(policy) {
                newest.history_at = number;
            }
        }
        if let Some((loaded, passed)) = passed {
            return self.put_passed(policy, loaded, passed);
        }
        let mut changes = self.contradicted(note);
        if self.unlisted.contains(policy) {
            // The note was sooner than a load.
            changes.extend(self.take_over(policy));
        }
        // While it was written, a candidate may have been replaced, or a revision taken back.
        if self.note_of(policy).is_some_and(|now| now != *note) {
            self.note(policy);
        } else if active.is_some() {
            // Somebody may delete records, or bar a revision. Not all histories are listed at once.
            let again = Instant::now() + writer::again(policy);
            self.notes.entry(Arc::clone(policy)).or_insert(again);
        }
        changes
    }

    /// Handles a candidate whose note was written although the history has another active revision, because another
    /// writer changed it: refuses the candidate if it is barred, else tries it again.
    fn contradicted(&mut self, note: &Note) -> PolicyChanges {
        let policy = &note.policy;
        let pending = self.pending(policy).map(|one| Arc::clone(&one.loaded));
        let id = pending.as_ref().map(|loaded| loaded.revision.id());
        let Some(loaded) = pending.filter(|_| id == note.active.last().map(|last| last.id)) else {
            return PolicyChanges::new();
        };
        if let Some(why) = id.and_then(|id| self.barred(policy, &id)) {
            return self.refuse_barred(policy, &loaded, why);
        }
        if self.pending(policy).is_none_or(|one| one.passed.is_none()) {
            return PolicyChanges::new();
        }
        let failure = WriteFailure {
            reason: KnownReason::WriteConflict,
            message: "another revision is active by the history".to_owned(),
        };
        let delay = Duration::ZERO;
        self.unkept(policy, Unkept { failure, delay })
    }

    /// Puts a candidate to work that passed all gates and is kept as the active revision.
    fn put_passed(
        &mut self,
        policy: &Arc<str>,
        loaded: Arc<LoadedPolicy>,
        passed: PassedCandidate,
    ) -> PolicyChanges {
        let before = self.good.get(policy).cloned();
        let changes = self.put_to_work(policy, Arc::clone(&loaded));
        let other = |before: &Arc<LoadedPolicy>| before.revision.id() != loaded.revision.id();
        if let Some(before) = before.filter(other) {
            let probation = RunningProbation::after(before);
            self.probations.insert(Arc::clone(policy), probation);
        }
        if let Some(probation) = self.probations.get_mut(policy) {
            probation.terms = passed.record.probation;
        }
        let works = self.good.get(policy).map_or(loaded, Arc::clone);
        let mut known = self.active.lock();
        if !passed.approved.is_empty() {
            known.plans.insert(Arc::clone(policy), passed.approved);
        }
        if let Some(rehearsed) = passed.rehearsed {
            known
                .rehearsed
                .insert(Arc::clone(policy), (works, rehearsed));
        }
        drop(known);
        changes
    }

    /// Schedules another write of a note that failed. A candidate that the note would have activated is tried again
    /// after a back-off, and its status says why it waits.
    fn unkept(&mut self, policy: &Arc<str>, Unkept { failure, delay }: Unkept) -> PolicyChanges {
        let now = Instant::now();
        let passed = self.try_again(policy, now);
        if let Some(pending) = self.pending(policy).filter(|_| passed) {
            pending.due = Some(now + writer::delay(policy, pending.unkept));
            pending.unkept += 1;
        }
        self.notes.entry(Arc::clone(policy)).or_insert(now + delay);
        // This replica may go on to lead: the end of its lease may be a matter of clocks.
        if failure.reason == KnownReason::NotLeading {
            return PolicyChanges::new();
        }
        let place = format!("the revisions of {policy}");
        telemetry::unreadable(&place, failure.reason, &failure.message);
        let known = self.active.lock().catalogue.entry(policy).cloned();
        let candidate = known.and_then(|entry| entry.candidate);
        let Some(candidate) = candidate.filter(|_| passed) else {
            return PolicyChanges::new();
        };
        let (reason, why) = (failure.reason, failure.message);
        let message =
            format!("it passed all gates, and could not be kept as the active revision: {why}");
        let candidate = Candidate {
            reason,
            message,
            ..candidate
        };
        self.waits(policy, candidate)
    }

    /// Schedules a new trial of a candidate that passed and is not active yet: its plan may differ by then. Returns
    /// whether there is one.
    pub(super) fn try_again(&mut self, name: &Arc<str>, at: Instant) -> bool {
        self.pending(name)
            .is_some_and(|pending| pending.try_again(at))
    }

    fn pending(&mut self, name: &Arc<str>) -> Option<&mut Pending> {
        self.newest.get_mut(name)?.pending.as_mut()
    }
}

#[cfg(test)]
mod tests;
