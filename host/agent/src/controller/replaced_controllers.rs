//! Looks whether a controller that a policy replaces still runs, and tells when one begins and ends. Looks when
//! statuses are published, so that no heart-beat of a Lease wakes anything.

use super::Controller;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use transom_api::KnownReason;
use transom_core::catalogue::Revision;
use transom_core::lease::replaced::{self, LEASE};
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;

/// What is told of each policy that replaces a controller which runs.
#[derive(Default)]
pub(super) struct ReplacedControllers(Mutex<BTreeMap<Arc<str>, String>>);

impl ReplacedControllers {
    /// What is told of a policy.
    pub(super) fn of(&self, policy: &str) -> Option<String> {
        let all = self.0.locked();
        all.get(policy).cloned()
    }

    /// Sets what is told now, and gives what was told before.
    fn replace(&self, now: BTreeMap<Arc<str>, String>) -> BTreeMap<Arc<str>, String> {
        let mut all = self.0.locked();
        std::mem::replace(&mut *all, now)
    }
}

impl Controller {
    /// Looks at the Leases of the controllers that active policies replace.
    pub(super) async fn look_for_conflicts(&self) {
        let replacing = self.replacing();
        let held = self.held(&replacing).await;
        let mut now = BTreeMap::new();
        for (name, revision) in &replacing {
            let policy = &revision.policy;
            let mut held = held.iter();
            if let Some((_, message)) = held.find(|(lease, _)| replaces(policy, lease)) {
                now.insert(Arc::clone(name), message.clone());
            }
        }
        let before = self.replaced.replace(now.clone());
        telemetry::conflicting(now.len());
        for (policy, message) in now
            .iter()
            .filter(|(policy, _)| !before.contains_key(*policy))
        {
            let reason = KnownReason::Conflicting;
            if self.leading.leads() {
                self.connections.warn_of_policy(policy, reason, message);
            }
            telemetry::warn_of_policy(policy, reason, message);
        }
        let is_active = |policy: &Arc<str>| replacing.iter().any(|(name, _)| name == policy);
        for policy in before.keys().filter(|policy| !now.contains_key(*policy)) {
            if is_active(policy) {
                let message = "no controller that the policy replaces runs any more";
                telemetry::tell_of_policy(policy, message);
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

    /// The Leases of controllers that these policies replace and that are held, each with what is told of it. The
    /// Leases are listed once for all policies of a cluster: a hub has one for each of its clusters. One that cannot be
    /// read is told as a watch that fails.
    async fn held(&self, replacing: &[(Arc<str>, Arc<Revision>)]) -> Vec<(ObjectRef, String)> {
        let policies = || replacing.iter().map(|(_, revision)| &revision.policy);
        let clusters: BTreeSet<&String> = policies().map(|one| &one.primary.cluster).collect();
        let mut held = Vec::new();
        for cluster in clusters {
            let leases = self.connections.list(cluster, LEASE).into_iter();
            for lease in leases.filter(|lease| policies().any(|one| replaces(one, lease))) {
                let read = self.connections.read(&lease).await.ok().flatten();
                let now_seconds = self.clock.now_seconds();
                let message = read.and_then(|lease| replaced::held(&lease, now_seconds));
                held.extend(message.map(|message| (lease, message)));
            }
        }
        held
    }
}

/// Whether a Lease is that of a controller which a policy replaces.
fn replaces(policy: &Policy, lease: &ObjectRef) -> bool {
    let mut replaces = policy.spec.replaces.iter();
    policy.primary.cluster == lease.cluster && replaces.any(|one| one.lease == lease.name)
}
