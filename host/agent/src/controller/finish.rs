//! Stages 8 and 9, finish: the report of a reconcile, when to reconcile next, and what is published.

use super::apply::Applied;
use super::memory::LastResult;
use super::queue::{Queued, Request};
use super::workqueue::Workqueue;
use super::{Admitted, Controller, Ended, Touched};
use crate::policies::load::LoadedPolicy;
use crate::telemetry::{self, First};
use std::collections::btree_map::Entry;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use transom_api::{KnownReason, State};
use transom_core::backoff;
use transom_core::failure::{Class, Failure};
use transom_core::ownership::Contender;
use transom_core::policy::Policy;
use transom_core::report::{self, Awaits, End, Reconcile, Report, Schedule};
use transom_core::share::reconcile_limit::Throttled;
use transom_core::time::parse_rfc3339;
use transom_core::trigger::LastSeen;
use transom_core::work::{Cause, Key, WorkItem};

impl Controller {
    /// Reports how a reconcile ended, records what it saw, schedules the next one, and publishes.
    pub(super) fn finish(
        &self,
        queue: &Workqueue,
        admitted: &Admitted,
        result: Result<Applied, Box<Ended>>,
    ) {
        let Admitted { work, loaded, .. } = admitted;
        let key = &work.key;
        self.let_go(key);
        let (result, mut touched) = match result {
            Ok(Applied { success, touched }) => (Ok(success), touched),
            Err(ended) => (Err(ended.failure), ended.touched),
        };
        // A failure may name a time to try again, just like an answer.
        if let Err(failure) = &result {
            touched.ask_again(failure.ask_again_at);
            if !loaded.revision.policy.suspend {
                self.limits.unplanned(key, failure.class);
            }
        }
        if touched.answered {
            self.guest_answered(key);
        }
        touched.reconcile.ask_again_at = touched.ask_again_at;
        touched.reconcile.failing = self.failing_since(key, &loaded.revision);
        let schedule = self.schedule(loaded, key);
        let report = report::of(touched.reconcile.clone(), result, schedule);
        // At the start of the agent only the target is known yet. The last primary that is located enqueues this one
        // again.
        let unlocated = report.end == End::Ended(Class::Unlocated);
        if unlocated && !self.memory.lock().results.contains_key(key) {
            // Or the time comes after which it does not wait for other policies any more.
            let after = touched.ask_again_at.and(report.again_after_ms);
            if let Some(after) = after.filter(|_| !self.ends) {
                let again = Queued::Reconcile(Cause::Timer);
                queue.push(&key.primary, again, Some(Duration::from_millis(after)));
            }
            return;
        }
        self.accounts.asks_again(key, report.again_after_ms);
        let primary = touched.primary.as_ref();
        let uid = primary.map_or_else(String::new, |primary| primary.uid().to_owned());
        let (policy, counts) = (&loaded.revision.policy, (key, primary.is_some()));
        let mut memory = self.memory.lock();
        let attempt = memory.attempt(policy, counts, admitted.timed, &report);
        drop(memory);
        if self.trial.is_none() {
            telemetry::counted(work, &report, attempt, admitted.since.elapsed());
        }
        queue.unless_removed(|| {
            self.remember(admitted, touched, &report);
            self.schedule_next(queue, admitted, &report);
            self.publish(work, &uid, &report);
            self.retry_missed(queue, admitted, &report);
        });
    }

    /// Puts a request back into the queue until the primary may be reconciled again, and reports that once. Asks no
    /// guest, and reads at most the primary.
    pub(super) async fn put_off(
        &self,
        queue: &Workqueue,
        loaded: &Arc<LoadedPolicy>,
        key: Key,
        request: Request,
        off: Throttled,
    ) {
        let left = off.until_seconds.saturating_sub(self.clock.now_seconds());
        let after = Duration::from_secs(left.max(1).unsigned_abs());
        let cause = request.cause().cloned().unwrap_or(Cause::Undecided);
        for cause in request.causes {
            queue.push(&request.primary, cause, Some(after));
        }
        let Some(failure) = off.told else { return };
        // An update alone may be ignored then, and the failure would stay.
        let again = Queued::Reconcile(Cause::Undecided);
        queue.push(&request.primary, again, Some(after));
        // A primary that cannot be read now is reported without its uid.
        let primary = self.connections.read(&request.primary).await.ok().flatten();
        let uid = primary.map_or_else(String::new, |primary| primary.uid().to_owned());
        self.meet(&key, &uid);
        let next = self.end_turn(&mut self.memory.lock(), &key, None);
        self.enqueue_released(next);
        let schedule = self.schedule(loaded, &key);
        let report = report::of(Reconcile::new(key.clone()), Err(failure), schedule);
        let work = WorkItem { key, cause };
        if self.trial.is_none() {
            telemetry::counted(&work, &report, None, request.since.elapsed());
        }
        queue.unless_removed(|| self.publish(&work, &uid, &report));
    }

