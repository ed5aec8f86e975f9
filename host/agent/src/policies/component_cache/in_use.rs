//! Which components policies use: those of their active and previous revisions by the history, and those that work or
//! were loaded just now. None of them is removed to make room.

use std::collections::{BTreeMap, BTreeSet};
use transom_core::rollout::history::{History, RevisionRecord};

/// The digests of components, by the policies that use them.
#[derive(Default)]
pub(super) struct InUse {
    /// By what is kept of their revisions.
    kept: BTreeMap<String, BTreeSet<String>>,
    /// By what this run has loaded.
    loaded: BTreeMap<String, BTreeSet<String>>,
}

impl InUse {
    /// Whether a policy uses the component with this digest.
    pub(super) fn has(&self, digest: &str) -> bool {
        let mut all = self.kept.values().chain(self.loaded.values());
        all.any(|digests| digests.contains(digest))
    }

    /// Replaces what is known of the revisions of all policies.
    pub(super) fn kept(&mut self, histories: &BTreeMap<String, History>) {
        self.kept.clear();
        for (policy, history) in histories {
            self.kept_of(policy, history);
        }
    }

    /// Replaces what is known of the revisions of one policy. The active one and the one before may have to work again.
    pub(super) fn kept_of(&mut self, policy: &str, history: &History) {
        let protected = [history.active(), history.previous()];
        let digests = protected.into_iter().flatten().flat_map(digests);
        self.kept.insert(policy.to_owned(), digests.collect());
    }

    /// Replaces what a policy has loaded and may put to work.
    pub(super) fn loaded(&mut self, policy: &str, digests: BTreeSet<String>) {
        self.loaded.insert(policy.to_owned(), digests);
    }

    /// A policy has just loaded a component.
    pub(super) fn add(&mut self, policy: &str, digest: &str) {
        let loaded = self.loaded.entry(policy.to_owned()).or_default();
        loaded.insert(digest.to_owned());
    }

    /// Forgets a policy that is gone.
    pub(super) fn forget(&mut self, policy: &str) {
        self.kept.remove(policy);
        self.loaded.remove(policy);
    }
}

/// The components of a kept revision.
fn digests(record: &RevisionRecord) -> impl Iterator<Item = String> {
    [Some(&record.decide), record.trigger.as_ref()]
        .into_iter()
        .flatten()
        .cloned()
}
