//! Tries a candidate on the primaries, also those that are gone and left something behind. A second controller on the
//! same connections, which writes, publishes, logs and counts nothing, reconciles each primary twice, and twice more
//! where the two results differ. Then it reconciles those that it would write again, as if it had written them.

mod faults;
mod overlay;
mod rehearsals;
mod tried;
mod unsettled;
mod unstable;

use super::Controller;
use super::account::{Account, Accounts};
use super::memory::{LastResult, SharedMemory};
use super::pool::Pool;
use super::queue::Queued;
use super::workqueue::Workqueue;
use crate::clock::Clock;
use crate::policies::active::Rehearsed;
use crate::policies::load::LoadedPolicy;
use faults::{FAULTS, failures, fault, faults_in, new_faults};
pub(super) use overlay::Overlay;
pub(super) use rehearsals::Rehearsals;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use transom_api::KnownReason;
use transom_cluster::kubernetes::Leading;
use transom_core::catalogue::Revision;
use transom_core::limits;
use transom_core::plan::fleet::{FleetPlan, Listed, PlannedPrimary};
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::rollout::expected::Expected;
use transom_core::rollout::{Faults, Trial};
use transom_core::share::lock::MutexExt as _;
use transom_core::work::{Cause, Key};
use tried::{TriedPrimary, is_unreachable};
use unstable::contradictions;

/// How many threads a trial has, so that the active policies keep theirs.
const THREADS: usize = 2;
/// How many reconciles of a trial run at once.
const AT_ONCE: usize = 8;
/// For how many primaries a candidate is asked beyond the first two passes: what it writes is in memory.
const ASKED_AGAIN: usize = 500;
/// How often the faults are counted.
const LOOK: Duration = Duration::from_millis(100);

/// The agent of a trial, which stops when the trial ends, early or not.
struct TrialController(Arc<Controller>);

impl Drop for TrialController {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Controller {
    /// Reconciles every primary of a policy under a candidate twice, without writing or publishing anything. First
    /// waits for the lists of what the candidate reads. Also returns the primaries that need no reconcile at the swap,
    /// if every primary was reconciled twice; or of a candidate that fails, what changes of what it fails for.
    pub(crate) async fn trial(&self, candidate: Arc<LoadedPolicy>) -> (Trial, Option<Rehearsed>) {
        let policy = &candidate.revision.policy;
        let clusters = policy.clusters();
        let clusters = clusters.map(|(_, cluster)| cluster.to_owned()).collect();
        self.connections.ready(&clusters).await;
        // Of those that are not listed it would find nothing.
        let active = self.queue(&policy.name).map(|queue| queue.loaded());
        let active = active.as_ref().map(|active| &active.revision.policy);
        if let Err(failure) = self.connections.primaries_listed(policy, active) {
            let failed = Trial::failed(&policy.name, failure.reason, &failure.message);
            return (failed, None);
        }
        let shadow = self.try_out(&candidate);
        let live = active.is_some().then_some(&self.memory);
        let rehearsed = self.rehearsals.begin();
        let (first, cut) = shadow.0.pass(live).await;
        let queue = shadow.0.queue(&policy.name).filter(|_| !cut);
        let mut trial = match queue {
            None => self.compare(&policy.name, &first, None),
            Some(queue) => {
                let there = first.iter().filter(|(_, tried)| !tried.is_gone());
                let asked = there.map(|(key, _)| key);
                let mut second = shadow.0.again(&queue, live, asked).await;
                let mut trial = self.compare(&policy.name, &first, Some(&second));
                let suspects = contradictions(&first, &second);
                second.retain(|key, _| !suspects.contains_key(key));
                shadow.0.settle(&rehearsed, second);
                trial.unstable = shadow.0.unstable(&queue, live, &suspects).await;
                if trial.unstable.is_empty() {
                    trial.unsettled = shadow.0.unsettled(&queue, live, &first).await;
                }
                trial
            }
        };
        if !trial.faults.is_empty() {
            rehearsed.locked().refused_for(failing(&trial, &first));
        }
        let marks = first.values().filter_map(|tried| tried.account.mark);
        trial.expected = Expected::of(shadow.0.clock.now_seconds(), marks);
        // The baseline of the probation: faults from now on are compared with these.
        trial.active_faults = faults_in(&self.memory, &policy.name).now.len();
        (trial, Some(rehearsed))
    }

