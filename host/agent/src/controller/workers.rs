//! Starts queues, runs their reconciles, and knows when nothing is left to do.

use crate::controller::Controller;
use crate::controller::queue::{Queued, Request};
use crate::controller::workqueue::{Turn, Workqueue};
use crate::policies::active::Rehearsed;
use crate::policies::load::LoadedPolicy;
use futures::FutureExt as _;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use transom_core::failure::Class;
use transom_core::reference::ObjectRef;
use transom_core::report::End;
use transom_core::work::{Cause, Key};

/// The least number of reconciles of one policy that may run at once; it is the number of cores if that is larger.
/// Several, so that one slow call does not hold up the whole policy.
const FEWEST_AT_ONCE: usize = 4;
/// The same with an API server: most of a reconcile that writes is waiting for its answer.
const FEWEST_WAITING: usize = 32;
/// How many reconciles run at once over all policies. One of each policy may exceed this limit, so that no policy, and
/// no API server that does not answer, holds up the others.
pub(super) const AT_ONCE: usize = 256;
/// The cores that the agent may use. Asked for once: the answer comes from several files.
pub(super) static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
/// For so many conflicts in a row the agent that ends by itself waits for the next try.
const CONFLICTS: u32 = 5;
/// Delay of the retry after a bug in the agent ended a reconcile.
const AFTER_FAULT: Duration = Duration::from_secs(60);

impl Controller {
    /// Starts a policy with its first good revision: all its primaries are to be located, and are reconciled.
    pub(crate) fn begin(self: &Arc<Self>, loaded: Arc<LoadedPolicy>) {
        let queue = Arc::new(Workqueue::new(loaded));
        self.add_queue(Arc::clone(&queue));
        self.enqueue_all(&queue, &Cause::Added);
        let fewest = if self.connections.wait() {
            FEWEST_WAITING
        } else {
            FEWEST_AT_ONCE
        };
        let places = (*CORES).max(fewest);
        if self.trial.is_none() && !self.ends && !self.accounts.is_dry_run() {
            let (controller, queue) = (Arc::downgrade(self), Arc::downgrade(&queue));
            drop(tokio::spawn(Self::follow_deselected(controller, queue)));
        }
        let policy = Arc::clone(&queue.policy);
        self.pool
            .spawn(&policy, keep_going(Arc::clone(self), queue, places));
    }

    /// Activates another revision of a policy. What was last seen under the old one no longer counts. Every primary is
    /// reconciled, except those that the trial of the revision found right as they are.
    pub(crate) fn resume(
        self: &Arc<Self>,
        policy: &str,
        loaded: Arc<LoadedPolicy>,
        rehearsed: Option<Rehearsed>,
    ) {
        let Some(queue) = self.queue(policy) else {
            return self.begin(loaded);
        };
        let locked = self.memory.measure();
        let before = queue.loaded();
        queue.swap(loaded);
        if let Some(shared) = self.accounts.shared() {
            shared.forget(policy);
        }
        let loaded = queue.loaded();
        let [then, now] = [&before, &loaded].map(|one| &one.revision.policy);
        let resync_changes = now.resync_seconds != then.resync_seconds;
        // One that was at rest since the start has expected nobody yet.
        let (primaries, left) = self.expect(&loaded, !then.has_targets());
        let primaries = primaries.iter().map(|one| Key::new(&queue.policy, one));
        for key in primaries.chain(left) {
            let settled = rehearsed
                .as_ref()
                .is_some_and(|rehearsed| self.take_over(&queue, &key, rehearsed));
            if settled && resync_changes {
                self.resync_anew(&queue, &key);
            } else if !settled {
                // Freed without the lock. Of any other primary nothing was seen that has no result.
                let seen = self.memory.lock().last_seen.remove(&key);
                drop(seen);
                queue.push(&key.primary, Queued::Reconcile(Cause::Swapped), None);
            }
        }
        queue.end_swap(locked.pause());
    }

