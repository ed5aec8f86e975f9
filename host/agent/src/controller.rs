//! The controller: one line for each stage of a reconcile, and what the stages share. Decisions belong in `core`.

pub(crate) mod account;
mod admit;
mod apply;
pub(crate) mod clock;
pub(crate) mod connections;
mod documents;
mod finish;
mod gather;
mod invoke;
pub(crate) mod memory;
mod plan;
mod policies;
mod pool;
pub(crate) mod queue;
mod statuses;
mod touched;
mod unwritten;
mod watch;
mod workers;
pub(crate) mod workqueue;

use crate::telemetry;
use account::Accounts;
use apply::Applied;
use clock::Clock;
use connections::Connections;
use documents::Documents;
use memory::{LastResult, SharedMemory};
use pool::Pool;
use queue::{Queued, Request};
use statuses::Statuses;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Notify, Semaphore};
use touched::{Admitted, Ended};
use transom_api::KnownReason;
use transom_cluster::Cluster;
use transom_cluster::kubernetes::Leading;
use transom_core::contract::AgentFacts;
use transom_core::failure::Failure;
use transom_core::kubeconfig::KubeconfigLimits;
use transom_core::metrics::{self, Attempt, Counted, is_news};
use transom_core::policy::Policy;
use transom_core::report::{self, Reconcile, Schedule};
use transom_core::share::budget::Budget;
use transom_core::signal::Signal;
use transom_core::work::{Cause, Key};
use unwritten::Unwritten;
use workqueue::Workqueue;

/// What the stages share.
pub(crate) struct Controller {
    pub(crate) connections: Connections,
    /// Whether this replica leads; without leader election it always does.
    pub(crate) leading: Leading,
    pub(crate) memory: SharedMemory,
    pub(crate) clock: Clock,
    pub(crate) facts: AgentFacts,
    pub(crate) kubeconfig_limits: KubeconfigLimits,
    queues: RwLock<BTreeMap<Arc<str>, Arc<Workqueue>>>,
    /// Whether every first policy was loaded or refused.
    started: AtomicBool,
    statuses: Statuses,
    unwritten: Unwritten,
    /// What each reconcile read, decided and would write, when the agent runs for `transom status` or read-only.
    pub(crate) accounts: Accounts,
    /// Whether a `FleetPolicy` object changed since the policies were last read.
    pub(crate) policies_changed: AtomicBool,
    /// The threads that run reconciles.
    pool: Pool,
    /// Limits how many reconciles run at once over all policies.
    at_once: Arc<Semaphore>,
    documents: Documents,
    /// Notified whenever a reconcile ends.
    pub(crate) moved: Notify,
    /// Seeds the jitter of back-off and resync, differently in each run.
    seeds: RandomState,
}

impl Controller {
    /// Reconciles one primary: each stage takes a value and gives the next one its value.
    pub(crate) async fn reconcile(&self, queue: &Workqueue, request: Request) {
        let Some(admitted) = self.admit(queue, request).await else {
            return;
        };
        let admitted = Arc::new(admitted);
        let result = self.attempt(Arc::clone(&admitted)).await;
        self.finish(queue, &admitted, result);
    }

    async fn attempt(&self, admitted: Arc<Admitted>) -> Result<Applied, Box<Ended>> {
        let gathered = self.gather(admitted).await?;
        let proposed = self.invoke(gathered)?;
        let planned = self.plan(proposed)?;
        self.apply(planned).await
    }
}

impl Controller {
    /// An agent without policies.
    pub(crate) fn new(connections: Connections, clock: Clock, facts: AgentFacts) -> Self {
        Self {
            leading: connections.leading(),
            connections,
            memory: SharedMemory::default(),
            clock,
            facts,
            kubeconfig_limits: KubeconfigLimits::default(),
            queues: RwLock::default(),
            started: AtomicBool::default(),
            statuses: Statuses::default(),
            unwritten: Unwritten::default(),
            accounts: Accounts::default(),
            policies_changed: AtomicBool::default(),
            pool: Pool::new(Budget::default().threads()),
            documents: Documents::new(&Budget::default()),
            at_once: Arc::new(Semaphore::new(workers::AT_ONCE)),
            moved: Notify::new(),
            seeds: RandomState::new(),
        }
    }

    /// Sets the size limit of kubeconfigs.
    pub(crate) fn limited(mut self, max_kubeconfig_bytes: usize) -> Self {
        self.kubeconfig_limits = KubeconfigLimits {
            bytes: max_kubeconfig_bytes,
        };
        self
    }