    /// The controller of a trial at its begin: as at a start, it also reconciles the primaries that are gone and left
    /// something behind.
    fn try_out(&self, candidate: &LoadedPolicy) -> TrialController {
        let policy = &candidate.revision.policy;
        let shadow = TrialController(Arc::new(self.shadow(&policy.name)));
        // What a watch of the candidate listed just now may not be observed yet.
        let servers = self.connections.all();
        let servers = servers.filter(|cluster| cluster.server().is_some());
        servers.for_each(|server| shadow.0.find_outputs(server));
        // A suspension is no part of a revision: what it would do without it counts.
        let revision = Arc::new(Revision {
            policy: Policy {
                suspend: false,
                ..policy.clone()
            },
            ..(*candidate.revision).clone()
        });
        shadow.0.begin(Arc::new(LoadedPolicy {
            revision,
            ..candidate.clone()
        }));
        shadow
    }

    /// Reconciles these primaries again.
    async fn again(
        &self,
        queue: &Workqueue,
        live: Option<&SharedMemory>,
        keys: impl Iterator<Item = &Key>,
    ) -> BTreeMap<Key, TriedPrimary> {
        self.memory.lock().results.clear();
        for key in keys {
            queue.push(&key.primary, Queued::Reconcile(Cause::Swapped), None);
        }
        self.pass(live).await.0
    }

    /// The controller of a trial. It starts with what this one knows of owners, outputs, times at which fields changed,
    /// and the form in which servers store what the policy wrote.
    fn shadow(&self, policy: &str) -> Self {
        let memory = SharedMemory::default();
        self.memory
            .contentions
            .copy_forms(&memory.contentions, policy);
        {
            let (ownership, outputs) = self.memory.copy_claims();
            let sightings = self.memory.lock().sightings.clone();
            let mut shadow = memory.lock();
            shadow.ownership = ownership;
            shadow.outputs = outputs;
            shadow.sightings = sightings;
        }
        // Time that goes on between two answers is not a reason for another one.
        let clock = Clock::new(Some(self.clock.now_seconds()));
        Self {
            leading: Leading::always(),
            memory,
            kubeconfig_limits: self.kubeconfig_limits,
            accounts: Accounts::of_trial(),
            pool: Pool::new(THREADS),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            documents: Arc::clone(&self.documents),
            ends: true,
            trial: Some(Overlay::default()),
            ..Self::new(Arc::clone(&self.connections), clock, self.facts.clone())
        }
    }

    /// Runs until the queues are empty, or, if it is compared with an active revision, there are enough faults that
    /// this does not have. Returns what was found and forgets it; true if the faults ended the pass.
    async fn pass(&self, live: Option<&SharedMemory>) -> (BTreeMap<Key, TriedPrimary>, bool) {
        let mut idle = std::pin::pin!(self.idle());
        let mut cut = false;
        while !cut && tokio::time::timeout(LOOK, &mut idle).await.is_err() {
            let failing: Vec<Key> = {
                let memory = self.memory.lock();
                let results = memory.results.iter();
                let failing = results.filter(|(_, last)| fault(last).is_some());
                failing.map(|(key, _)| key.clone()).collect()
            };
            // While nothing is active, no fault refuses the candidate, and its plan is to cover the whole fleet.
            cut = live.is_some_and(|live| new_faults(failing.iter(), live) >= FAULTS);
        }
        let results = self.memory.lock().results.clone();
        let accounts = self.accounts.take();
        let tried = |(key, account): (Key, Account)| {
            // One that was cut off has an account only.
            let result = results.get(&key)?.clone();
            Some((key, TriedPrimary { account, result }))
        };
        (accounts.into_iter().filter_map(tried).collect(), cut)
    }

