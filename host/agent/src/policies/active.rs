//! What is known of every policy, and the active revisions. Knows no controller: it hands over changes.

use crate::policies::Approval;
use crate::policies::load::LoadedPolicy;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;
use transom_api::KnownReason;
use transom_api::policy::Limited;
use transom_core::catalogue::{Catalogue, CatalogueEntry, PolicyChange, PolicyPlace, Refusal};
use transom_core::rollout::Candidate;
use transom_core::rollout::rehearsal::Rehearsal;
use transom_core::share::lock::MutexExt as _;

/// The changes of policies, each with the name of its policy.
pub(crate) type PolicyChanges = Vec<(Arc<str>, PolicyChange)>;

/// What is known of every policy, and what is active. Cheap to clone; all clones share their state.
#[derive(Clone)]
pub(crate) struct Active {
    known: Arc<Mutex<ActiveState>>,
    loading: Arc<watch::Sender<usize>>,
}

/// The shared state of [`Active`].
#[derive(Default)]
pub(super) struct ActiveState {
    pub(super) catalogue: Catalogue,
    pub(super) loaded: BTreeMap<Arc<str>, Arc<LoadedPolicy>>,
    /// Files, documents and objects that could not be read the last time, and why.
    pub(super) broken: Vec<(String, String)>,
    /// Every policy that is written.
    pub(super) written: BTreeSet<String>,
    /// The uid of each of them that is an object.
    pub(super) uids: BTreeMap<Arc<str>, String>,
    /// What is approved of each of them.
    pub(super) approvals: BTreeMap<Arc<str>, Approval>,
    /// The approved plans of revisions that became active just now.
    pub(super) plans: BTreeMap<Arc<str>, ApprovedCounts>,
    /// The primaries that trials found up to date, of revisions that became active just now.
    pub(super) rehearsed: BTreeMap<Arc<str>, (Arc<LoadedPolicy>, Rehearsed)>,
}

/// For how many primaries an approved plan makes a kind of change that has a limit.
pub(crate) type ApprovedCounts = BTreeMap<Limited, u32>;

/// The primaries that a trial found up to date, and the objects that changed meanwhile.
pub(crate) type Rehearsed = Arc<Mutex<Rehearsal>>;

