//! Looks whether a controller that a policy replaces still runs, and tells when one begins and ends. Looks when statuses
//! are published, so that no heart-beat of a Lease wakes anything.

use super::Controller;
use crate::telemetry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use transom_api::KnownReason;
use transom_core::catalogue::Revision;
use transom_core::lease::replaced::{self, LEASE};
use transom_core::policy::Policy;
use transom_core::signal::PolicySignal;

/// What is told of each policy that replaces a controller which runs.
#[derive(Default)]
pub(super) struct Conflicts(Mutex<BTreeMap<Arc<str>, String>>);

impl Conflicts {
    /// What is told of a policy.
    pub(super) fn of(&self, policy: &str) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(policy).cloned()
    }

    /// Sets what is told now, and gives what was told before.
    fn replace(&self, now: BTreeMap<Arc<str>, String>) -> BTreeMap<Arc<str>, String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *all, now)
    }
}

impl Controller {
    /// Looks at the Leases of the controllers that active policies replace.
    pub(super) async fn look_for_conflicts(&self) {
        let replacing = self.replacing();
        let mut now = BTreeMap::new();
        for (name, revision) in &replacing {
            if let Some(message) = self.conflict_of(&revision.policy).await {
                now.insert(Arc::clone(name), message);
            }
        }
        let before = self.conflicts.replace(now.clone());
        telemetry::conflicting(now.len());
        for (policy, message) in now
            .iter()
            .filter(|(policy, _)| !before.contains_key(*policy))
        {
            if self.leading.leads() {
                let reason = KnownReason::Conflicting;
                self.connections.warn_of_policy(policy, reason, message);
            }
            let message = message.clone();
            telemetry::tell_policy(policy, &PolicySignal::Conflicting { message });
        }
        let is_active = |policy: &Arc<str>| replacing.iter().any(|(name, _)| name == policy);
        for policy in before.keys().filter(|policy| !now.contains_key(*policy)) {
            if is_active(policy) {
                telemetry::tell_policy(policy, &PolicySignal::ConflictEnded);
            }
        }
    }

    /// The active policies that replace controllers.
    fn replacing(&self) -> Vec<(Arc<str>, Arc<Revision>)> {
        let policies = self.statuses.lock();
        let entries = policies.catalogue.entries();
        let active = entries.filter_map(|(policy, entry)| {
            let revision = entry.revision.clone()?;
            Some((Arc::clone(policy), revision))
        });
        let replaces = |revision: &Revision| !revision.policy.spec.replaces.is_empty();
        active.filter(|(_, revision)| replaces(revision)).collect()
    }

    /// What is told of one policy. A Lease that cannot be read is told as a watch that fails.
    async fn conflict_of(&self, policy: &Policy) -> Option<String> {
        let cluster = &policy.primary.cluster;
        let leases = self.connections.list(cluster, LEASE);
        let is_replaced = |name: &str| policy.spec.replaces.iter().any(|one| one.lease == name);
        for lease in leases.iter().filter(|lease| is_replaced(&lease.name)) {
            let read = self.connections.read(lease).await.ok().flatten();
            let now_seconds = self.clock.now_seconds();
            if let Some(message) = read.and_then(|lease| replaced::held(&lease, now_seconds)) {
                return Some(message);
            }
        }
        None
    }
}