    /// Enqueues every primary of a policy, and every primary that is gone but left outputs behind.
    pub(super) fn enqueue_all(&self, queue: &Workqueue, cause: &Cause) {
        let (primaries, left) = self.expect(&queue.loaded(), *cause == Cause::Added);
        let left = left.iter().map(|key| &*key.primary);
        for primary in primaries.iter().chain(left) {
            queue.push(primary, Queued::Reconcile(cause.clone()), None);
        }
    }

    /// The primaries of a policy, and those that are gone but left outputs or a result behind. They are to be located
    /// before an unstamped target that they may want is written. `at_first`: the policy has not worked yet.
    pub(crate) fn expect(
        &self,
        loaded: &LoadedPolicy,
        at_first: bool,
    ) -> (Vec<ObjectRef>, Vec<Key>) {
        let policy = &loaded.revision.policy;
        let primaries = self.connections.primaries(policy);
        let known: BTreeSet<&ObjectRef> = primaries.iter().collect();
        let mut left = self.memory.keys_of(&policy.name);
        left.retain(|key| !known.contains(&*key.primary));
        if !policy.has_targets() {
            return (primaries, left);
        }
        self.memory.lock().ownership.reaches(policy);
        // A primary that was suspended until now may never have been located.
        let mut expected = self.unlocated(&policy.name, &primaries);
        if at_first {
            // A primary that cannot be read now may still exist, and keeps what was made for it. On a cluster that is
            // not connected no primary can ever be located, so none is expected; `handover` keeps others from taking
            // their targets.
            let connected = left
                .iter()
                .filter(|key| self.connections.has(&key.primary.cluster));
            expected.extend(connected.cloned());
        }
        self.expect_all(&policy.name, expected);
        (primaries, left)
    }

    /// Those of the primaries of a policy of which it is not known what they want.
    fn unlocated(&self, policy: &Arc<str>, primaries: &[ObjectRef]) -> Vec<Key> {
        let keys = primaries.iter().map(|primary| Key::new(policy, primary));
        // The lock is taken for each, so that no reconcile waits for all of them.
        keys.filter(|key| self.memory.lock().ownership.targets(key).is_none())
            .collect()
    }

    /// Has these primaries located before an unstamped target that they may want is written.
    fn expect_all(&self, policy: &Arc<str>, mut keys: Vec<Key>) {
        keys.retain(|key| !self.memory.lock().ownership.expects(key));
        let keys = keys.into_iter().collect();
        self.memory.lock().ownership.expect_all(policy, keys);
    }

    /// Called when something became readable. Primaries of which nothing is known yet are located before an unstamped
    /// target of their policy is written, as at a start: the oldest contender may be observed last.
    pub(super) fn locate_new(&self) {
        for queue in self.queues() {
            let loaded = queue.loaded();
            let policy = &loaded.revision.policy;
            if !policy.has_targets() {
                continue;
            }
            let primaries = self.connections.primaries(policy);
            let mut new = self.unlocated(&queue.policy, &primaries);
            new.retain(|key| !self.memory.lock().results.contains_key(key));
            self.expect_all(&queue.policy, new.clone());
            for key in new {
                queue.push(&key.primary, Queued::Reconcile(Cause::Added), None);
            }
        }
    }

    /// Waits until no queue has anything to do now, and no primary is soon tried again after a conflict: policies that
    /// write the same object cause these for one another.
    pub(crate) async fn idle(&self) {
        loop {
            let moved = self.moved.notified();
            let are_idle = || self.queues().iter().all(|queue| queue.is_idle());
            // Looked at once more: a retry may begin between the two looks.
            if are_idle() && !self.contends() && are_idle() {
                return;
            }
            moved.await;
        }
    }

    /// Whether a conflict is about to be tried again.
    fn contends(&self) -> bool {
        let memory = self.memory.lock();
        let conflicts = memory.results.iter().filter(|(_, last)| {
            last.end == End::Ended(Class::Conflict) && last.failures <= CONFLICTS
        });
        let keys: Vec<_> = conflicts.map(|(key, _)| key.clone()).collect();
        drop(memory);
        keys.iter().any(|key| {
            let queue = self.queue(&key.policy);
            queue.is_some_and(|queue| queue.awaits(&key.primary, &Cause::Retry))
        })
    }