    /// The primaries of a policy that fail now by a fault of its guest.
    pub(crate) fn faults(&self, policy: &str) -> Faults {
        let mut faults = faults_in(&self.memory, policy);
        faults.at_seconds = self.clock.now_seconds();
        // After a start some have no result yet: a share of the others would be a larger one of all.
        if let Some(queue) = self.queue(policy) {
            let primaries = self.connections.primaries(&queue.loaded().revision.policy);
            faults.primaries = faults.primaries.max(primaries.len());
        }
        faults
    }

    /// What two passes found, against the results of the active revision.
    fn compare(
        &self,
        policy: &str,
        first: &BTreeMap<Key, TriedPrimary>,
        second: Option<&BTreeMap<Key, TriedPrimary>>,
    ) -> Trial {
        // The lock is taken for each, so that the reconciles of the active revision go on.
        let live = |key| {
            let memory = self.memory.lock();
            let last = memory.results.get(key);
            last.map(|last| (fault(last).is_some(), is_unreachable(last)))
        };
        let queue = self.queue(policy);
        // Under the active revision some may have no result yet, as after a start.
        let is_busy = queue.as_ref().is_some_and(|queue| !queue.is_idle());
        let (mut faults, mut incomplete) = (Vec::new(), None);
        // While nothing is active, one primary must not hold up the others: each would fail alone, as under a first
        // revision, which needs no trial.
        for (key, tried) in first.iter().filter(|_| queue.is_some()) {
            let (result, live) = (&tried.result, live(key));
            if live.is_none() && is_busy && fault(result).is_some() {
                let why = format!("{}: it has no result yet to compare with", key.primary);
                incomplete.get_or_insert((KnownReason::Trying, why));
                continue;
            }
            let (faulty, unreachable) = live.unwrap_or_default();
            if is_unreachable(result) && !unreachable {
                let why = format!("{}: {}", key.primary, result.message);
                let reason = known(result).unwrap_or(KnownReason::ReadFailed);
                incomplete.get_or_insert((reason, why));
            }
            // Without a second pass there were too many faults for one. Otherwise a guest that is only slow now and
            // then is not to blame.
            let again = second.and_then(|second| second.get(key));
            let faulty_again = again.is_some_and(|again| fault(&again.result).is_some());
            if let Some(reason) = fault(result).filter(|_| !faulty)
                && (second.is_none() || faulty_again)
            {
                faults.push(((*key.primary).clone(), reason, result.message.clone()));
            }
        }
        let failures = |tried| failures(tried, &self.memory);
        if queue.is_some()
            && faults.is_empty()
            && failures(first).max(second.map_or(0, failures)) >= FAULTS
        {
            let why = "the guest of the candidate fails now and then for many primaries";
            incomplete.get_or_insert((KnownReason::GuestTimedOut, why.to_owned()));
        }
        Trial {
            limited: limits::counted(first.values().map(|one| &one.account.limited)),
            plan: planned(policy, first),
            expected: Expected::default(),
            faults,
            unstable: Vec::new(),
            unsettled: Vec::new(),
            active_faults: 0,
            incomplete,
            late: false,
        }
    }
}

/// What a pass planned for the whole fleet.
fn planned(policy: &str, tried: &BTreeMap<Key, TriedPrimary>) -> FleetPlan {
    let planned = tried.iter().map(|(key, tried)| PlannedPrimary {
        key,
        state: tried.result.state,
        reason: tried.result.reason.as_str(),
        message: &tried.result.message,
        writes: &tried.account.writes,
    });
    FleetPlan::of(policy, planned, Listed::default())
}

/// The primaries for which a candidate fails, and what it read for them.
fn failing(trial: &Trial, tried: &BTreeMap<Key, TriedPrimary>) -> BTreeSet<ObjectRef> {
    let primaries: BTreeSet<_> = trial.faults.iter().map(|(primary, ..)| primary).collect();
    let failing = tried
        .iter()
        .filter(|(key, _)| primaries.contains(&*key.primary));
    let read = failing.flat_map(|(_, one)| one.account.inputs.iter().map(|read| &read.object));
    primaries.iter().copied().chain(read).cloned().collect()
}

fn known(result: &LastResult) -> Option<KnownReason> {
    result.reason.known()
}
