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
            Err(failure) => return is_unserved(&failure),
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

/// Whether there are no objects because their kind is not served. A right that is missing may come.
fn is_unserved(failure: &Failure) -> bool {
    failure.reason.known() == Some(KnownReason::KindMissing)
}

/// Whether objects cannot be read because the agent may not, or because their kind is not served.
pub(super) fn is_out_of_reach(failure: &Failure) -> bool {
    is_unserved(failure) || failure.reason.known() == Some(KnownReason::ReadForbidden)
}

/// Whether an object that cannot be read counts as gone: for a trial if it is out of reach, and else only if its kind
/// is not served and nothing was made for it. It may bear a finalizer, which a right that comes later lets the agent
/// take off.
pub(super) fn counts_as_gone(failure: &Failure, made: bool, is_only_tried: bool) -> bool {
    !made && is_unserved(failure) || is_only_tried && is_out_of_reach(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_no_proof_that_nothing_is_left_to_release() {
        use KnownReason::{KindMissing, ReadForbidden, ServerUnavailable};
        // What counts: at a start; of one object, where nothing or something was made for it, and in a trial.
        for (reason, expected) in [
            (KindMissing, [true, true, false, true]),
            (ReadForbidden, [false, false, false, true]),
            (ServerUnavailable, [false; 4]),
        ] {
            let failure = Failure::known(reason, "it cannot be read");
            let gone = |made, tried| counts_as_gone(&failure, made, tried);
            let found = [
                is_unserved(&failure),
                gone(false, false),
                gone(true, false),
                gone(true, true),
            ];
            assert_eq!(found, expected, "{reason:?}");
        }
    }
}
