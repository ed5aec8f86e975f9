//! The workqueues, one per policy: its requests and its active revision. Policies share no workqueue, so that a hanging
//! guest holds up only its own policy.

use crate::controller::memory::Pause;
use crate::controller::queue::{Queue, Queued, Request};
use crate::policies::load::LoadedPolicy;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use transom_cluster::kubernetes::Leading;
use transom_core::reference::ObjectRef;
use transom_core::share::lock::{MutexExt as _, RwLockExt as _};
use transom_core::work::{Cause, Key};

/// The workqueues of all policies.
#[derive(Default)]
pub(crate) struct Queues {
    by_policy: RwLock<BTreeMap<Arc<str>, Arc<Workqueue>>>,
    /// Whether every first policy has its workqueue, or was refused.
    complete: AtomicBool,
    /// Whether the agent ends. Changes only while `by_policy` is locked for writing.
    closed: AtomicBool,
}

impl Queues {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Workqueue>> {
        self.by_policy.reading().values().cloned().collect()
    }

    /// The workqueue of a policy.
    pub(crate) fn get(&self, policy: &str) -> Option<Arc<Workqueue>> {
        self.by_policy.reading().get(policy).cloned()
    }

    /// Adds the workqueue of a new policy.
    pub(crate) fn add(&self, queue: Arc<Workqueue>) {
        let policy = Arc::clone(&queue.policy);
        let mut by_policy = self.by_policy.writing();
        if self.closed.load(Ordering::Acquire) {
            queue.close();
        }
        by_policy.insert(policy, queue);
    }

    /// Closes all of them, and those that are added later.
    pub(crate) fn close(&self) {
        let by_policy = self.by_policy.writing();
        self.closed.store(true, Ordering::Release);
        by_policy.values().for_each(|queue| queue.close());
    }

    /// Closes the workqueue of a deleted policy and forgets it.
    pub(crate) fn remove(&self, policy: &str) {
        let removed = self.by_policy.writing().remove(policy);
        if let Some(queue) = removed {
            queue.remove();
        }
    }

    /// Puts a primary into the workqueue of its policy, if the policy still has one.
    pub(crate) fn push(&self, key: &Key, cause: Queued) {
        if let Some(queue) = self.get(&key.policy) {
            queue.push(&key.primary, cause, None);
        }
    }

    /// Records that every first policy has its workqueue, or was refused. A refused policy does not hold up readiness.
    pub(crate) fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Whether [`Self::complete`] was called.
    pub(crate) fn are_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }
}

/// What a workqueue knows of the leader election.
#[derive(Clone)]
pub(crate) struct Turn {
    /// Whether this replica leads.
    pub(crate) leading: Leading,
    /// Whether the active revisions are those of the leader before.
    pub(crate) current: watch::Receiver<bool>,
    /// Since when it leads, or when the workqueue began.
    pub(crate) since: Instant,
}

impl Turn {
    /// Whether this replica may work.
    fn works(&self) -> bool {
        self.leading.leads() && *self.current.borrow()
    }

    /// Waits until this replica may work.
    async fn gained(&mut self) {
        while !self.works() {
            self.leading.gained().await;
            tokio::select! {
                // Fails only when the agent ends.
                _ = self.current.wait_for(|current| *current) => {}
                () = self.leading.lost() => {}
            }
        }
    }
}

/// The work of one policy.
pub(crate) struct Workqueue {
    /// Name of the policy.
    pub(crate) policy: Arc<str>,
    /// When the policy began to work.
    pub(crate) begun: Instant,
    loaded: RwLock<Arc<LoadedPolicy>>,
    queue: Mutex<Queue>,
    changed: Notify,
    /// Whether a reconcile was the last one that was left, since this replica leads.
    rested: AtomicBool,
    closed: AtomicBool,
    removed: RwLock<bool>,
    swapped: Mutex<Swapped>,
}

/// The swaps of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swapped {
    /// How many there were since the policy began.
    pub(crate) swaps: u32,
    /// For how long at a time no reconcile could start during the last one, because the memory was locked.
    pub(crate) pause: Pause,
}

impl Workqueue {
    /// An empty workqueue.
    pub(crate) fn new(loaded: Arc<LoadedPolicy>) -> Self {
        Self {
            policy: Arc::clone(&loaded.revision.policy.name),
            begun: Instant::now(),
            loaded: RwLock::new(loaded),
            queue: Mutex::default(),
            changed: Notify::new(),
            rested: AtomicBool::default(),
            closed: AtomicBool::default(),
            removed: RwLock::default(),
            swapped: Mutex::default(),
        }
    }

    /// The active revision. A reconcile takes it once and never mixes two.
    pub(crate) fn loaded(&self) -> Arc<LoadedPolicy> {
        Arc::clone(&self.loaded.reading())
    }

    /// Whether the policy is still there, and this revision of it the active one.
    pub(crate) fn works_on(&self, loaded: &Arc<LoadedPolicy>) -> bool {
        let removed = self.removed.reading();
        !*removed && Arc::ptr_eq(&self.loaded(), loaded)
    }

    /// Activates another revision. A reconcile that has not begun to write is dropped; one that writes goes on to its
    /// end.
    pub(crate) fn swap(&self, loaded: Arc<LoadedPolicy>) {
        *self.loaded.writing() = loaded;
    }