    /// Retries at once if something became readable during the reconcile: [`Self::retry_awaiting`] did not find it
    /// then, because it had no result yet.
    fn retry_missed(&self, queue: &Workqueue, admitted: &Admitted, report: &Report) {
        let key = &admitted.work.key;
        // What a server refused has its back-off.
        let is_missed = report.awaits() == Some(Awaits::Answer)
            && self.readable.load(Ordering::SeqCst) != admitted.readable;
        if !is_missed {
            return;
        }
        if let Some(last) = self.memory.lock().results.get_mut(key) {
            last.tried_early = true;
        }
        queue.push_again(&key.primary, Duration::ZERO, admitted.since);
    }

    /// Ends the claims of what the last answer for a key only removes.
    fn let_go(&self, key: &Key) {
        let released = self.memory.lock().ownership.let_go(key);
        self.enqueue_released(released);
    }

    /// The inputs that decide when a key is reconciled next.
    fn schedule(&self, loaded: &LoadedPolicy, key: &Key) -> Schedule {
        let memory = self.memory.lock();
        let (failures, waited) = memory.results.get(key).map_or((0, false), |last| {
            let failures = last.failures.saturating_sub(u32::from(last.tried_early));
            (failures, last.state == State::Waiting)
        });
        drop(memory);
        let now_seconds = self.clock.now_seconds();
        Schedule {
            now_seconds,
            resync_seconds: loaded.revision.policy.resync_seconds,
            failures,
            waited,
            seed: self.seeds.hash_one((key, now_seconds, failures)),
        }
    }

    /// Records what a reconcile read, and keeps the claim of a primary whose target is not known now.
    fn remember(&self, admitted: &Admitted, touched: Touched, report: &Report) {
        let (key, revision) = (&admitted.work.key, &admitted.loaded.revision);
        // Made before the memory is locked, and what it replaces is freed after that.
        let last_seen = touched.last_seen.as_deref();
        let last_seen = last_seen.map(|primary| LastSeen::of(primary, revision.predicate()));
        let (_seen_before, _last_before);
        let mut lock = self.memory.lock();
        let memory = &mut *lock;
        memory.dependencies.set(key, touched.objects.keys());
        _seen_before = memory.seen.insert(key.clone(), touched.objects);
        memory.sets.set(key, touched.sets);
        if report.state == State::Applied {
            memory.ends_at(key, touched.ends_seconds);
        }
        // An update since then is still in the queue and is compared with what this reconcile saw.
        _last_before = match last_seen {
            Some(seen) => memory.last_seen.insert(key.clone(), seen),
            None => memory.last_seen.remove(key),
        };
        let over = matches!(report.end, End::Gone | End::Ended(Class::Left));
        let mut released = Vec::new();
        if revision.policy.has_targets() && report.target.is_none() && !over {
            released = memory.keep_claims(Contender::of(key, touched.primary.as_deref()));
        }
        let wanted = (touched.lacking.as_ref(), touched.left_out.as_ref());
        released.extend(self.end_wanting(memory, (key, &revision.policy), wanted, report.end));
        drop(lock);
        self.enqueue_released(released);
    }

    fn schedule_next(&self, queue: &Workqueue, admitted: &Admitted, report: &Report) {
        let WorkItem { key, cause } = &admitted.work;
        for cause in [Cause::Timer, Cause::Retry] {
            queue.forget(&key.primary, &cause);
        }
        let reconcile = |cause, after| queue.push(&key.primary, Queued::Reconcile(cause), after);
        if let Some(after) = report.again_after_ms.map(Duration::from_millis) {
            match report.failures {
                0 if self.ends => {}
                0 => reconcile(Cause::Timer, Some(after)),
                _ => queue.push_again(&key.primary, after, admitted.since),
            }
        }
        self.expire(queue, key);
        // A scheduled resync keeps its time, unless the policy may have a new interval.
        let anew = matches!(cause, Cause::Added | Cause::Swapped);
        let keeps = !anew && queue.awaits(&key.primary, &Cause::Resync);
        if !keeps || report.resync_after_ms.is_none() {
            self.resync(queue, key, report.resync_after_ms);
        }
        // Enqueued without delay: the queue gives nothing out before this replica leads again.
        if report.end == End::Ended(Class::Standby) {
            reconcile(Cause::Retry, None);
        }
    }

    /// Has a primary resynced at the interval that the policy has now, whatever it was before.
    pub(super) fn resync_anew(&self, queue: &Workqueue, key: &Key) {
        let schedule = self.schedule(&queue.loaded(), key);
        let after_ms = backoff::resync_ms(schedule.resync_seconds, schedule.seed);
        self.resync(queue, key, after_ms);
    }

