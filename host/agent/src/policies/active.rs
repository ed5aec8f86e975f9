//! What is known of every policy, and the active revisions.

use crate::controller::Controller;
use crate::policies::load::Loaded;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use transom_core::catalogue::{Catalogue, Change, Entry, Refusal};
use transom_core::rights;
use transom_core::signal::Signal;

/// The changes of policies, each with the name of its policy.
pub(crate) type Changes = Vec<(Arc<str>, Change)>;

/// What is known of every policy, and what is active. Cheap to clone; all clones share their state.
#[derive(Clone)]
pub(crate) struct Active {
    known: Arc<Mutex<Known>>,
    loading: Arc<watch::Sender<usize>>,
}

/// The shared state of [`Active`].
#[derive(Default)]
pub(super) struct Known {
    pub(super) catalogue: Catalogue,
    pub(super) loaded: BTreeMap<Arc<str>, Arc<Loaded>>,
    /// Files, documents and objects that could not be read the last time, and why.
    pub(super) broken: Vec<(String, String)>,
    /// Every policy that is written.
    pub(super) written: BTreeSet<String>,
}

impl Known {
    fn refused(&self) -> usize {
        self.catalogue
            .entries()
            .filter(|(_, entry)| entry.refused.is_some())
            .count()
            + self.broken.len()
    }
}

impl Default for Active {
    fn default() -> Self {
        Self {
            known: Arc::default(),
            loading: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Active {
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of every policy.
    pub(crate) fn catalogue(&self) -> Catalogue {
        self.lock().catalogue.clone()
    }

    /// How many policies are refused, with or without an active earlier revision, plus the places that cannot be read.
    pub(crate) fn refused(&self) -> usize {
        self.lock().refused()
    }

    /// Why each refused policy was refused.
    pub(crate) fn refusals(&self) -> Vec<(String, Refusal)> {
        let known = self.lock();
        let refused =
            |(name, entry): (&Arc<str>, &Entry)| Some((name.to_string(), entry.refused.clone()?));
        known.catalogue.entries().filter_map(refused).collect()
    }

    /// Files, documents and objects that cannot be read, and why.
    pub(crate) fn broken(&self) -> Vec<(String, String)> {
        self.lock().broken.clone()
    }

    /// The active revisions.
    pub(crate) fn loaded(&self) -> Vec<Arc<Loaded>> {
        self.lock().loaded.values().cloned().collect()
    }

    /// The names of all written policies, including refused ones and those that are being loaded.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.lock().written.clone()
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

    fn loaded_of(&self, policy: &str) -> Option<Arc<Loaded>> {
        self.lock().loaded.get(policy).cloned()
    }

    /// The connections that an active policy needs.
    pub(super) fn clusters(&self, policy: &str) -> BTreeSet<String> {
        let loaded = self.loaded_of(policy);
        let clusters = loaded
            .iter()
            .flat_map(|loaded| loaded.revision.policy.clusters());
        clusters.map(|(_, cluster)| cluster.to_owned()).collect()
    }

    /// Activates revisions as they are now, and reports what was loaded, bound, refused or removed.
    pub(crate) fn publish(&self, controller: &Arc<Controller>, changes: &[(Arc<str>, Change)]) {
        // Several policies may begin together. The primaries of all of them are to be located first, so that none wins
        // by its order.
        let new = changes.iter().filter(|(policy, change)| {
            *change == Change::Loaded && controller.queue(policy).is_none()
        });
        for loaded in new.filter_map(|(policy, _)| self.loaded_of(policy)) {
            controller.expect(&loaded, true);
        }
        for (policy, change) in changes {
            let loaded = self.loaded_of(policy);
            match (change, loaded) {
                (Change::Loaded | Change::Swapped, Some(loaded)) => {
                    controller.resume(policy, loaded);
                }
                // A policy that did not begin yet will begin with the bounded revision.
                (Change::Bounded, Some(loaded)) if controller.queue(policy).is_some() => {
                    controller.resume(policy, loaded);
                }
                (Change::Removed, None) => controller.remove_queue(policy),
                (Change::Refused | Change::Mended, _) => {}
                (Change::Loaded | Change::Swapped | Change::Bounded, _)
                | (Change::Removed, Some(_)) => continue,
            }
            self.tell(policy, *change);
            self.tell_reach(controller, policy, *change);
        }
        let (catalogue, loaded, refused) = {
            let known = self.lock();
            (known.catalogue.clone(), known.loaded.len(), known.refused())
        };
        telemetry::policies(loaded, refused);
        // Called without a change, too: a refusal ends when the active manifest is put back.
        controller.catalogue_changed(&catalogue);
        // From here on no status of a removed policy is published.
        if changes.iter().any(|(_, change)| *change == Change::Removed) {
            controller.tidy_status(&self.names());
        }
    }

    /// Logs which bounds of a policy's grant RBAC cannot enforce, when the policy is activated.
    fn tell_reach(&self, controller: &Controller, policy: &str, change: Change) {
        if !matches!(change, Change::Loaded | Change::Swapped) {
            return;
        }
        for message in self
            .loaded_of(policy)
            .iter()
            .flat_map(|loaded| reach(controller, loaded))
        {
            telemetry::tell(&Signal::PolicyReaches {
                policy: policy.into(),
                message,
            });
        }
    }

    /// Which bounds of the active grants RBAC cannot enforce, by policy.
    pub(crate) fn reaches(&self, controller: &Controller) -> Vec<(Arc<str>, String)> {
        let known = self.lock();
        let of = |(name, loaded): (&Arc<str>, &Arc<Loaded>)| {
            reach(controller, loaded)
                .into_iter()
                .map(|message| (Arc::clone(name), message))
                .collect::<Vec<_>>()
        };
        known.loaded.iter().flat_map(of).collect()
    }

    fn tell(&self, policy: &Arc<str>, change: Change) {
        let known = self.lock();
        let entry = known
            .catalogue
            .entries()
            .find(|(name, _)| *name == policy)
            .map(|(_, entry)| entry);
        let revision = entry.and_then(|entry| entry.revision.as_ref());
        let policy = Arc::clone(policy);
        let signal = match (change, entry.and_then(|entry| entry.refused.as_ref())) {
            // The refusal is over by now.
            (Change::Refused, None) => return,
            (Change::Loaded, _) => Signal::PolicyLoaded { policy },
            (Change::Swapped, _) => Signal::Swapped { policy },
            (Change::Mended, _) => Signal::PolicyMended { policy },
            (Change::Removed, _) => Signal::PolicyRemoved { policy },
            (Change::Bounded, _) => Signal::PolicyBounded {
                policy,
                suspended: revision.is_some_and(|one| one.policy.suspend),
            },
            (Change::Refused, Some(Refusal { reason, message })) => {
                let (reason, message) = (*reason, message.clone());
                Signal::SwapRefused {
                    policy,
                    reason,
                    message,
                    previous_revision_active: revision.is_some(),
                }
            }
        };
        drop(known);
        telemetry::tell(&signal);
    }
}

/// Which bounds of a grant RBAC cannot enforce; none when there is no API server.
fn reach(controller: &Controller, loaded: &Loaded) -> Vec<String> {
    let reads = controller.connections.secret_reads();
    reads
        .map(|reads| rights::every_secret(&loaded.revision.policy, reads, false))
        .unwrap_or_default()
}
