//! Finds primaries that left the selection of their policy while no agent ran, or another one led: no watch reports
//! them, and they bear the finalizer of the policy.

use super::Controller;
use super::queue::Queued;
use super::workqueue::Workqueue;
use std::sync::Weak;
use std::time::Duration;
use transom_api::KnownReason;
use transom_core::backoff;
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::plan::finalizer;
use transom_core::policy::Policy;
use transom_core::policy::selector::Selector;
use transom_core::watches;
use transom_core::work::{Cause, Key};

/// How long it waits before it looks whether it has to begin anew.
const PACE: Duration = Duration::from_secs(10);

impl Controller {
    /// Releases such primaries each time that this replica begins to lead, the policy is resumed or its revision
    /// changes. Waits until all policies are known: another one may set the same finalizer and select them. Holds no
    /// strong reference to the controller or the policy while it waits.
    pub(super) async fn follow_deselected(controller: Weak<Self>, queue: Weak<Workqueue>) {
        let (mut released, mut failures) = (None, 0);
        loop {
            let Some((controller, queue)) = controller.upgrade().zip(queue.upgrade()) else {
                return;
            };
            if queue.is_closed() {
                return;
            }
            let may = controller.may_release(&queue);
            // Another revision may select others, or set another finalizer.
            let revision = queue.loaded().revision.id();
            released = released.filter(|of| may && *of == revision);
            if may && released.is_none() {
                let done = controller.release_deselected(&queue).await;
                released = done.then_some(revision);
                failures = if done { 0 } else { failures + 1 };
            }
            drop((controller, queue));
            let after = match released {
                Some(_) => PACE,
                None => Duration::from_millis(backoff::delay_ms(failures, u64::from(failures))),
            };
            tokio::time::sleep(after).await;
        }
    }

    fn may_release(&self, queue: &Workqueue) -> bool {
        let is_held = queue.loaded().revision.policy.suspend;
        self.works() && self.queues.are_complete() && !is_held
    }

    /// Asks once; returns whether there is an answer, or it is certain that there will be none.
    async fn release_deselected(&self, queue: &Workqueue) -> bool {
        let loaded = queue.loaded();
        let left = match self.deselected(&loaded.revision.policy).await {
            Ok(left) => left,
            Err(failure) => return is_out_of_reach(&failure),
        };
        if queue.is_closed() {
            return true;
        }
        let key = |one: &Object| Key::new(&queue.policy, &one.reference);
        self.memory.lock().deselected.extend(left.iter().map(key));
        for one in left {
            queue.push(&one.reference, Queued::Reconcile(Cause::Gone), None);
        }
        true
    }

    /// The objects that the policy does not select and that bear the finalizer that it put on them.
    async fn deselected(&self, policy: &Policy) -> Result<Vec<Object>, Failure> {
        let mut left = Vec::new();
        if policy.finalizer.is_none() || policy.primary.labels.is_empty() {
            return Ok(left);
        }
        let every = Selector::default();
        for place in watches::places_of_primaries(policy) {
            let is_left = |object: &Object| finalizer::is_left_on(policy, object);
            let list = self.connections.list_metadata(&place, &every, &is_left);
            left.extend(list.await?);
        }
        Ok(left)
    }
}

/// Whether objects cannot be read because the agent may not, or because their kind is not served.
pub(super) fn is_out_of_reach(failure: &Failure) -> bool {
    use KnownReason::{KindMissing, ReadForbidden};
    matches!(failure.reason.known(), Some(ReadForbidden | KindMissing))
}