    /// For `transom status`: the agent writes and publishes nothing, and keeps an account of each reconcile.
    pub(crate) fn only_asked(mut self) -> Self {
        self.accounts = Accounts::only_asked();
        self
    }

    /// For a read-only run: the clusters refuse every write, and the agent keeps an account of each reconcile.
    pub(crate) fn read_only(mut self) -> Self {
        self.accounts = Accounts::of_read_only();
        self
    }

    /// Sizes the threads and the room for documents by a memory budget.
    pub(crate) fn within(mut self, budget: &Budget) -> Self {
        self.pool = Pool::new(budget.threads());
        self.documents = Documents::new(budget);
        self
    }

    /// Marks the start as complete: every first policy was loaded or refused. A refused policy does not hold up
    /// readiness.
    pub(crate) fn started(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Why the agent is not ready; `None` when it is. A connection that does not answer holds up nothing while another
    /// one can be used.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if !self.started.load(Ordering::Acquire) {
            return Some(
                "the policies are being loaded, or the objects that they watch are being listed",
            );
        }
        self.connections
            .all_away()
            .then_some("no API server has answered since the start")
    }

    /// The queues of all policies.
    pub(crate) fn queues(&self) -> Vec<Arc<Workqueue>> {
        self.queues
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// The queue of a policy.
    pub(crate) fn queue(&self, policy: &str) -> Option<Arc<Workqueue>> {
        self.queues
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(policy)
            .cloned()
    }

    /// Adds the queue of a new policy.
    pub(crate) fn add_queue(&self, queue: Arc<Workqueue>) {
        self.queues
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(Arc::clone(&queue.policy), queue);
    }

    /// Closes the queue of a deleted policy and forgets what was memory for it. The objects that it made stay.
    pub(crate) fn remove_queue(&self, policy: &str) {
        let queue = self
            .queues
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(policy);
        if let Some(queue) = queue {
            queue.remove();
        }
        self.forget(policy);
    }

    /// Forgets what is memory for a deleted policy. A reconcile that ends later may add to it again, and calls this once
    /// more.
    pub(crate) fn forget(&self, policy: &str) {
        if self.queue(policy).is_some() {
            return;
        }
        let released = self.memory.lock().remove_policy(policy);
        self.unwritten.forget(policy);
        telemetry::forgotten(policy);
        self.enqueue_released(released);
    }

    /// Records every object of a cluster that bears a stamp. An owner that was reconciled before, without knowing of
    /// the object, is enqueued once more.
    pub(crate) fn find_outputs(&self, cluster: &dyn Cluster) {
        for object in cluster.stamped() {
            let owner = {
                let memory = &mut *self.memory.lock();
                memory.outputs.observe(&object);
                memory
                    .outputs
                    .owner(&object.reference)
                    .filter(|key| memory.results.contains_key(*key))
                    .cloned()
            };
            if let Some(key) = owner {
                self.push(
                    &key,
                    Queued::Reconcile(Cause::Input(object.reference)),
                    None,
                );
            }
        }
    }

    /// Removes the status of policies and primaries that vanished while no agent was running. For the end of a start.
    pub(crate) fn tidy_status(&self, policies: &BTreeSet<String>) {
        let primaries = {
            let memory = self.memory.lock();
            memory
                .results
                .keys()
                .map(|key| (key.policy.to_string(), (*key.primary).clone()))
                .collect()
        };
        for error in self.connections.retain_status(policies, &primaries) {
            let (place, message) = ("status".to_owned(), error.to_string());
            telemetry::tell(&Signal::Unreadable {
                place,
                reason: KnownReason::WriteFailed,
                message,
            });
        }
    }

    /// Records a reconcile that ended by a bug in the agent. The same failure in a row does not count as another
    /// attempt.
    pub(crate) fn faulted(&self, key: &Key, policy: &Policy) {
        let bug = "a bug in the agent made this reconcile fail";
        let schedule = Schedule {
            now_seconds: self.clock.now_seconds(),
            resync_seconds: policy.resync_seconds,
            failures: 0,
            seed: 0,
        };
        let failure = Failure::known(KnownReason::AgentFailed, bug);
        let report = report::of(Reconcile::new(key.clone()), Err(failure), schedule);
        let result = LastResult::of(&report);
        let mut memory = self.memory.lock();
        let now = Counted {
            attempt: Attempt::Failed,
            at_seconds: result.since_seconds,
        };
        let counts =
            metrics::copies(policy) && is_news(memory.counted.get(key).copied(), now, true);
        if counts {
            memory.counted.insert(key.clone(), now);
        }
        telemetry::fault(key, counts);
        let result = result.after(memory.results.get(key));
        memory.results.insert(key.clone(), result);
    }
}
