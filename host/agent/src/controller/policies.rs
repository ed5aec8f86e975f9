//! Takes the policies of API servers, activates revisions, and removes the queues of policies that are gone.

use super::Controller;
use super::queue::Queued;
use super::workqueue::Workqueue;
use crate::policies::Approval;
use crate::policies::active::Active;
use crate::policies::load::LoadedPolicy;
use crate::policies::swap::trial::{DueTrial, TriedCandidate};
use crate::policies::watch::PolicyNews;
use crate::policies::{FoundPolicies, objects};
use crate::telemetry;
use futures::FutureExt as _;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use transom_api::KnownReason;
use transom_api::labels::APPROVED_BY;
use transom_artifacts::Base;
use transom_core::catalogue::PolicyChange::{
    self, Bounded, Loaded, Mended, Refused, Removed, Swapped, TagMoved, TagReturned, Waiting,
};
use transom_core::reference::ObjectRef;
use transom_core::rights;
use transom_core::rollout::{Approved, Trial};
use transom_core::share::lock::MutexExt as _;
use transom_core::work::Cause;

/// How long a trial may take, so that one that is slow does not hold up those of other policies.
const TRIAL: Duration = Duration::from_secs(600);

impl Controller {
    /// The policies that are objects of an API server, as they are now; component files lie at `base`.
    pub(crate) async fn given(&self, base: &Base) -> FoundPolicies {
        let (objects, unread) = self.connections.policy_objects().await;
        self.connections.policies_unread();
        self.found_statuses(&objects);
        let mut found = FoundPolicies {
            policies: objects::written(&objects, base),
            ..FoundPolicies::default()
        };
        for (object, failure) in unread {
            found.miss(object.to_string(), object.to_string(), failure.message);
        }
        found
    }

    /// What changed on the clusters since the last call. Follows the objects that hold these components from now on.
    pub(crate) async fn news(
        &self,
        base: &Base,
        active: &Active,
        components: BTreeSet<ObjectRef>,
    ) -> PolicyNews {
        let connections = &self.connections;
        connections.follow_components(components, || self.watch(active));
        let changed = &connections.policies_changed;
        PolicyNews {
            policies: match changed.swap(false, Ordering::AcqRel) {
                true => Some(self.given(base).await),
                false => None,
            },
            components: self.connections.changed_components(),
        }
    }

    /// Activates revisions as they are now, and reports what was loaded, bound, refused or removed.
    pub(crate) fn activate(
        self: &Arc<Self>,
        active: &Active,
        changes: &[(Arc<str>, PolicyChange)],
    ) {
        let _one = self.activating.locked();
        // Several policies may begin together. The primaries of all of them are to be located first, so that none wins
        // by its order.
        let new = changes
            .iter()
            .filter(|(policy, change)| *change == Loaded && self.queue(policy).is_none());
        for loaded in new.filter_map(|(policy, _)| active.loaded_of(policy)) {
            self.expect(&loaded, true);
        }
        let mut frees = false;
        for (policy, change) in changes {
            let (loaded, works) = (active.loaded_of(policy), self.queue(policy).is_some());
            match (change, loaded) {
                (Loaded | Swapped, Some(loaded)) => {
                    frees |= works;
                    let (plan, now_seconds) = (active.take_plan(policy), self.clock.now_seconds());
                    let uid = active.uid(policy);
                    let revision = &loaded.revision;
                    self.limits
                        .begin((revision, uid.as_deref()), plan, now_seconds);
                    let rehearsed = active.take_rehearsed(policy, &loaded);
                    self.resume(policy, loaded, rehearsed);
                }
                // A policy that did not begin yet will begin with the bounded revision.
                (Bounded, Some(loaded)) if works => {
                    frees = true;
                    self.resume(policy, loaded, None);
                }
                (Removed, None) => {
                    frees = true;
                    self.remove_queue(policy);
                }
                (TagMoved, _) => self.warn_of_tags(policy, &active.moved(policy)),
                // Its candidate is another one now, or none.
                (Refused | Mended | Waiting, _) => frees = true,
                (TagReturned, _) => {}
                (Loaded | Swapped | Bounded, _) | (Removed, Some(_)) => continue,
            }
            active.tell(policy, *change);
            self.tell_reach(active, policy, *change);
        }
        self.limits.changed();
        let catalogue = active.catalogue();
        let (loaded, waiting) = (active.loaded().len(), active.awaiting_approval());
        telemetry::policies(loaded, active.refused(), waiting);
        // Called without a change, too: a refusal ends when the active manifest is put back.
        let changed = changes.iter().map(|(policy, _)| &**policy).collect();
        self.catalogue_changed(&catalogue, &changed);
        // From here on no status of a removed policy is published.
        self.forget_removed(active, changes);
        if frees {
            self.watch(active);
        }
    }

