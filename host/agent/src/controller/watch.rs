//! Stage 1, watch: turns what the watches of clusters report into requests in workqueues. Opens each connection in a
//! task of its own, so that one that is slow or does not answer holds up no other.

use super::Controller;
use super::queue::{EDITED, Queued};
use super::workqueue::Workqueue;
use crate::telemetry;
use futures::StreamExt as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use transom_cluster::{Cluster, Patience};
use transom_core::backoff;
use transom_core::inputs::seen::Observed;
use transom_core::object::Object;
use transom_core::observation::{Observation, Unwatched};
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::report::Awaits;
use transom_core::work::{Cause, Key};

/// The most observations that are taken at once.
const BATCH: usize = 64;

impl Controller {
    /// Opens every connection in a task. Each task then follows the cluster's changes until the set is dropped; with
    /// `once` it ends when the connection was opened.
    pub(crate) fn open(self: &Arc<Self>, once: bool) -> JoinSet<()> {
        let clusters = self.connections.by_name.iter();
        clusters
            .map(|(name, cluster)| open(Arc::clone(self), name.clone(), Arc::clone(cluster), once))
            .collect()
    }

    /// Records every object of a cluster that bears a stamp. An owner that was reconciled before, without knowing of
    /// the object, is enqueued once more.
    pub(crate) fn find_outputs(&self, cluster: &dyn Cluster) {
        for (object, stamp) in cluster.stamped() {
            let owner = self.memory.lock().found(&object, stamp);
            if let Some(owner) = owner {
                let cause = Cause::Input(object);
                self.queues.push(&owner, Queued::Reconcile(cause));
            }
        }
    }

    /// Handles the first answer of a connection that did not answer when its policies began: their primaries are
    /// located before anything is written for one of them, as at a start.
    fn connected(&self, name: &str) {
        self.rehearsals.all_changed();
        for queue in self.queues_of(name) {
            self.enqueue_all(&queue, &Cause::Added);
        }
        self.retry_awaiting(name, &Awaits::ALL);
        self.statuses.changed();
    }

    /// The queues of the policies that name a cluster.
    fn queues_of(&self, cluster: &str) -> impl Iterator<Item = Arc<Workqueue>> {
        let queues = self.queues.all().into_iter();
        queues.filter(move |queue| {
            let loaded = queue.loaded();
            let mut clusters = loaded.revision.policy.clusters();
            clusters.any(|(_, name)| name == cluster)
        })
    }

    /// Turns observations of a cluster into requests in workqueues. After a restart of an API server all its
    /// watches recover at about the same time, so the follow-up work is done once for the whole batch. Returns whether
    /// reconciles that await the cluster may be retried.
    pub(crate) fn observe_all(&self, observations: Vec<Observation>) -> bool {
        use Observation::{Answered, FileReadable, ObjectReadable, Readable};
        let has = |is: fn(&Observation) -> bool| observations.iter().any(is);
        let goes_on = has(|one| {
            matches!(
                one,
                Readable(..) | FileReadable(_) | ObjectReadable(_) | Answered
            )
        });
        if has(|one| matches!(one, Readable(..) | FileReadable(_))) {
            // New primaries are expected before one of them is reconciled.
            self.locate_new();
        }
        observations.into_iter().for_each(|one| self.observe(one));
        goes_on
    }

    /// The same for an agent at rest, which begins no reconcile before it has taken in all of them, and what may be
    /// retried then: how it goes on is not left to chance.
    pub(crate) fn observe_at_once(&self, cluster: &str, observations: Vec<Observation>) {
        let current = self.current.send_replace(false);
        if self.observe_all(observations) {
            self.retry_awaiting(cluster, &Awaits::ALL);
        }
        self.current.send_replace(current);
    }

