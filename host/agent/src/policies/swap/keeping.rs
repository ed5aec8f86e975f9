//! What is kept of revisions: which one is active and which are barred. A candidate is kept as the active one before it
//! works, and a new leader takes over what is kept.

use super::Swap;
use crate::policies::active::Changes;
use crate::policies::revisions::Note;
use crate::policies::{Source, Written};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use transom_api::policy::RolloutSpec;
use transom_core::digest::Digest;
use transom_core::plan::WriteFailure;
use transom_core::rollout::history::{History, Record};

/// How long a new leader waits for the list of all revisions.
const LISTING: Duration = Duration::from_secs(10);

impl Swap {
    /// Why a revision may not become active.
    pub(super) fn barred(&self, name: &Arc<str>, id: &Digest) -> Option<String> {
        let bars = self.bars.get(name);
        let bar = bars.and_then(|bars| bars.get(id).cloned());
        let history = self.histories.get(name);
        bar.or_else(|| history.and_then(|history| history.find(id))?.barred.clone())
    }

    /// Bars a revision from becoming active, now and in the history.
    pub(super) fn bar(&mut self, name: &Arc<str>, record: Record, why: &str) {
        let bars = self.bars.entry(Arc::clone(name)).or_default();
        bars.insert(record.id, why.to_owned());
        self.note(name, |note| note.barred.push((record, why.to_owned())));
    }

    /// Adds to what is to be kept about a policy.
    pub(super) fn note(&mut self, name: &Arc<str>, add: impl FnOnce(&mut Note)) {
        let Some(newest) = self.newest.get(name).filter(|_| self.rolls_out) else {
            return;
        };
        let of_server = matches!(self.source, Source::Given(_));
        let uid = newest.written.first().and_then(Written::uid);
        let keep = newest.policy.as_ref().map(|one| one.spec.rollout.history);
        let mut note = Note {
            policy: Arc::clone(name),
            uid: uid.filter(|_| of_server).map(str::to_owned),
            active: Vec::new(),
            barred: Vec::new(),
            keep: keep.unwrap_or_else(|| RolloutSpec::default().history),
        };
        add(&mut note);
        let note = match self.notes.remove(name) {
            Some(earlier) => note.after(earlier),
            None => note,
        };
        self.notes.insert(Arc::clone(name), note);
    }

    /// What is to be kept since the last call.
    pub(in crate::policies) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes).into_values().collect()
    }

    /// Takes over the revisions that the leader before has put to work. Returns the policies whose active revision has to be
    /// loaded for that.
    pub(in crate::policies) async fn catch_up(&mut self) -> (Changes, BTreeSet<Arc<str>>) {
        let (mut changes, mut behind) = (Changes::new(), BTreeSet::new());
        self.notes.clear();
        self.loads.components().forget_histories();
        for name in self.names(|_, _| true) {
            // All are listed with the first one. A server that does not answer now cannot be written, either.
            let history = self.loads.components().history(&name);
            let Ok(Ok(Some(history))) = timeout(LISTING, history).await else {
                break;
            };
            let active = history.active().map(|active| active.id);
            self.histories.insert(Arc::clone(&name), history);
            let newest = self.newest.get(&name);
            let pending = newest.and_then(|newest| newest.pending.as_ref());
            let pending = pending.map(|pending| Arc::clone(&pending.loaded));
            if let Some(loaded) = &pending
                && let Some(why) = self.barred(&name, &loaded.revision.id())
            {
                changes.extend(self.refuse_barred(&name, loaded, why));
            }
            let good = self.good.get(&name).map(|good| good.revision.id());
            if active == good {
                continue;
            }
            let Some(active) = active else {
                // Nothing is kept yet: what works here is the first.
                let record = self.good.get(&name).map(|good| Record::of(&good.revision));
                self.note(&name, |note| note.active.extend(record));
                continue;
            };
            match pending.filter(|loaded| loaded.revision.id() == active) {
                Some(loaded) => {
                    let before = self.good.get(&name).cloned();
                    changes.extend(self.put_to_work(&name, loaded));
                    self.probations.remove(&name);
                    if let Some(before) = before {
                        self.watch_on(&name, before);
                    }
                }
                None => {
                    self.recalled.insert(Arc::clone(&name));
                    self.load(&name);
                    behind.insert(name);
                }
            }
        }
        (changes, behind)
    }

    /// Whether one of these policies is being loaded.
    pub(in crate::policies) fn any_loads(&self, policies: &BTreeSet<Arc<str>>) -> bool {
        let mut newest = policies.iter().filter_map(|name| self.newest.get(name));
        newest.any(|newest| newest.loading.is_some())
    }

    /// Keeps what is still to be kept, once; returns what became active by that, and what failed.
    pub(crate) async fn keep_notes(&mut self) -> (Changes, Vec<(Arc<str>, WriteFailure)>) {
        let (mut changes, mut failed) = (Changes::new(), Vec::new());
        for note in self.take_notes() {
            match self.loads.components().keep_note(&note, false).await {
                Ok(history) => changes.extend(self.kept(&note.policy, history)),
                Err(failure) => failed.push((note.policy, failure)),
            }
        }
        (changes, failed)
    }

    /// Takes the history of a policy as it is kept now; `None` when it is kept nowhere. A candidate that is kept as the active
    /// one is put to work.
    pub(in crate::policies) fn kept(
        &mut self,
        policy: &Arc<str>,
        history: Option<History>,
    ) -> Changes {
        let Some(newest) = self.newest.get_mut(policy) else {
            return Changes::new();
        };
        let active = history
            .as_ref()
            .map(|history| history.active().map(|one| one.id));
        if let Some(history) = history {
            self.histories.insert(Arc::clone(policy), history);
        }
        let passed = newest.pending.as_ref().and_then(|pending| {
            let id = pending.loaded.revision.id();
            let is_kept = active.is_none_or(|active| active == Some(id));
            Some((Arc::clone(&pending.loaded), pending.passed.clone()?)).filter(|_| is_kept)
        });
        let Some((loaded, passed)) = passed else {
            return Changes::new();
        };
        let changes = self.put_to_work(policy, Arc::clone(&loaded));
        if let Some(probation) = self.probations.get_mut(policy) {
            probation.terms = Some(passed.probation);
        }
        let mut known = self.active.lock();
        if !passed.approved.is_empty() {
            known.plans.insert(Arc::clone(policy), passed.approved);
        }
        if let Some(rehearsed) = passed.rehearsed {
            known
                .rehearsed
                .insert(Arc::clone(policy), (loaded, rehearsed));
        }
        drop(known);
        changes
    }
}
