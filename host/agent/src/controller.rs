//! The controller: one line for each stage of a reconcile, and what the stages share. Decisions belong in `core`.

// The stages of a reconcile: watch, admit, gather, invoke, plan, apply, finish.
mod admit;
mod apply;
mod finish;
mod gather;
mod invoke;
mod plan;
mod watch;

// What the stages share.
pub(crate) mod account;
mod changes;
mod clock_steps;
pub(crate) mod connections;
mod deselected;
mod divergence;
mod documents;
mod fallback;
mod handover;
mod limits;
pub(crate) mod memory;
mod policies;
mod pool;
pub(crate) mod queue;
mod replaced_controllers;
mod shared_objects;
pub(crate) mod snapshot;
mod statuses;
mod touched;
pub(crate) mod trial;
mod workers;
pub(crate) mod workqueue;

use crate::args::run::ReadOnlyTask;
use crate::clock::Clock;
use crate::controller::trial::{Overlay, Rehearsals};
use crate::policies::load::{LoadedPolicy, known_reason};
use crate::telemetry;
use account::Accounts;
use connections::Connections;
use documents::Documents;
use limits::ChangeLimits;
use memory::SharedMemory;
use plan::Planned;
use pool::Pool;
use queue::{Queued, Request};
use replaced_controllers::ReplacedControllers;
use statuses::Statuses;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, Semaphore, watch as channel};
use tokio::time::Instant;
use touched::{Ended, Touched};
use transom_cluster::kubernetes::Leading;
use transom_core::catalogue::Revision;
use transom_core::contract::AgentFacts;
use transom_core::failure::Failure;
use transom_core::kubeconfig::KubeconfigLimits;
use transom_core::share::budget::Budget;
use transom_core::work::{Cause, Key, WorkItem};
use transom_engine::{Call, CallFailure};
use workqueue::{Queues, Workqueue};

impl Controller {
    /// Reconciles one primary: each stage takes a value and gives the next one its value.
    pub(crate) async fn reconcile(&self, queue: &Workqueue, request: Request) {
        let primary = Arc::clone(&request.primary);
        if let Some(admitted) = self.admit(queue, request).await {
            self.attempt(queue, Arc::new(admitted)).await;
        }
        self.end(queue, &primary);
    }

    async fn attempt(&self, queue: &Workqueue, admitted: Arc<Admitted>) {
        let planned = match self.decide(Arc::clone(&admitted)).await {
            Err(ended) => self.fall_back(Arc::clone(&admitted), ended).await,
            planned => planned,
        };
        // The revision was swapped meanwhile. The decision of the old revision is dropped, because its inputs may no
        // longer be watched, and the request is queued again.
        if !queue.works_on(&admitted.loaded) {
            return admitted.again(queue);
        }
        let result = match planned {
            Ok(planned) => self.apply(planned).await,
            Err(ended) => Err(ended),
        };
        // The same while it waited to be written.
        let has_written = matches!(&result, Ok(applied) if applied.has_written());
        match has_written || queue.works_on(&admitted.loaded) {
            true => self.finish(queue, &admitted, result),
            false => admitted.again(queue),
        }
    }

    async fn decide(&self, admitted: Arc<Admitted>) -> Result<Planned, Box<Ended>> {
        let gathered = self.gather(admitted).await?;
        let proposed = self.invoke(gathered)?;
        self.plan(proposed)
    }

    /// A primary that was made anew under its name starts from nothing.
    fn meet(&self, key: &Key, uid: &str) {
        if self.memory.lock().replaced(key, uid) {
            self.guest_answered(key);
        }
    }
}

/// What the stages share.
pub(crate) struct Controller {
    pub(crate) connections: Arc<Connections>,
    /// Whether this replica leads; without leader election it always does.
    leading: Leading,
    pub(crate) memory: SharedMemory,
    clock: Clock,
    facts: AgentFacts,
    kubeconfig_limits: KubeconfigLimits,
    pub(crate) queues: Queues,
    statuses: Statuses,
    /// The controllers of others that still run.
    replaced: ReplacedControllers,
    /// What each reconcile read, decided and would write, when the agent runs for `transom status` or `plan`, or
    /// read-only.
    pub(crate) accounts: Accounts,
    /// The threads that run reconciles.
    pool: Pool,
    /// Limits how many reconciles run at once over all policies.
    at_once: Arc<Semaphore>,
    documents: Arc<Documents>,
    /// How much each policy may change.
    limits: ChangeLimits,
    /// Notified whenever a worker has no next request.
    moved: Notify,
    /// Seeds the jitter of back-off and resync, differently in each run.
    seeds: RandomState,
    /// Whether the revisions of the leader before are restored; always true without an election.
    current: channel::Sender<bool>,
    /// Since when this replica works, as far as it is elected.
    works_since: Mutex<Instant>,
    /// Whether the agent exits once the queues are empty (`--once`). It then schedules only retries: with timers and
    /// resyncs, which come due again, the queues might never be empty.
    ends: bool,
    /// Set when its reconciles are those of a trial, which are neither logged nor counted.
    trial: Option<Overlay>,
    /// The trials to notify of changes.
    rehearsals: Rehearsals,
    /// Counts how often something became readable; compared before and after a reconcile.
    readable: AtomicU64,
    /// Held while revisions are put to work, so that of two at a time the newest one stays.
    activating: Mutex<()>,
    /// The candidates that are being tried.
    trying: Mutex<BTreeMap<Arc<str>, Arc<Revision>>>,
}