    fn observe(&self, observation: Observation) {
        match observation {
            Observation::Present(object) => self.present(object),
            Observation::Changed(reference) => {
                let keys = self.memory.lock().waiting_for(&reference);
                self.enqueue_for(&reference, keys, Some(EDITED));
            }
            Observation::Gone(reference) => {
                self.rehearsals.changed(&reference, None);
                self.memory.lock().gone(&reference);
                self.changed(&reference, &Queued::Reconcile(Cause::Gone), Observed::Gone);
            }
            Observation::Answered => {}
            Observation::Unreadable(unreadable) => {
                self.restart_sightings(&unreadable.unwatched);
                for object in &unreadable.objects {
                    self.rehearsals.changed(object, None);
                    let undecided = Queued::Reconcile(Cause::Undecided);
                    self.changed(object, &undecided, Observed::Unreadable);
                }
                self.statuses.changed();
                telemetry::unreadable(&unreadable.place, unreadable.reason, &unreadable.message);
            }
            Observation::Readable(place, unwatched) => {
                self.restart_sightings(&unwatched);
                self.statuses.changed();
                telemetry::readable(&place);
            }
            Observation::ObjectReadable(place) | Observation::FileReadable(place) => {
                self.statuses.changed();
                telemetry::readable(&place);
            }
        }
    }

    fn present(&self, object: Object) {
        let orphaned = self.memory.lock().observed(&object);
        self.rehearsals
            .changed(&object.reference, Some(&object.version));
        let observed = Observed::Present(&object);
        self.changed(&object.reference, &Queued::Updated, observed);
        // A stamp may name any object; only a primary of the policy is enqueued.
        let queue = orphaned.as_ref().and_then(|key| self.queue(&key.policy));
        let admits = |(queue, key): &(Arc<Workqueue>, Key)| {
            queue.loaded().revision.policy.primary.admits(&key.primary)
        };
        if let Some((queue, key)) = queue.zip(orphaned).filter(admits) {
            let cause = Cause::Input(object.reference);
            queue.push(&key.primary, Queued::Reconcile(cause), None);
        }
    }

    /// Enqueues the reconciles of a changed object and those that depend on it.
    fn changed(&self, object: &ObjectRef, as_primary: &Queued, observed: Observed<'_>) {
        self.connections.policy_changed(object);
        self.connections.component_changed(object);
        let made_by = |policy: &Policy| matches!(observed, Observed::Present(there) if policy.has_made(there));
        for queue in self.queues.all() {
            let loaded = queue.loaded();
            let policy = &loaded.revision.policy;
            if policy.primary.admits(object) && !made_by(policy) {
                queue.push(object, as_primary.clone(), None);
            }
        }
        let now_seconds = self.clock.now_seconds();
        let mut memory = self.memory.lock();
        let concerned = memory.concerned(object, observed, now_seconds);
        drop(memory);
        for (key, at) in concerned.moved {
            if let Some(queue) = self.queue(&key.policy) {
                self.expire_at(&queue, &key, at);
            }
        }
        self.enqueue_for(object, concerned.keys.into_iter().collect(), None);
    }

    /// Enqueues the reconciles that a change of an object concerns.
    fn enqueue_for(&self, object: &ObjectRef, keys: Vec<Key>, after: Option<Duration>) {
        for key in keys {
            let cause = Queued::Reconcile(Cause::Input(object.clone()));
            if let Some(queue) = self.queues.get(&key.policy) {
                queue.push(&key.primary, cause, after);
            }
        }
    }

    /// A watch failed, or is back: nobody knows what changed in between, so none of its objects counts as unchanged
    /// since before.
    fn restart_sightings(&self, unwatched: &Unwatched) {
        let now_seconds = self.clock.now_seconds();
        let sightings = &mut self.memory.lock().sightings;
        sightings.restart(unwatched, now_seconds);
    }

    /// Enqueues every primary whose reconcile awaits one of these, of policies that name the cluster.
    fn retry_awaiting(&self, cluster: &str, awaits: &[Awaits]) {
        let concerned = self.queues_of(cluster);
        let policies: BTreeSet<_> = concerned.map(|queue| Arc::clone(&queue.policy)).collect();
        // Before the results are looked at: a reconcile that has read and has no result yet looks at this after it.
        self.readable.fetch_add(1, Ordering::SeqCst);
        let keys: Vec<Key> = {
            let memory = &mut *self.memory.lock();
            let all = memory.results.iter_mut();
            let awaiting = all.filter(|(key, last)| {
                let is_over = last.awaits.is_some_and(|one| awaits.contains(&one));
                is_over && policies.contains(&key.policy)
            });
            let again = awaiting.map(|(key, last)| {
                last.tried_early = true;
                key.clone()
            });
            again.collect()
        };
        for key in keys {
            self.queues.push(&key, Queued::Reconcile(Cause::Retry));
        }
    }

