//! Takes the changes of all policies, and puts revisions to work when what they need is watched.

use super::Controller;
use crate::policies::active::{Active, PolicyChanges};
use crate::policies::load::LoadedPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use transom_core::catalogue::PolicyChange::{self, Bounded, Loaded, Swapped};
use transom_core::policy::{Policy, bound};
use transom_core::share::lock::MutexExt as _;

impl Controller {
    /// Puts changes to work as they come, until their sender is gone. A revision that was loaded or swapped waits, in a
    /// task of its own, until what it needs is watched. So does one whose bound widens again what another manifest
    /// narrowed; what narrows counts at once, and so do all other changes.
    pub(crate) async fn follow_policies(
        self: Arc<Self>,
        active: Active,
        mut changes: mpsc::UnboundedReceiver<PolicyChanges>,
    ) {
        let waits = |(policy, change): &(Arc<str>, PolicyChange)| match change {
            Loaded | Swapped => true,
            Bounded => !self.narrows(policy, active.loaded_of(policy)),
            _ => false,
        };
        while let Some(changes) = changes.recv().await {
            let (later, now): (PolicyChanges, PolicyChanges) =
                changes.into_iter().partition(&waits);
            self.activate(&active, &now);
            if !later.is_empty() {
                drop(tokio::spawn(
                    Arc::clone(&self).begin_policies(active.clone(), later),
                ));
            }
        }
    }

    /// Whether a bound allows no more than what works now. Otherwise what was kept until now may lack what it reads,
    /// and other policies go on reading that. Until the bound counts, a policy that it narrows as well is suspended.
    pub(super) fn narrows(
        self: &Arc<Self>,
        policy: &str,
        bounded: Option<Arc<LoadedPolicy>>,
    ) -> bool {
        let _one = self.activating.locked();
        let Some((queue, next)) = self.queue(policy).zip(bounded) else {
            return true;
        };
        let working = queue.loaded();
        let (before, after) = (&working.revision.policy, &next.revision.policy);
        let both = bound::bounded(before, after);
        let narrows = working.revision.is(&next.revision) && both == *after;
        if !narrows && both != *before {
            let suspended = working.under(Policy {
                suspend: true,
                ..before.clone()
            });
            self.resume(policy, Arc::new(suspended), None);
        }
        narrows
    }

    /// Watches what the active policies need, and puts changes to work: each policy as soon as the connections that it
    /// names are ready, so that one that is slow or does not answer holds up no other policy.
    pub(crate) async fn begin_policies(self: Arc<Self>, active: Active, changes: PolicyChanges) {
        // Changes that need no connection, such as a refusal. They are published even when there are none.
        let mut by_need = BTreeMap::from([(BTreeSet::new(), PolicyChanges::new())]);
        for (policy, change) in changes {
            by_need
                .entry(active.clusters(&policy))
                .or_default()
                .push((policy, change));
        }
        let each = by_need.into_iter();
        let each =
            each.map(|(clusters, changes)| self.begin_when_ready(&active, clusters, changes));
        futures::future::join_all(each).await;
    }

    /// The same for policies that need these connections.
    async fn begin_when_ready(
        self: &Arc<Self>,
        active: &Active,
        clusters: BTreeSet<String>,
        mut changes: PolicyChanges,
    ) {
        loop {
            let loaded = changes.iter().map(|(policy, _)| active.loaded_of(policy));
            let watched: Vec<_> = loaded.collect();
            self.watch(active);
            self.connections.ready(&clusters).await;
            let (mut now, mut later) = (PolicyChanges::new(), PolicyChanges::new());
            for (change, before) in changes.into_iter().zip(watched) {
                match before.zip(active.loaded_of(&change.0)) {
                    Some((_, loaded)) if self.is_bounded_so(&change, &loaded) => {}
                    // Another revision comes with a change of its own.
                    Some((before, loaded)) if !before.revision.is(&loaded.revision) => {}
                    // Its bound is another one meanwhile, and may need what is not watched yet.
                    Some((before, loaded)) if before.revision != loaded.revision => {
                        later.push(change);
                    }
                    _ => now.push(change),
                }
            }
            self.activate(active, &now);
            if later.is_empty() {
                return;
            }
            changes = later;
        }
    }

    /// Whether a change is a bound that another change has put to work meanwhile.
    fn is_bounded_so(&self, change: &(Arc<str>, PolicyChange), loaded: &Arc<LoadedPolicy>) -> bool {
        let queue = self.queue(&change.0);
        change.1 == Bounded && queue.is_some_and(|queue| queue.works_on(loaded))
    }
}
