//! The workqueue of one policy: one entry per primary, each cause with the time from which it may run. The
//! primary that has been due for longest comes first, so that primaries which change all the time starve no other one.
//! A primary that is being reconciled is not handed out again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_core::reference::ObjectRef;
use transom_core::work::Cause;

/// How long after a change of an object of which only the name is kept a reconcile begins: others may change it often.
pub(crate) const EDITED: Duration = Duration::from_secs(5);

/// Why a primary is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It was updated: the worker compares it with the state last seen, and asks the trigger guest.
    Updated,
    /// It is reconciled without asking the trigger guest.
    Reconcile(Cause),
}

impl Queued {
    /// The key of a cause: the queue keeps one entry per primary and key.
    fn slot(&self) -> &'static str {
        match self {
            Self::Updated => "Updated",
            Self::Reconcile(cause) => cause.as_str(),
        }
    }
}

/// What a worker takes from the queue.
#[derive(Debug)]
pub(crate) struct Request {
    /// The primary.
    pub(crate) primary: Arc<ObjectRef>,
    /// Every cause that is due.
    pub(crate) causes: Vec<Queued>,
    /// When the work came up.
    pub(crate) since: Instant,
}

impl Request {
    /// Whether time alone calls for it: a retry, or a time that a guest asked for.
    pub(crate) fn is_timed(&self) -> bool {
        self.causes.iter().all(|cause| {
            matches!(
                cause,
                Queued::Reconcile(Cause::Retry | Cause::Timer | Cause::Expired)
            )
        })
    }

    /// Why it is reconciled without asking the trigger guest; `None` when only updates put it here.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        self.causes.iter().find_map(|cause| match cause {
            Queued::Updated => None,
            Queued::Reconcile(cause) => Some(cause),
        })
    }
}

/// Primaries that wait for their time, and those that are being reconciled.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<Arc<ObjectRef>, Causes>,
    /// By the time since when each may run.
    by_time: BTreeSet<(Instant, Arc<ObjectRef>)>,
    running: HashSet<Arc<ObjectRef>>,
}

/// The causes of one primary, each by its slot.
type Causes = BTreeMap<&'static str, Entry>;

/// When an entry may run; `None` means at once.
type DueTime = Option<Instant>;

/// One cause of one primary.
#[derive(Debug)]
struct Entry {
    cause: Queued,
    due: DueTime,
    /// When the work came up: for a timer its time, for a retry when the work of the first attempt came up.
    since: Instant,
}

impl Entry {
    /// Since when it may run.
    fn waits_since(&self) -> Instant {
        self.due.map_or(self.since, |due| due.max(self.since))
    }
}

impl Queue {
    /// Adds a cause of a primary. Each cause keeps its own time. Adding it again replaces that time, unless it already
    /// may run at once.
    pub(crate) fn push(
        &mut self,
        primary: &ObjectRef,
        cause: Queued,
        due: DueTime,
        since: Instant,
    ) {
        let slot = cause.slot();
        self.change(primary, |causes| {
            if causes.get(slot).is_none_or(|held| held.due.is_some()) {
                causes.insert(slot, Entry { cause, due, since });
            }
        });
    }

    /// Changes the causes of a primary, and with them the time from which it may run.
    fn change(&mut self, primary: &ObjectRef, change: impl FnOnce(&mut Causes)) {
        let known = self.waiting.get_key_value(primary);
        let known = known.map(|(known, _)| known);
        let known = known.or_else(|| self.running.get(primary)).map(Arc::clone);
        let primary = known.unwrap_or_else(|| Arc::new(primary.clone()));
        let causes = self.waiting.entry(Arc::clone(&primary)).or_default();
        let before = earliest(causes);
        change(causes);
        let after = earliest(causes);
        if after.is_none() {
            self.waiting.remove(&primary);
        }
        if before != after {
            before.map(|since| self.by_time.remove(&(since, Arc::clone(&primary))));
            after.map(|since| self.by_time.insert((since, primary)));
        }
    }