    /// Has every connection watch what the policies need. A revision that is to be replaced works until its workqueue
    /// has the next one: what it reads stays watched until then, or its guest would take a field that is no longer kept
    /// for one that the object lacks.
    pub(crate) fn watch(&self, active: &Active) {
        self.connections.watch(|| {
            // Taken first: what replaces a revision after that is not in it, and the queue still has that one.
            let catalogue = active.catalogue();
            let replaced = self.queues().into_iter().filter_map(|queue| {
                let next = active.loaded_of(&queue.policy);
                let stays = next.is_some_and(|next| queue.works_on(&next));
                (!stays).then(|| Arc::clone(&queue.loaded().revision))
            });
            let mut beside: Vec<_> = replaced.collect();
            beside.extend(self.trying.locked().values().cloned());
            (catalogue, beside)
        });
    }

    /// Tries a candidate, once its connections are ready and while this replica leads. Ends early when nobody waits for
    /// it any more.
    pub(crate) async fn try_candidate(
        self: Arc<Self>,
        active: Active,
        mut due: DueTrial,
    ) -> TriedCandidate {
        let policy = Arc::clone(&due.loaded.revision.policy.name);
        // Its manifest may be refused meanwhile, and then it is no candidate of the catalogue any more.
        let revision = Arc::clone(&due.loaded.revision);
        self.trying
            .locked()
            .insert(Arc::clone(&policy), Arc::clone(&revision));
        self.watch(&active);
        let failed = |reason, why: &str| (Trial::failed(&policy, reason, why), None);
        let trial = async {
            self.leading.clone().gained().await;
            // Until then there are no results to compare with.
            drop(self.current.subscribe().wait_for(|now| *now).await);
            let trial = tokio::time::timeout(TRIAL, self.trial(Arc::clone(&due.loaded)));
            let why = "the trial took longer than ten minutes";
            let late = || Trial {
                late: true,
                ..Trial::failed(&policy, KnownReason::GuestTimedOut, why)
            };
            trial.await.unwrap_or_else(|_| (late(), None))
        };
        let trial = AssertUnwindSafe(trial).catch_unwind();
        let trial = tokio::select! {
            trial = trial => trial.unwrap_or_else(|_| {
                failed(KnownReason::AgentFailed, "a bug in the agent made the trial fail")
            }),
            _ = &mut due.outdated => failed(KnownReason::Trying, "another candidate took its place"),
        };
        // Another candidate may have taken its place.
        self.trying
            .locked()
            .retain(|_, tried| !Arc::ptr_eq(tried, &revision));
        self.watch(&active);
        let approved = match due.approval_of(&trial.0) {
            None => Approved::Nothing,
            Some(approval) => self.approved(&policy, approval).await,
        };
        due.tried(trial, approved, self.clock.now_seconds())
    }

    /// What an approval is worth. Whoever may write the file of a policy may approve; of an object the API server
    /// tells.
    pub(super) async fn approved(&self, policy: &str, approval: &Approval) -> Approved {
        let digest = || Approved::Digest(approval.digest.clone());
        let Some(approvals) = self.connections.approvals() else {
            return digest();
        };
        let Some(user) = &approval.by else {
            let why = format!("the annotation {APPROVED_BY} does not name who approved it");
            return Approved::Forbidden(why);
        };
        match approvals.may(user, policy).await {
            Ok(true) => digest(),
            Ok(false) => Approved::Forbidden(format!("the user {} may not approve it", user.name)),
            Err(failure) => {
                let why = format!(
                    "it is not known whether the user {} may approve it: {}",
                    user.name, failure.message
                );
                Approved::Unknown(failure.reason, why)
            }
        }
    }

    /// Closes the queue of a deleted policy and forgets what was known for it. The objects that it made stay.
    pub(super) fn remove_queue(&self, policy: &str) {
        self.queues.remove(policy);
        self.forget(policy);
    }

    /// A reconcile ended. It may have added to what is known for its policy after that was deleted: forgets this. If
    /// the policy was made anew meanwhile, the new one has the primary reconciled, which it may not even select.
    pub(super) fn end(&self, queue: &Workqueue, primary: &ObjectRef) {
        if !queue.is_removed() {
            return;
        }
        match self.queue(&queue.policy) {
            Some(anew) => anew.push(primary, Queued::Reconcile(Cause::Gone), None),
            None => self.forget(&queue.policy),
        }
    }

    /// Forgets what is known for a deleted policy, unless it was made anew.
    pub(super) fn forget(&self, policy: &str) {
        if self.queue(policy).is_some() {
            return;
        }
        let released = self.memory.lock().remove_policy(policy);
        self.statuses.forget(policy);
        self.limits.forget(policy);
        telemetry::forgotten(policy);
        self.enqueue_released(released);
    }

    /// Logs which bounds of a policy's grant RBAC cannot enforce, when the policy is activated.
    fn tell_reach(&self, active: &Active, policy: &str, change: PolicyChange) {
        if !matches!(change, Loaded | Swapped) {
            return;
        }
        let loaded = active.loaded_of(policy);
        for message in loaded.iter().flat_map(|loaded| self.reach(loaded)) {
            telemetry::tell_of_policy(policy, &message);
        }
    }

    /// Which bounds of a grant RBAC cannot enforce; none when there is no API server.
    pub(crate) fn reach(&self, loaded: &LoadedPolicy) -> Vec<String> {
        let policy = &loaded.revision.policy;
        let reads = self.connections.secret_reads();
        reads.map_or_else(Vec::new, |reads| rights::every_secret(policy, reads, false))
    }
}