    /// Records a swap that was carried out, with its pause.
    pub(crate) fn end_swap(&self, pause: Pause) {
        let mut swapped = self.swapped.locked();
        swapped.swaps = swapped.swaps.saturating_add(1);
        swapped.pause = pause;
    }

    /// The swaps until now.
    pub(crate) fn swapped(&self) -> Swapped {
        *self.swapped.locked()
    }

    /// Puts a primary into the queue, to be reconciled at once or after a while.
    pub(crate) fn push(&self, primary: &ObjectRef, cause: Queued, after: Option<Duration>) {
        let now = Instant::now();
        let due = after.map(|after| now + after);
        self.queue
            .locked()
            .push(primary, cause, due, due.unwrap_or(now));
        self.changed.notify_one();
    }

    /// Puts a primary into the queue for a retry; `since` is when its work came up.
    pub(crate) fn push_again(&self, primary: &ObjectRef, after: Duration, since: Instant) {
        let (retry, due) = (Queued::Reconcile(Cause::Retry), Instant::now() + after);
        self.queue.locked().push(primary, retry, Some(due), since);
        self.changed.notify_one();
    }

    /// Whether a cause of a primary is in the queue.
    pub(crate) fn awaits(&self, primary: &ObjectRef, cause: &Cause) -> bool {
        self.queue.locked().awaits(primary, cause)
    }

    /// Whether a primary is being reconciled.
    pub(crate) fn runs(&self, primary: &ObjectRef) -> bool {
        self.queue.locked().runs(primary)
    }

    /// Drops a delayed cause that no longer applies.
    pub(crate) fn forget(&self, primary: &ObjectRef, cause: &Cause) {
        self.queue.locked().forget(primary, cause);
    }

    /// Brings forward what waits for a time of day: the clock was set forward by this much.
    pub(crate) fn advance(&self, by: Duration) {
        self.queue.locked().advance(by, Instant::now());
        self.changed.notify_one();
    }

    /// Whether it gives nothing out any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The next primary to reconcile. Waits for one, and until this replica leads; `None` when the workqueue is closed.
    pub(crate) async fn next(&self, turn: &mut Turn) -> Option<Request> {
        loop {
            let changed = self.changed.notified();
            if self.is_closed() {
                return None;
            }
            if !turn.works() {
                tokio::select! {
                    () = turn.gained() => {}
                    () = changed => {}
                }
                turn.since = Instant::now();
                continue;
            }
            if let Some(request) = self.take(turn) {
                return Some(request);
            }
            let wait = self.queue.locked().wait(Instant::now());
            match wait {
                Some(wait) => drop(tokio::time::timeout(wait, changed).await),
                None => changed.await,
            }
        }
    }

    /// The next primary that may be reconciled now, if there is one and this replica leads.
    pub(crate) fn ready(&self, turn: &Turn) -> Option<Request> {
        match self.is_closed() {
            true => None,
            false => self.take(turn),
        }
    }

    fn take(&self, turn: &Turn) -> Option<Request> {
        let mut queue = self.queue.locked();
        // Looked at under the lock: what is pushed after the turn ended is not given out.
        if !turn.works() {
            return None;
        }
        let mut request = queue.take(Instant::now())?;
        drop(queue);
        // Gaining the lead resets the wait time.
        request.since = request.since.max(turn.since);
        Some(request)
    }

    /// The next primary that is due within such a time.
    #[cfg(test)]
    pub(crate) fn due_within(&self, time: Duration) -> Option<Request> {
        self.queue.locked().take(Instant::now() + time)
    }

    /// The reconcile of a primary ended.
    pub(crate) fn done(&self, primary: &ObjectRef) {
        let mut queue = self.queue.locked();
        queue.done(primary);
        let rests = queue.is_idle(Instant::now());
        drop(queue);
        if rests {
            self.rested.store(true, Ordering::Release);
        }
        self.changed.notify_one();
    }

    /// Whether nothing was left to reconcile at some time, since this replica leads.
    pub(crate) fn has_rested(&self) -> bool {
        self.rested.load(Ordering::Acquire)
    }

    /// This replica begins to lead.
    pub(super) fn unrest(&self) {
        self.rested.store(false, Ordering::Release);
    }

    /// Whether nothing runs and nothing may run now.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.locked().is_idle(Instant::now())
    }

    /// Whether nothing runs.
    pub(crate) fn is_resting(&self) -> bool {
        self.queue.locked().is_resting()
    }

    /// How many primaries may run now or are being reconciled.
    pub(crate) fn left(&self) -> usize {
        self.queue.locked().left(Instant::now())
    }

    /// How long the primary that waits longest has waited since it may run.
    pub(crate) fn oldest(&self) -> Duration {
        self.queue.locked().oldest(Instant::now())
    }

    /// Closes the workqueue: it gives out nothing more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Closes the workqueue of a deleted policy; waits for a running [`Self::unless_removed`].
    pub(crate) fn remove(&self) {
        *self.removed.writing() = true;
        self.close();
    }

    /// Whether the policy was removed.
    pub(crate) fn is_removed(&self) -> bool {
        *self.removed.reading()
    }

    /// Runs `tell` unless the policy was removed; it cannot be removed meanwhile.
    pub(crate) fn unless_removed(&self, tell: impl FnOnce()) {
        let removed = self.removed.reading();
        if !*removed {
            tell();
        }
    }
}