    /// Enqueues contenders whose target was released.
    pub(super) fn enqueue_released(&self, keys: Vec<Key>) {
        for key in keys {
            self.queues.push(&key, Queued::Reconcile(Cause::Released));
        }
    }
}

async fn open(controller: Arc<Controller>, name: String, cluster: Arc<dyn Cluster>, once: bool) {
    let patience = if once {
        Patience::Long
    } else {
        Patience::Short
    };
    let away = cluster.synced(patience).await.is_err();
    if away {
        // Its policies begin anyway, and report why they cannot go on.
        controller.connections.opened(&name);
        if once {
            return;
        }
        drop(cluster.synced(Patience::Endless).await);
    }
    // Subscribes before it looks at the cache: what was there before is in the cache, what comes later is observed.
    let changes = cluster.changes();
    controller.connections.mark_components_changed(&name);
    controller.connections.mark_policies_changed(&name);
    controller.connections.tell_policies(&name);
    controller.find_outputs(&*cluster);
    match away {
        true => controller.connected(&name),
        false => controller.connections.opened(&name),
    }
    if once {
        return;
    }
    let mut batches = changes.ready_chunks(BATCH);
    let mut unanswered = Retries::of(Awaits::Answer);
    let mut refused = Retries::of(Awaits::Acceptance);
    loop {
        let batch = tokio::select! {
            () = unanswered.due() => {
                unanswered.retry(&controller, &name);
                continue;
            }
            () = refused.due() => {
                refused.retry(&controller, &name);
                continue;
            }
            batch = batches.next() => batch,
        };
        let Some(batch) = batch else { return };
        if controller.observe_all(batch) {
            let now = Instant::now();
            unanswered.ask(now);
            refused.ask(now);
        }
    }
}

/// When to retry the reconciles that await a cluster: at once after its first recovery, then with a growing delay while
/// recoveries go on. So a watch that fails again and again does not cancel the back-off of unrelated failures.
struct Retries {
    /// What the reconciles await.
    awaits: Awaits,
    last: Option<Instant>,
    wait: Duration,
    due: Option<Instant>,
}

impl Retries {
    const FIRST: Duration = Duration::from_millis(250);

    fn of(awaits: Awaits) -> Self {
        Self {
            awaits,
            last: None,
            wait: Duration::ZERO,
            due: None,
        }
    }

    /// The longest delay. Of what a server refuses it is that of the back-off: a watch that flaps says nothing about a
    /// role or a webhook.
    fn longest(&self) -> Duration {
        match self.awaits {
            Awaits::Answer => Duration::from_secs(30),
            Awaits::Acceptance => Duration::from_millis(backoff::LONGEST_MS),
        }
    }

    /// After so long without one the next is at once.
    fn quiet(&self) -> Duration {
        self.longest() * 2
    }

    fn goes_on(&self, now: Instant) -> Option<Instant> {
        let quiet = self.quiet();
        self.last.filter(|last| now.duration_since(*last) < quiet)
    }

    /// Something can be read again.
    fn ask(&mut self, now: Instant) {
        let spaced = self.goes_on(now).map(|last| last + self.wait);
        let at = spaced.map_or(now, |at| at.max(now));
        self.due = self.due.or(Some(at));
    }

