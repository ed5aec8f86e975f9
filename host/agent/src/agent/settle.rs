//! Stages 8 and 9: records the result of a reconcile, schedules the next one, and publishes to clusters and logs.

use super::Agent;
use super::known::Told;
use super::pipeline::Seen;
use super::queue::Queued;
use super::workqueue::Workqueue;
use crate::policies::load::Loaded;
use crate::telemetry::{self, First};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::State;
use transom_core::failure::Class;
use transom_core::object::Object;
use transom_core::ownership::Contender;
use transom_core::policy::Writes;
use transom_core::report::{End, Report, Schedule};
use transom_core::signal::Signal;
use transom_core::time::parse_rfc3339;
use transom_core::work::{Cause, Key, WorkItem};

impl Agent {
    /// The inputs that decide when a key is reconciled next.
    pub(crate) fn schedule(&self, loaded: &Loaded, key: &Key) -> Schedule {
        let failures = self
            .known
            .lock()
            .told
            .get(key)
            .map_or(0, |told| told.failures);
        let now_seconds = self.clock.now_seconds();
        let seed = self.seeds.hash_one((key, now_seconds, failures));
        Schedule {
            now_seconds,
            resync_seconds: loaded.revision.policy.resync_seconds,
            failures,
            seed,
        }
    }

    /// Records what a reconcile touched and its result, and schedules the next one.
    pub(crate) fn settle(
        &self,
        queue: &Workqueue,
        loaded: &Loaded,
        (work, since): (&WorkItem, Instant),
        seen: Seen,
        report: &Report,
    ) {
        let key = &work.key;
        let seen_primary = seen.primary.clone();
        {
            let mut known = self.known.lock();
            known.dependencies.set(key, seen.objects.keys());
            known.fingerprints.insert(key.clone(), seen.objects);
            if let (State::Applied, Some(ends)) = (report.state, seen.ends_seconds) {
                known.ends.insert(key.clone(), ends);
            }
            match &seen.last_seen {
                // An update since then is still in the queue and is compared with what this reconcile saw.
                Some(primary) => known
                    .last_seen
                    .insert(key.clone(), Self::last_seen(loaded, primary)),
                None => known.last_seen.remove(key),
            };
        }
        self.located(loaded, key, &seen_primary, report);
        for cause in [Cause::Timer, Cause::Retry] {
            queue.forget(&key.primary, &cause);
        }
        if let Some(after) = report.again_after_ms.map(Duration::from_millis) {
            match report.failures {
                0 => queue.push(&key.primary, Queued::Reconcile(Cause::Timer), Some(after)),
                _ => queue.push_again(&key.primary, after, since),
            }
        }
        // Retries and timers do not move a scheduled resync, so that frequent ones cannot defer it forever.
        let timed = matches!(work.cause, Cause::Timer | Cause::Retry)
            && queue.awaits(&key.primary, &Cause::Resync);
        match report.resync_after_ms.map(Duration::from_millis) {
            Some(_) if timed => {}
            Some(after) => queue.push(&key.primary, Queued::Reconcile(Cause::Resync), Some(after)),
            None => queue.forget(&key.primary, &Cause::Resync),
        }
        // Enqueued without delay: the queue gives nothing out before this replica leads again.
        if report.end == End::Ended(Class::Standby) {
            queue.push(&key.primary, Queued::Reconcile(Cause::Retry), None);
        }
    }

    /// Keeps the claim of a primary whose target is not known now.
    fn located(&self, loaded: &Loaded, key: &Key, primary: &Option<Arc<Object>>, report: &Report) {
        let claims = matches!(loaded.revision.policy.writes, Writes::Kubeconfig(_));
        if !claims
            || report.target.is_some()
            || matches!(report.end, End::Gone | End::Ended(Class::Left))
        {
            return;
        }
        let woken = {
            let mut known = self.known.lock();
            let stamped = known.outputs.of(key).next().cloned();
            known
                .ownership
                .keep(Contender::of(key, primary.as_deref()), stamped.as_ref())
        };
        self.wake(woken);
    }

    /// Stage 9: publishes to the cluster and the log, each transition once.
    pub(crate) fn publish(&self, work: &WorkItem, uid: &str, report: &Report) {
        let key = &work.key;
        let told = Told {
            end: report.end,
            state: report.state,
            reason: report.reason.clone(),
            message: report.message.clone(),
            failures: report.failures,
            since_seconds: report.at_seconds,
            wrote: !report.writes.is_empty(),
        };
        let gone = report.end == End::Gone;
        if gone {
            let mut known = self.known.lock();
            known.fingerprints.remove(key);
            known.dependencies.remove(key);
            known.ends.remove(key);
            known
                .contention
                .remove(&(Arc::clone(&key.policy), report.primary.clone()));
        }
        let first = !self.known.lock().told.contains_key(key);
        // For `Applied` the earlier time is not needed.
        let earlier = (first && told.state != State::Applied)
            .then(|| self.since_before(key, &told))
            .flatten();
        let before = {
            let told_all = &mut self.known.lock().told;
            let mut lasting = told.clone().after(told_all.get(key));
            if let Some(since) = earlier {
                lasting.since_seconds = since;
            }
            if gone {
                told_all.remove(key)
            } else {
                told_all.insert(key.clone(), lasting)
            }
        };
        self.statuses.changed();
        let transition = match before {
            None => Some(First::Sight),
            Some(before) => told.differs(&before).then_some(First::Change),
        };
        telemetry::reconciled(work, report, transition);
        // `Unlocated` is part of the agent's start and is not published.
        let is_news = gone || report.end != End::Ended(Class::Unlocated);
        if is_news && !self.accounts.are_only_asked() {
            self.tell_primary(key, report, uid);
        }
    }

    /// Since when a primary has been in its state, as an earlier agent published it. A restart does not reset that
    /// time.
    fn since_before(&self, key: &Key, now: &Told) -> Option<i64> {
        self.statuses.found_since(key, now).or_else(|| {
            let before = self.connections.reported(&key.policy, &key.primary)?;
            let same = (before.state, before.reason.as_str()) == (now.state, now.reason.as_str());
            same.then(|| parse_rfc3339(&before.since)).flatten()
        })
    }

    /// Logs that a trigger guest ignored an update.
    pub(crate) fn ignored(&self, key: &Key) {
        telemetry::tell(&Signal::Ignored { key: key.clone() });
    }
}