    /// How many primaries wait or are being reconciled.
    pub(crate) fn left(&self) -> usize {
        self.queues().iter().map(|queue| queue.left()).sum()
    }

    /// Closes every queue. Reconciles that are under way go on to their end.
    pub(crate) fn stop(&self) {
        self.queues.close();
    }

    /// Waits until no reconcile is under way; for after [`Controller::stop`].
    pub(crate) async fn rested(&self) {
        loop {
            let moved = self.moved.notified();
            if self.queues().iter().all(|queue| queue.is_resting()) {
                return;
            }
            moved.await;
        }
    }
}

/// Runs the requests of a queue until it is closed, at most `most` at once.
async fn keep_going(controller: Arc<Controller>, queue: Arc<Workqueue>, most: usize) {
    let mut turn = Turn {
        leading: controller.leading.clone(),
        current: controller.current.subscribe(),
        since: Instant::now(),
    };
    let places = Arc::new(Semaphore::new(most));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Some(request) = queue.next(&mut turn).await else {
            return;
        };
        let others = u32::try_from(most - 1).unwrap_or(u32::MAX);
        let shared = tokio::select! {
            biased;
            shared = Arc::clone(&controller.at_once).acquire_owned() => shared.ok(),
            // The policy's other reconciles have ended: this one exceeds the shared limit.
            _ = places.acquire_many(others) => None,
        };
        let work = work_on(
            Arc::clone(&controller),
            Arc::clone(&queue),
            request,
            turn.clone(),
            (place, shared),
        );
        controller.pool.spawn(&queue.policy, work);
    }
}

/// Runs one reconcile after the other, each in a turn of its own, as long as the queue has more and no queue waits for
/// a shared place. Gives its places back even when a reconcile panics.
async fn work_on(
    controller: Arc<Controller>,
    queue: Arc<Workqueue>,
    mut request: Request,
    turn: Turn,
    (place, shared): Places,
) {
    loop {
        let primary = Arc::clone(&request.primary);
        let reconcile = AssertUnwindSafe(controller.reconcile(&queue, request)).catch_unwind();
        if reconcile.await.is_err() {
            let key = Key::new(&queue.policy, &primary);
            queue.unless_removed(|| controller.faulted(&key, &queue.loaded().revision.policy));
            controller.end(&queue, &primary);
            queue.push(&primary, Queued::Reconcile(Cause::Retry), Some(AFTER_FAULT));
        }
        let goes_on = shared.is_some() && controller.at_once.available_permits() > 0;
        let next = if goes_on { queue.ready(&turn) } else { None };
        let Some(next) = next else {
            drop((place, shared));
            queue.done(&primary);
            controller.moved.notify_one();
            if queue.is_idle() {
                // The first status of a policy waits for that.
                controller.statuses.changed();
            }
            return;
        };
        queue.done(&primary);
        request = next;
        tokio::task::yield_now().await;
    }
}