impl Controller {
    /// An agent without policies.
    pub(crate) fn new(
        connections: impl Into<Arc<Connections>>,
        clock: Clock,
        facts: AgentFacts,
    ) -> Self {
        let connections = connections.into();
        Self {
            leading: connections.leading(),
            connections,
            memory: SharedMemory::default(),
            clock,
            facts,
            kubeconfig_limits: KubeconfigLimits::default(),
            queues: Queues::default(),
            statuses: Statuses::default(),
            replaced: ReplacedControllers::default(),
            accounts: Accounts::default(),
            pool: Pool::new(Budget::default().threads()),
            documents: Arc::new(Documents::new(&Budget::default())),
            limits: ChangeLimits::default(),
            at_once: Arc::new(Semaphore::new(workers::AT_ONCE)),
            moved: Notify::new(),
            seeds: RandomState::new(),
            current: channel::Sender::new(true),
            works_since: Mutex::new(Instant::now()),
            ends: false,
            trial: None,
            rehearsals: Rehearsals::default(),
            readable: AtomicU64::default(),
            activating: Mutex::default(),
            trying: Mutex::default(),
        }
    }

    /// For a single run: the agent ends once nothing is left to do.
    pub(crate) fn ending(mut self, ends: bool) -> Self {
        self.ends = ends;
        self
    }

    /// Sets the size limit of kubeconfigs.
    pub(crate) fn limited(mut self, max_kubeconfig_bytes: usize) -> Self {
        self.kubeconfig_limits = KubeconfigLimits {
            bytes: max_kubeconfig_bytes,
        };
        self
    }

    /// For `transom status` and `plan`: the agent writes and publishes nothing, and keeps an account of each reconcile.
    pub(crate) fn dry_run(mut self, asked: ReadOnlyTask) -> Self {
        self.accounts = match asked {
            ReadOnlyTask::Everything => Accounts::kept(true),
            ReadOnlyTask::Effects => Accounts::of_effects(),
        };
        self
    }

    /// For a single read-only run: the clusters refuse every write, and the agent keeps an account of each reconcile.
    pub(crate) fn read_only(mut self) -> Self {
        self.accounts = Accounts::kept(false);
        self
    }

    /// Sizes the threads and the room for documents by a memory budget. More threads than cores only wait for one
    /// another; one more takes the place of a guest that hangs.
    pub(crate) fn within(mut self, budget: &Budget) -> Self {
        self.pool = Pool::new(budget.threads().min(*workers::CORES + 1));
        self.documents = Arc::new(Documents::new(budget));
        self
    }

    /// Whether this replica leads and has restored the active revisions of the previous leader. Until then it publishes
    /// no status and releases nothing that the limits withhold: the stored history may be newer than its own state.
    fn works(&self) -> bool {
        self.leading.leads() && *self.current.borrow()
    }

    /// The workqueues of all policies.
    pub(crate) fn queues(&self) -> Vec<Arc<Workqueue>> {
        self.queues.all()
    }

    /// Adds the workqueue of a new policy.
    fn add_queue(&self, queue: Arc<Workqueue>) {
        self.queues.add(queue);
    }

    /// The workqueue of a policy.
    pub(crate) fn queue(&self, policy: &str) -> Option<Arc<Workqueue>> {
        self.queues.get(policy)
    }
}

/// A reconcile that was admitted. It uses one revision of its policy to its end.
struct Admitted {
    /// What is reconciled, and why.
    work: WorkItem,
    /// The policy with its guests.
    loaded: Arc<LoadedPolicy>,
    /// When the work came up.
    since: Instant,
    /// Whether time alone calls for it.
    timed: bool,
    /// Whether a resync is due, perhaps with others: what no watch has confirmed is requested again.
    resyncs: bool,
    /// How often something had become readable before it.
    readable: u64,
}

impl Admitted {
    /// Puts the request into the queue again, for the revision that is active now.
    fn again(&self, queue: &Workqueue) {
        let WorkItem { key, cause } = &self.work;
        let causes = [cause.clone()].into_iter();
        for cause in causes.chain(self.resyncs.then_some(Cause::Resync)) {
            queue.push(&key.primary, Queued::Reconcile(cause), None);
        }
    }
}

impl Controller {
    /// The guest's answer to the function `asked`; records what the call used.
    ///
    /// # Errors
    /// When the guest was stopped or broke the contract, with the reason.
    fn answer<T>(
        &self,
        loaded: &LoadedPolicy,
        key: &Key,
        asked: &'static str,
        call: Call<T>,
    ) -> Result<T, Failure> {
        let reason = call.result.as_ref().err().map(CallFailure::reason);
        if self.trial.is_none() {
            telemetry::called(key, asked, &call.receipt, reason);
            let used = |what| call.receipt.used(what, &loaded.limits);
            loaded.usage().add(used);
        }
        call.result
            .map_err(|failure| Failure::known(known_reason(failure.reason()), failure.to_string()))
    }
}
