//! Finds primaries that left the selection of their policy while no agent ran, or another one led: no watch reports them, and
//! they bear the finalizer of the policy.

use super::Controller;
use super::queue::Queued;
use super::workqueue::Workqueue;
use std::sync::Arc;
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

impl Controller {
    /// Has such primaries released each time that this replica begins to work.
    pub(super) async fn follow_deselected(self: Arc<Self>, queue: Arc<Workqueue>) {
        let mut leading = self.leading.clone();
        loop {
            leading.gained().await;
            self.release_deselected(&queue).await;
            if !leading.is_elected() || queue.is_closed() {
                return;
            }
            leading.lost().await;
        }
    }

    /// Asks until there is an answer, or it is certain that there will be none.
    async fn release_deselected(&self, queue: &Workqueue) {
        for failures in 0.. {
            let loaded = queue.loaded();
            let failure = match self.deselected(&loaded.revision.policy).await {
                Ok(left) => {
                    let keys = left
                        .iter()
                        .map(|one| Key::new(&queue.policy, &one.reference));
                    self.memory.lock().deselected.extend(keys);
                    for one in left {
                        queue.push(&one.reference, Queued::Reconcile(Cause::Gone), None);
                    }
                    return;
                }
                Err(failure) => failure,
            };
            let known = failure.reason.known();
            if queue.is_closed()
                || matches!(
                    known,
                    Some(KnownReason::ReadForbidden | KnownReason::KindMissing)
                )
            {
                return;
            }
            let after = backoff::delay_ms(failures, u64::from(failures));
            tokio::time::sleep(Duration::from_millis(after)).await;
        }
    }

    /// The objects that the policy does not select and that bear the finalizer that it put on them.
    async fn deselected(&self, policy: &Policy) -> Result<Vec<Object>, Failure> {
        let mut left = Vec::new();
        if policy.finalizer.is_none() || policy.primary.labels.is_empty() {
            return Ok(left);
        }
        let every = Selector::default();
        for place in watches::places_of_primaries(policy) {
            let there = self.connections.list_metadata(&place, &every).await?;
            let there = there.into_iter();
            left.extend(there.filter(|object| finalizer::is_left_on(policy, object)));
        }
        Ok(left)
    }
}