impl Default for Active {
    fn default() -> Self {
        Self {
            known: Arc::default(),
            loading: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Active {
    pub(super) fn lock(&self) -> MutexGuard<'_, ActiveState> {
        self.known.locked()
    }

    /// What is known of every policy.
    pub(crate) fn catalogue(&self) -> Catalogue {
        self.lock().catalogue.clone()
    }

    /// How many policies are refused, with or without an active earlier revision, plus the places that cannot be read
    /// and are not those of such policies.
    pub(crate) fn refused(&self) -> usize {
        let known = self.lock();
        let entries = known.catalogue.entries();
        let refused = entries.filter(|(_, entry)| entry.refused.is_some());
        let places: Vec<&str> = refused.map(|(_, entry)| &*entry.place.text).collect();
        let is_counted = |at: &str| {
            places
                .iter()
                .any(|place| is_in(at, place) || is_in(place, at))
        };
        let broken = known.broken.iter().filter(|(at, _)| !is_counted(at));
        places.len() + broken.count()
    }

    /// How many policies have a candidate that waits for an approval.
    pub(crate) fn awaiting_approval(&self) -> usize {
        let known = self.lock();
        let candidates = known.catalogue.entries();
        let candidates = candidates.filter_map(|(_, entry)| entry.candidate.as_ref());
        candidates.filter(|one| one.awaits_approval()).count()
    }

    /// Why each refused policy was refused.
    pub(crate) fn refusals(&self) -> Vec<(String, Refusal)> {
        let refused = |(name, entry): (&Arc<str>, &CatalogueEntry)| {
            Some((name.to_string(), entry.refused.clone()?))
        };
        self.lock()
            .catalogue
            .entries()
            .filter_map(refused)
            .collect()
    }

    /// The policies whose newest revision is tried or waits, each with its place.
    pub(crate) fn waiting(&self) -> Vec<(PolicyPlace, Candidate)> {
        let waiting = |(_, entry): (&Arc<str>, &CatalogueEntry)| {
            let candidate = entry
                .candidate
                .clone()
                .filter(|_| entry.refused.is_none())?;
            Some((entry.place.clone(), candidate))
        };
        self.lock()
            .catalogue
            .entries()
            .filter_map(waiting)
            .collect()
    }

    /// Files, documents and objects that cannot be read, and why.
    pub(crate) fn broken(&self) -> Vec<(String, String)> {
        self.lock().broken.clone()
    }

    /// The active revisions.
    pub(crate) fn loaded(&self) -> Vec<Arc<LoadedPolicy>> {
        self.lock().loaded.values().cloned().collect()
    }

    /// The names of all written policies, including refused ones and those that are being loaded.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.lock().written.clone()
    }

    /// Whether a policy is written; it may be refused.
    pub(crate) fn is_written(&self, policy: &str) -> bool {
        self.lock().written.contains(policy)
    }

    /// Sets which policies are written, and what cannot be read.
    #[cfg(test)]
    pub(crate) fn found(&self, written: &[&str], broken: &[&str]) {
        let known = &mut self.lock();
        known.written = written.iter().map(ToString::to_string).collect();
        let told = |place: &&str| ((*place).to_owned(), "it cannot be read".to_owned());
        known.broken = broken.iter().map(told).collect();
    }

    /// Sets the active revision of a policy.
    #[cfg(test)]
    pub(crate) fn works_on(&self, loaded: &Arc<LoadedPolicy>) {
        let name = Arc::clone(&loaded.revision.policy.name);
        self.lock().loaded.insert(name, Arc::clone(loaded));
    }

    /// Sets how many policies are being loaded.
    pub(super) fn loading(&self, count: usize) {
        self.loading.send_replace(count);
    }

    /// Waits until everything that is written was loaded or refused.
    pub(crate) async fn settled(&self) {
        // Fails only without a sender, and `self` holds it.
        drop(self.loading.subscribe().wait_for(|count| *count == 0).await);
    }

    /// The active revision of a policy.
    pub(crate) fn loaded_of(&self, policy: &str) -> Option<Arc<LoadedPolicy>> {
        self.lock().loaded.get(policy).cloned()
    }

    /// The uid of a policy, if it is an object.
    pub(crate) fn uid(&self, policy: &str) -> Option<String> {
        self.lock().uids.get(policy).cloned()
    }

    /// What is approved of a policy.
    pub(crate) fn approval(&self, policy: &str) -> Option<Approval> {
        self.lock().approvals.get(policy).cloned()
    }

    /// Takes the approved plan of the active revision of a policy: it counts once.
    pub(crate) fn take_plan(&self, policy: &str) -> Option<ApprovedCounts> {
        self.lock().plans.remove(policy)
    }

    /// Takes the primaries that the trial of a revision found up to date, if that became active unchanged just now.
    pub(crate) fn take_rehearsed(
        &self,
        policy: &str,
        loaded: &Arc<LoadedPolicy>,
    ) -> Option<Rehearsed> {
        let (tried, rehearsed) = self.lock().rehearsed.remove(policy)?;
        Arc::ptr_eq(&tried, loaded).then_some(rehearsed)
    }

    /// Which tags of a policy mean something else by now.
    pub(crate) fn moved(&self, policy: &str) -> String {
        let known = self.lock();
        let entry = known.catalogue.entry(policy);
        let moved = entry.into_iter().flat_map(|entry| &entry.moved);
        moved
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Logs a change of a policy.
    pub(crate) fn tell(&self, policy: &str, change: PolicyChange) {
        let catalogue = self.catalogue();
        let entry = catalogue.entry(policy).cloned().unwrap_or_default();
        let revision = entry.revision.as_ref();
        match change {
            PolicyChange::Loaded => telemetry::tell_of_policy(policy, "loaded"),
            PolicyChange::Swapped => telemetry::tell_of_policy(policy, "swapped"),
            PolicyChange::Mended => {
                let message = "recovered: the newest revision is active again";
                telemetry::tell_of_policy(policy, message);
            }
            PolicyChange::Removed => {
                let message = "policy removed; its objects are left in place";
                telemetry::tell_of_policy(policy, message);
            }
            PolicyChange::TagReturned => {
                let message = "the tags of its components point to the artifacts that were pulled";
                telemetry::tell_of_policy(policy, message);
            }
            PolicyChange::TagMoved => {
                telemetry::warn_of_policy(policy, KnownReason::TagMoved, &self.moved(policy));
            }
            PolicyChange::Bounded if revision.is_some_and(|one| one.policy.suspend) => {
                telemetry::tell_of_policy(policy, "suspended");
            }
            PolicyChange::Bounded => telemetry::bounded(policy),
            // One that is over by now has nothing to tell.
            PolicyChange::Waiting => {
                if let Some(candidate) = entry.candidate {
                    telemetry::candidate(policy, &candidate);
                }
            }
            PolicyChange::Refused => {
                if let Some(Refusal {
                    reason, message, ..
                }) = entry.refused
                {
                    telemetry::refused(policy, reason, &message, revision.is_some());
                }
            }
        }
    }
}

/// Whether a place is another one or lies in it, as a document in a file and a file in a folder.
fn is_in(place: &str, other: &str) -> bool {
    let rest = place.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_be_read_and_its_refused_policies_count_once() {
        let refusal = || Refusal::new(KnownReason::ManifestInvalid, "why");
        // The places of refused policies, the broken places, and how many are refused.
        let table: [(&[&str], &[&str], usize); 8] = [
            (&[], &[], 0),
            (&[], &["d/note.yaml, document 1"], 1),
            (&["d/a.yaml"], &["d/a.yaml, document 1"], 1),
            (&["d/a.yaml"], &["d/b.yaml, document 1"], 2),
            (&["d/a.yaml"], &["d/a.yaml2"], 2),
            (&["d/a.yaml", "d/b.yaml"], &["d"], 2),
            (&["d/a.yaml, document 1"], &["d/a.yaml, document 2"], 2),
            (
                &["d/a.yaml, document 1", "d/a.yaml, document 2"],
                &["d/a.yaml, document 2"],
                2,
            ),
        ];
        for (policies, broken, expected) in table {
            let active = Active::default();
            let mut known = active.lock();
            for place in policies {
                let text = (*place).to_owned();
                known.catalogue = known.catalogue.update(place, |entry| {
                    entry.place.text = text;
                    entry.refused = Some(refusal());
                });
            }
            known.broken = broken
                .iter()
                .map(|at| ((*at).to_owned(), String::new()))
                .collect();
            drop(known);
            assert_eq!(active.refused(), expected, "{policies:?} {broken:?}");
        }
    }
}