    /// Waits until it is time; for ever when nothing asked.
    async fn due(&self) {
        match self.due {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Retries what awaits it.
    fn retry(&mut self, controller: &Controller, cluster: &str) {
        controller.retry_awaiting(cluster, &[self.awaits]);
        self.done(Instant::now());
    }

    fn done(&mut self, now: Instant) {
        self.wait = match self.goes_on(now) {
            Some(_) => (self.wait * 2).min(self.longest()),
            None => Self::FIRST,
        };
        (self.last, self.due) = (Some(now), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use transom_core::contract::decide::Age;
    use transom_core::inputs::age::Freshness;
    use transom_core::object::Object;
    use transom_core::observation::Unreadable;

    #[tokio::test(flavor = "multi_thread")]
    async fn only_a_gap_in_their_watch_restarts_the_times_of_heartbeats() {
        let policy = "external-managed-kubeconfig";
        let (_folder, session, primary) = of_case(policy, Clock::new(Some(20_000))).await;
        let controller = &session.controller;
        let object = Object {
            reference: primary,
            version: "1".to_owned(),
            body: serde_json::json!({"spec": {"renewTime": "1970-01-01T00:00:00Z"}}),
        };
        let age = Age {
            field: "spec.renewTime".to_owned(),
            seconds: 300,
        };
        let stays_stale = |observation: Observation| {
            let see = |at| {
                let sightings = &mut controller.memory.lock().sightings;
                sightings.freshness(Some(&object), &age, at)
            };
            controller.memory.lock().sightings = Default::default();
            see(0);
            controller.observe_all(vec![observation]);
            matches!(see(20_000), Freshness::Stale { .. })
        };
        let watch_of = |kind: &str| Unwatched::Kind {
            cluster: object.reference.cluster.clone(),
            api_version: object.reference.api_version.clone(),
            kind: kind.to_owned(),
        };
        let unreadable = |unwatched| {
            Observation::Unreadable(Unreadable {
                place: "a.yaml".to_owned(),
                reason: transom_api::KnownReason::ManifestInvalid,
                message: String::new(),
                unwatched,
                objects: Vec::new(),
            })
        };
        assert!(stays_stale(Observation::FileReadable("a.yaml".to_owned())));
        assert!(stays_stale(Observation::ObjectReadable("a".to_owned())));
        assert!(stays_stale(unreadable(Unwatched::Part)));
        let readable = |unwatched| Observation::Readable("watch".to_owned(), unwatched);
        for of_others in [unreadable(watch_of("Other")), readable(watch_of("Other"))] {
            assert!(stays_stale(of_others));
        }
        let kind = object.reference.kind.as_str();
        let connection = |name: &str| Unwatched::Connection(name.to_owned());
        assert!(stays_stale(readable(connection("other"))));
        assert!(!stays_stale(readable(connection("local"))));
        assert!(!stays_stale(readable(watch_of(kind))));
        assert!(!stays_stale(unreadable(watch_of(kind))));
    }

    #[test]
    fn what_comes_back_over_and_over_is_tried_less_and_less_often_and_the_last_is_never_lost() {
        let (start, mut retries) = (Instant::now(), Retries::of(Awaits::Answer));
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut tried = Vec::new();
        // Something comes back ten times a second, for two minutes.
        for tenth in 0..1_200 {
            let now = f64::from(tenth) / 10.0;
            retries.ask(at(now));
            if retries.due.is_some_and(|due| due <= at(now)) {
                retries.done(at(now));
                tried.push(now);
            }
        }
        assert_eq!(tried[..6], [0.0, 0.3, 0.8, 1.8, 3.8, 7.8], "{tried:?}");
        assert!(tried.windows(2).all(|two| two[1] - two[0] < 30.2) && tried.len() < 13);
        let last = retries.due.unwrap();
        assert!(last > at(119.9) && last <= at(150.0));
        retries.done(last);
        // After a while without any, the next one is at once.
        let later = last + retries.quiet();
        retries.ask(later);
        assert_eq!(retries.due, Some(later));
    }

    #[test]
    fn what_a_server_refuses_keeps_its_back_off_while_a_watch_flaps() {
        let (start, mut retries) = (Instant::now(), Retries::of(Awaits::Acceptance));
        let mut tried = Vec::new();
        // A watch comes back every five seconds, for an hour.
        for second in (0..3_600).step_by(5) {
            let now = start + Duration::from_secs(second);
            retries.ask(now);
            if retries.due.is_some_and(|due| due <= now) {
                retries.done(now);
                tried.push(second);
            }
        }
        let last: Vec<_> = tried.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(last.ends_with(&[300, 300, 300]), "{tried:?}");
    }
}