/// A place of the policy, and a shared one unless the reconcile exceeds the shared limit.
type Places = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use crate::controller::plan::Planned;
    use std::path::Path;
    use transom_core::object::Object;
    use transom_core::plan::Step;

    const POLICY: &str = "external-managed-kubeconfig";

    /// The number of files below a folder.
    fn files(folder: &Path) -> usize {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| {
                if entry.path().is_dir() {
                    files(&entry.path())
                } else {
                    1
                }
            })
            .sum()
    }

    /// A request for a primary that was added.
    fn added(primary: &ObjectRef) -> Request {
        Request {
            primary: primary.clone().into(),
            causes: vec![Queued::Reconcile(Cause::Added)],
            since: tokio::time::Instant::now(),
        }
    }

    /// The plan for such a primary.
    async fn planned(controller: &Controller, queue: &Workqueue, primary: &ObjectRef) -> Planned {
        let admitted = controller.admit(queue, added(primary)).await.unwrap();
        controller.decide(Arc::new(admitted)).await.ok().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reconcile_that_ends_after_its_policy_was_removed_leaves_nothing() {
        let (folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        let status = folder.path().join(".transom/status").join(POLICY);
        assert_eq!(files(&status), 1);
        controller.remove_queue(POLICY);
        controller.forget_status(POLICY);
        assert_eq!(files(&status), 0);
        controller.reconcile(&queue, added(&primary)).await;
        assert_eq!(files(&status), 0, "the status came back");
        let memory = controller.memory.lock();
        assert!(memory.results.is_empty() && memory.last_seen.is_empty() && memory.seen.is_empty());
        drop(memory);
        // Nor does one that read something and then ended by a bug in the agent.
        let key = Key::new(&queue.policy, &primary);
        let read = ObjectRef::local("v1", "Secret", Some("n"), "s");
        let mut memory = controller.memory.lock();
        memory.about_to_read(&key, std::slice::from_ref(&read));
        drop(memory);
        controller.forget(POLICY);
        let memory = controller.memory.lock();
        assert_eq!(memory.dependencies.concerned(&read).next(), None);
        drop(memory);
        // A policy of that name that was made anew meanwhile looks at it.
        let anew = Arc::new(Workqueue::new(queue.loaded()));
        controller.queues.add(Arc::clone(&anew));
        controller.reconcile(&queue, added(&primary)).await;
        assert_eq!(anew.left(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_idle_before_a_conflict_was_tried_again_a_few_times() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        let key = Key::new(&queue.policy, &primary);
        let later = Some(Duration::from_secs(600));
        for (class, failures, idle) in [
            (Class::Conflict, 1, false),
            (Class::Conflict, CONFLICTS, false),
            (Class::Conflict, CONFLICTS + 1, true),
            (Class::Unreachable, 1, true),
        ] {
            let mut memory = controller.memory.lock();
            let last = memory.results.get_mut(&key).unwrap();
            (last.end, last.failures) = (End::Ended(class), failures);
            drop(memory);
            queue.push(&primary, Queued::Reconcile(Cause::Retry), later);
            let is_idle = controller.idle().now_or_never().is_some();
            assert_eq!(is_idle, idle, "{class:?} {failures}");
            queue.forget(&primary, &Cause::Retry);
            assert!(controller.idle().now_or_never().is_some());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_policy_has_worked_here_since_this_replica_leads() {
        let (_folder, session, _) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        let before = Instant::now();
        assert!(controller.worked(&queue) > before.elapsed());
        controller.begin_to_work();
        assert!(controller.worked(&queue) <= before.elapsed());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_policy_that_made_nothing_until_now_expects_also_primaries_that_cannot_be_read() {
        use transom_core::policy::Policy;
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        // What is enqueued stays in the queue.
        controller.stop();
        let loaded = queue.loaded();
        let unread = ObjectRef {
            name: "unread".to_owned(),
            ..primary
        };
        let unread = Key::new(&queue.policy, &unread);
        let made = ObjectRef::local("v1", "Secret", Some("n"), "made");
        let expects = |before: Policy| {
            queue.swap(loaded.under(before).into());
            let mut memory = controller.memory.lock();
            memory.outputs.record(&made, Some(unread.clone()));
            drop(memory);
            controller.resume(POLICY, Arc::clone(&loaded), None);
            controller.memory.lock().ownership.expects(&unread)
        };
        let policy = loaded.revision.policy.clone();
        assert!(!expects(policy.clone()), "others located it, or it is gone");
        assert!(expects(Policy {
            writes: Vec::new(),
            ..policy
        }));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bound_counts_at_once_if_it_allows_no_more_and_else_suspends_what_it_narrows() {
        use transom_core::policy::{Policy, bound};
        let (_folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        controller.stop();
        let loaded = queue.loaded();
        let whole = &loaded.revision.policy;
        let within = |change: fn(&mut Policy)| {
            let mut newest = whole.clone();
            change(&mut newest);
            bound::bounded(whole, &newest)
        };
        let all = within(|_| {});
        let unread = within(|newest| newest.reads.clear());
        let unwritten = within(|newest| newest.writes.clear());
        let held = within(|newest| newest.suspend = true);
        assert!(!whole.reads.is_empty() && !whole.writes.is_empty());
        // What works, what is to work, whether that counts at once, and whether the former is suspended until then.
        for (works, next, at_once, suspends) in [
            (&all, &unread, true, false),
            (&all, &held, true, false),
            (&held, &all, true, true),
            (&unread, &all, false, false),
            (&unread, &unwritten, false, true),
        ] {
            queue.swap(loaded.under(works.clone()).into());
            let next = loaded.under(next.clone()).into();
            assert_eq!(controller.narrows(POLICY, Some(next)), at_once);
            assert_eq!(queue.loaded().revision.policy.suspend, suspends);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_decided_under_a_replaced_revision_counts_no_more_and_is_decided_anew() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        // What is enqueued stays in the queue.
        controller.stop();
        let forget = || controller.memory.lock().results.clear();
        let ended = || controller.memory.lock().results.len();
        let admitted = controller.admit(&queue, added(&primary)).await.unwrap();
        forget();
        queue.swap(Arc::new((*queue.loaded()).clone()));
        controller.attempt(&queue, admitted.into()).await;
        assert_eq!(ended(), 0);
        assert!(queue.awaits(&primary, &Cause::Added));
        controller.reconcile(&queue, added(&primary)).await;
        assert_eq!(ended(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_written_elsewhere_for_primaries_of_a_replaced_cluster() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        controller.stop();
        let mut planned = planned(controller, &queue, &primary).await;
        let mut copy = ObjectRef::local("v1", "ConfigMap", Some("n"), "copy");
        copy.cluster = "hub".to_owned();
        planned.plan.steps = vec![Step::Delete {
            reference: copy,
            uid: String::new(),
            version: "1".to_owned(),
            why: "it is no longer desired".to_owned(),
        }];
        planned.touched.cluster_uid = "of the cluster before".into();
        let applied = controller.apply(planned).await.ok().unwrap();
        let stopped = applied.success.outcome.stopped.unwrap();
        assert_eq!(
            stopped.reason,
            transom_api::KnownReason::ClusterReplaced.into(),
            "{stopped}"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_policy_that_begins_while_the_agent_ends_reconciles_nothing() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let loaded = controller.queue(POLICY).unwrap().loaded();
        controller.stop();
        let late = Arc::new(Workqueue::new(loaded));
        controller.queues.add(Arc::clone(&late));
        late.push(&primary, Queued::Reconcile(Cause::Added), None);
        let ended = async {
            keep_going(Arc::clone(controller), late, 1).await;
            controller.rested().await;
        };
        let deadline = Duration::from_secs(60);
        tokio::time::timeout(deadline, ended).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_plan_that_waited_to_be_written_is_dropped_once_its_policy_or_the_leader_is_another()
    {
        for changed in ["removed", "swapped", "led by another one"] {
            let (folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
            let controller = &session.controller;
            let queue = controller.queue(POLICY).unwrap();
            controller.stop();
            let objects = folder.path().join(".transom/objects");
            let made = files(&objects);
            let mut planned = planned(controller, &queue, &primary).await;
            let place = ObjectRef::local("v1", "ConfigMap", Some("n"), "late");
            let desired = Object {
                reference: place,
                version: String::new(),
                body: serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": "n"}}),
            };
            planned.plan.steps = vec![Step::Create { desired }];
            match changed {
                "removed" => controller.remove_queue(POLICY),
                "swapped" => queue.swap(Arc::new((*queue.loaded()).clone())),
                _ => drop(controller.current.send_replace(false)),
            }
            let applied = controller.apply(planned).await.ok().unwrap();
            let outcome = &applied.success.outcome;
            assert!(
                !applied.has_written() && outcome.stopped.is_some(),
                "{changed}: {outcome:?}"
            );
            assert_eq!(files(&objects), made);
        }
    }
}