    /// Takes the first primary whose time has come and that is not being reconciled, with the causes that are due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Request> {
        let mut ready = self.by_time.iter().take_while(|(since, _)| *since <= now);
        let (since, primary) = ready
            .find(|(_, primary)| !self.running.contains(primary))?
            .clone();
        self.by_time.remove(&(since, Arc::clone(&primary)));
        let causes = self.waiting.remove(&primary)?.into_iter();
        let is_due = |entry: &Entry| entry.waits_since() <= now;
        let (causes, later): (Causes, Causes) = causes.partition(|(_, entry)| is_due(entry));
        if let Some(next) = earliest(&later) {
            self.by_time.insert((next, Arc::clone(&primary)));
            self.waiting.insert(Arc::clone(&primary), later);
        }
        self.running.insert(Arc::clone(&primary));
        let since = causes.values().map(|entry| entry.since).min();
        Some(Request {
            primary,
            causes: causes.into_values().map(|entry| entry.cause).collect(),
            since: since.unwrap_or(now),
        })
    }

    /// The reconcile of a primary ended.
    pub(crate) fn done(&mut self, primary: &ObjectRef) {
        self.running.remove(primary);
    }

    /// Whether a primary is being reconciled.
    pub(crate) fn runs(&self, primary: &ObjectRef) -> bool {
        self.running.contains(primary)
    }

    /// Whether a cause of a primary is in the queue.
    pub(crate) fn awaits(&self, primary: &ObjectRef, cause: &Cause) -> bool {
        let causes = self.waiting.get(primary);
        causes.is_some_and(|causes| causes.contains_key(cause.as_str()))
    }

    /// Removes a delayed cause that no longer applies. One that may run at once stays: it came up after the delayed one
    /// was set.
    pub(crate) fn forget(&mut self, primary: &ObjectRef, cause: &Cause) {
        if self.awaits(primary, cause) {
            self.change(primary, |causes| {
                causes.retain(|slot, entry| *slot != cause.as_str() || entry.due.is_none());
            });
        }
    }

    /// Brings forward what waits for a time of day, but not into the past. What waits for some time to pass keeps its
    /// time.
    pub(crate) fn advance(&mut self, by: Duration, now: Instant) {
        let of_clock = [Cause::Timer, Cause::Expired].map(|cause| cause.as_str());
        let waiting: Vec<_> = self.waiting.keys().map(Arc::clone).collect();
        for primary in waiting {
            self.change(&primary, |causes| {
                for (_, entry) in causes
                    .iter_mut()
                    .filter(|(slot, _)| of_clock.contains(slot))
                {
                    let Some(due) = entry.due else { continue };
                    let earlier = due.checked_sub(by).map_or(now, |due| due.max(now)).min(due);
                    entry.due = Some(earlier);
                    entry.since = entry.since.min(earlier);
                }
            });
        }
    }

    /// How long until something may run; `None` when only `done` or `push` can change that.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut later = self.by_time.iter();
        let (since, _) = later.find(|(_, primary)| !self.running.contains(primary))?;
        Some(since.saturating_duration_since(now))
    }

    /// The primaries that wait and may run now, even those that are still being reconciled.
    fn due(&self, now: Instant) -> impl Iterator<Item = &ObjectRef> {
        let waiting = self
            .by_time
            .iter()
            .take_while(move |(since, _)| *since <= now);
        waiting.map(|(_, primary)| &**primary)
    }

    /// How many run or may run now.
    pub(crate) fn left(&self, now: Instant) -> usize {
        self.due(now).count() + self.running.len()
    }

    /// How long the primary that waits longest has waited since it may run.
    pub(crate) fn oldest(&self, now: Instant) -> Duration {
        let oldest = self.by_time.first();
        oldest.map_or(Duration::ZERO, |(since, _)| {
            now.saturating_duration_since(*since)
        })
    }

    /// Whether nothing runs.
    pub(crate) fn is_resting(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether nothing runs and nothing may run now.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.running.is_empty() && self.wait(now).is_none_or(|wait| !wait.is_zero())
    }
}