    fn resync(&self, queue: &Workqueue, key: &Key, after_ms: Option<u64>) {
        match after_ms.map(Duration::from_millis) {
            Some(_) if self.ends => {}
            Some(after) => queue.push(&key.primary, Queued::Reconcile(Cause::Resync), Some(after)),
            None => queue.forget(&key.primary, &Cause::Resync),
        }
    }

    /// Schedules a reconcile for when a time in an object that a primary depends on reaches its age limit.
    pub(super) fn expire(&self, queue: &Workqueue, key: &Key) {
        let at = self.memory.lock().expires(key);
        match at.filter(|_| !self.ends) {
            Some(at) => self.expire_at(queue, key, at),
            None => queue.forget(&key.primary, &Cause::Expired),
        }
    }

    /// The same, for a time that is known.
    pub(super) fn expire_at(&self, queue: &Workqueue, key: &Key, at: i64) {
        let left = at.saturating_sub(self.clock.now_seconds()).max(0);
        let after = Duration::from_secs(left.unsigned_abs());
        queue.push(&key.primary, Queued::Reconcile(Cause::Expired), Some(after));
    }

    /// Publishes to the cluster and the log, each transition once.
    pub(super) fn publish(&self, work: &WorkItem, uid: &str, report: &Report) {
        let key = &work.key;
        let result = LastResult::of(report, uid);
        // A trial counts it, and what it would remove.
        let gone = report.end == End::Gone && self.trial.is_none();
        let first = {
            let memory = &mut self.memory.lock();
            if gone {
                memory.remove(key);
                memory.contentions.remove(key);
            }
            // For `Applied` the earlier time is not needed.
            result.state != State::Applied && !memory.results.contains_key(key)
        };
        let earlier = first.then(|| self.since_before(key, &result)).flatten();
        let lasting = |before: Option<&LastResult>| {
            let mut lasting = result.clone().after(before);
            lasting.since_seconds = earlier.unwrap_or(lasting.since_seconds);
            lasting
        };
        let before = match self.memory.lock().results.entry(key.clone()) {
            Entry::Occupied(known) if gone => Some(known.remove()),
            Entry::Occupied(mut known) => {
                let lasting = lasting(Some(known.get()));
                Some(known.insert(lasting))
            }
            Entry::Vacant(_) if gone => None,
            Entry::Vacant(place) => {
                place.insert(lasting(None));
                None
            }
        };
        self.statuses.changed();
        let transition = match before {
            None => Some(First::Sight),
            Some(before) => result.differs(&before).then_some(First::Change),
        };
        if self.trial.is_none() {
            telemetry::reconciled(work, report, transition);
        }
        // `Unlocated` is part of the agent's start and is not published.
        let is_news = gone || report.end != End::Ended(Class::Unlocated);
        if is_news && !self.accounts.is_dry_run() {
            self.publish_primary(key, report, uid);
        }
    }

    /// Since when a primary has been in its state, as an earlier agent published it. A restart does not reset that
    /// time.
    fn since_before(&self, key: &Key, now: &LastResult) -> Option<i64> {
        self.statuses.found_since(key, now).or_else(|| {
            let before = self.connections.reported(&key.policy, &key.primary)?;
            let same = (before.state, before.reason.as_str()) == (now.state, now.reason.as_str());
            same.then(|| parse_rfc3339(&before.since)).flatten()
        })
    }

    /// Reports a reconcile that ended by a bug in the agent.
    pub(super) fn faulted(&self, key: &Key, policy: &Policy) {
        let bug = "a bug in the agent made this reconcile fail";
        let failure = Failure::known(KnownReason::AgentFailed, bug);
        let schedule = Schedule {
            now_seconds: self.clock.now_seconds(),
            resync_seconds: policy.resync_seconds,
            failures: 0,
            waited: false,
            seed: 0,
        };
        let report = report::of(Reconcile::new(key.clone()), Err(failure), schedule);
        let (counts, released) = {
            let mut memory = self.memory.lock();
            // Others wait until it is known what this one wants.
            let mut released = match policy.has_targets() {
                true => memory.keep_claims(Contender::of(key, None)),
                false => Vec::new(),
            };
            released.extend(self.end_turn(&mut memory, key, None));
            released.extend(memory.ownership.answered(key, None));
            (memory.faulted(key, policy, &report), released)
        };
        self.enqueue_released(released);
        if self.trial.is_none() {
            telemetry::fault(key, counts);
        }
    }

    /// Logs why a trigger guest could not say whether an update matters.
    pub(super) fn unevaluated(&self, key: &Key, failure: &Failure) {
        if self.trial.is_none() {
            telemetry::unevaluated(key, failure);
        }
    }

    /// Logs that a trigger guest ignored an update.
    pub(super) fn ignored(&self, key: &Key) {
        if self.trial.is_none() {
            telemetry::ignored(key);
        }
    }
}
