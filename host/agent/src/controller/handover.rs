//! A replica that becomes the leader works once its active revisions are those of the leader before.

use super::Controller;
use super::workqueue::Workqueue;
use crate::policies::active::Active;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use transom_core::share::lock::MutexExt as _;

/// How often a new leader looks whether its workqueues have the revisions of the one before.
const LOOK: Duration = Duration::from_millis(20);
/// How long a new leader waits for the history of its policies.
const SUCCEED: Duration = Duration::from_secs(15);

impl Controller {
    /// Lets this replica work, each time that it becomes the leader, only once its active revisions are those of the
    /// leader before. Without an election it ends at once.
    pub(crate) async fn succeed(
        self: Arc<Self>,
        active: Active,
        ask: mpsc::UnboundedSender<Option<oneshot::Sender<()>>>,
    ) {
        let mut leading = self.leading.clone();
        while leading.is_elected() {
            self.current.send_replace(false);
            self.statuses.lock().began.clear();
            // Fails only when nobody follows policies any more.
            let _ = ask.send(None);
            leading.gained().await;
            self.forget_failing();
            let (done, caught_up) = oneshot::channel();
            if ask.send(Some(done)).is_err() {
                return;
            }
            // Without the history another replica could not know better.
            let ready = async {
                drop(caught_up.await);
                // The changes are put to work in another task.
                while !self.works_on(&active) {
                    tokio::time::sleep(LOOK).await;
                }
            };
            // What is not loaded by then is suspended until it is (`Swap::narrow_slow`).
            drop(tokio::time::timeout(SUCCEED, ready).await);
            self.begin_to_work();
            leading.lost().await;
        }
    }

    /// Lets this replica work from now on, as long as it leads.
    pub(super) fn begin_to_work(&self) {
        *self.works_since.locked() = Instant::now();
        // Another leader may have withheld changes meanwhile.
        self.queues().iter().for_each(|queue| queue.unrest());
        self.current.send_replace(true);
    }

    /// For how long a policy has worked on this replica. On a standby it was loaded long before.
    pub(super) fn worked(&self, queue: &Workqueue) -> Duration {
        queue.begun.max(*self.works_since.locked()).elapsed()
    }

    /// Whether every workqueue has the active revision of its policy.
    fn works_on(&self, active: &Active) -> bool {
        let mut queues = self.queues().into_iter();
        queues.all(|queue| {
            let loaded = active.loaded_of(&queue.policy);
            loaded.is_none_or(|loaded| queue.works_on(&loaded))
        })
    }
}