/// The earliest time of any cause.
fn earliest(causes: &Causes) -> Option<Instant> {
    causes.values().map(Entry::waits_since).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(name: &str) -> ObjectRef {
        ObjectRef::local("v1", "Thing", None, name)
    }

    #[test]
    fn each_cause_has_its_own_time() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let later = now + Duration::from_secs(60);
        queue.push(
            &primary("a"),
            Queued::Reconcile(Cause::Resync),
            Some(later),
            later,
        );
        assert!(queue.take(now).is_none());
        assert_eq!(queue.wait(now), Some(Duration::from_secs(60)));
        queue.push(&primary("a"), Queued::Updated, None, now);
        assert_eq!(
            queue.oldest(now + Duration::from_secs(5)),
            Duration::from_secs(5)
        );
        let request = queue.take(now).unwrap();
        assert_eq!(
            request.cause(),
            None,
            "the resync is not due, so the trigger guest is asked"
        );
        queue.done(&request.primary);
        queue.push(&primary("a"), Queued::Updated, None, now);
        let request = queue.take(now + Duration::from_secs(61)).unwrap();
        assert_eq!(request.causes.len(), 2);
        assert!(
            !request.is_timed(),
            "an update and a resync are more than time"
        );
        assert_eq!(request.cause(), Some(&Cause::Resync));
        assert_eq!(request.since, now, "the update came first");
        assert_eq!(queue.wait(now), None);
    }

    #[test]
    fn a_new_time_moves_a_timer_but_not_a_request_that_is_due() {
        let now = Instant::now();
        let timer = || Queued::Reconcile(Cause::Timer);
        let mut queue = Queue::default();
        queue.push(
            &primary("a"),
            timer(),
            Some(now + Duration::from_secs(1)),
            now,
        );
        queue.push(
            &primary("a"),
            timer(),
            Some(now + Duration::from_secs(9)),
            now,
        );
        assert_eq!(queue.wait(now), Some(Duration::from_secs(9)));
        queue.push(&primary("a"), timer(), None, now);
        queue.push(
            &primary("a"),
            timer(),
            Some(now + Duration::from_secs(9)),
            now,
        );
        assert_eq!(queue.wait(now), Some(Duration::ZERO));
        queue.forget(&primary("a"), &Cause::Timer);
        assert_eq!(
            queue.wait(now),
            Some(Duration::ZERO),
            "what may run at once was said after the timer was set"
        );
        drop(queue.take(now));
        queue.done(&primary("a"));
        queue.push(
            &primary("a"),
            timer(),
            Some(now + Duration::from_secs(9)),
            now,
        );
        queue.forget(&primary("a"), &Cause::Timer);
        assert!(queue.is_idle(now) && queue.waiting.is_empty() && queue.by_time.is_empty());
    }

    #[test]
    fn a_corrected_clock_brings_forward_what_waits_for_a_time_of_day() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        for (cause, wait) in [
            (Cause::Timer, 100),
            (Cause::Expired, 100),
            (Cause::Retry, 300),
            (Cause::Resync, 300),
        ] {
            let mut queue = Queue::default();
            let (name, cause) = (cause.as_str(), Queued::Reconcile(cause));
            queue.push(&primary("a"), cause, Some(at(300)), at(300));
            queue.advance(Duration::from_secs(200), now);
            assert_eq!(queue.wait(now), Some(Duration::from_secs(wait)), "{name}");
            // It is due now, and does not count as if it had waited since then.
            queue.advance(Duration::from_secs(10_800), at(50));
            assert_eq!(queue.oldest(at(50)), Duration::ZERO, "{name}");
            let is_due = queue.take(at(50)).is_some();
            assert_eq!(is_due, wait == 100, "{name}");
        }
    }

    #[test]
    fn a_retry_counts_from_the_first_attempt_but_waits_from_its_due_time() {
        let first = Instant::now();
        let (due, now) = (
            first + Duration::from_secs(300),
            first + Duration::from_secs(302),
        );
        let mut queue = Queue::default();
        queue.push(
            &primary("a"),
            Queued::Reconcile(Cause::Retry),
            Some(due),
            first,
        );
        assert_eq!(queue.oldest(now), Duration::from_secs(2));
        let request = queue.take(now).unwrap();
        assert!(request.is_timed());
        assert_eq!(request.since, first);
        queue.done(&request.primary);
        queue.push(
            &primary("a"),
            Queued::Reconcile(Cause::Retry),
            Some(due),
            first,
        );
        queue.push(&primary("a"), Queued::Updated, None, now);
        assert!(
            !queue.take(now).unwrap().is_timed(),
            "a change came beside the other try"
        );
    }

    #[test]
    fn who_may_run_longest_comes_first_whatever_its_name_and_cause() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut queue = Queue::default();
        queue.push(&primary("z"), Queued::Updated, None, at(1));
        let expired = Queued::Reconcile(Cause::Expired);
        queue.push(&primary("y"), expired, Some(at(2)), at(2));
        queue.push(&primary("a"), Queued::Updated, None, at(3));
        let mut taken = Vec::new();
        while let Some(request) = queue.take(at(9)) {
            // It changes on: that is news, and comes after those that wait.
            queue.done(&request.primary);
            if taken.len() < 2 {
                queue.push(&request.primary, Queued::Updated, None, at(9));
            }
            taken.push(request.primary.name.clone());
        }
        assert_eq!(taken, ["z", "y", "a", "y", "z"]);
    }

    #[test]
    fn a_running_primary_is_not_started_twice() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push(&primary("a"), Queued::Reconcile(Cause::Added), None, now);
        let first = queue.take(now).unwrap();
        queue.push(&primary("a"), Queued::Updated, None, now);
        queue.push(&primary("b"), Queued::Updated, None, now);
        assert_eq!(*queue.take(now).unwrap().primary, primary("b"));
        assert!(queue.take(now).is_none());
        assert!(!queue.is_idle(now));
        queue.done(&first.primary);
        queue.done(&primary("b"));
        assert_eq!(*queue.take(now).unwrap().primary, primary("a"));
        queue.done(&primary("a"));
        assert!(queue.is_idle(now));
    }
}
