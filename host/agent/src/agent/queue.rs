//! One entry per subject of one policy, each cause with the time from which it may run. Never runs one itself,
//! and never gives out a subject that is being evaluated.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;
use transom_core::reference::ObjectRef;
use transom_core::work::Why;

/// Why a subject is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was updated: whoever takes it compares it with what was judged last, and asks the trigger guest.
    Updated,
    /// It is evaluated without asking.
    Evaluate(Why),
}

impl Cause {
    /// Causes of one word are one entry.
    fn slot(&self) -> &'static str {
        match self {
            Self::Updated => "Updated",
            Self::Evaluate(why) => why.word(),
        }
    }
}

/// What a worker takes from the queue.
#[derive(Debug)]
pub(crate) struct Item {
    /// The subject.
    pub(crate) subject: ObjectRef,
    /// Every cause whose time has come.
    pub(crate) causes: Vec<Cause>,
    /// Since when there has been something to do.
    pub(crate) since: Instant,
}

impl Item {
    /// Whether time alone calls for it: another try, or a time that a guest asked for.
    pub(crate) fn is_timed(&self) -> bool {
        self.causes.iter().all(|cause| matches!(cause, Cause::Evaluate(Why::Retry | Why::Timer)))
    }

    /// Why it is evaluated without asking; nothing when only updates put it here.
    pub(crate) fn why(&self) -> Option<&Why> {
        self.causes.iter().find_map(|cause| match cause {
            Cause::Updated => None,
            Cause::Evaluate(why) => Some(why),
        })
    }
}

/// Subjects that wait for their time, and those that are being evaluated.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<ObjectRef, BTreeMap<&'static str, Entry>>,
    by_time: BTreeSet<(Due, ObjectRef)>,
    running: HashSet<ObjectRef>,
}

/// When an entry may run; `None` sorts first and means at once.
type Due = Option<Instant>;

/// One cause of one subject.
#[derive(Debug)]
struct Entry {
    cause: Cause,
    due: Due,
    /// Since when there has been something to do: for a timer its time, for another try what the first one was for.
    since: Instant,
}

impl Entry {
    /// Since when it may run.
    fn waits_since(&self) -> Instant {
        self.due.map_or(self.since, |due| due.max(self.since))
    }
}

impl Queue {
    /// Puts a subject in. Causes add up, each with its own time; the latest word on a cause holds,
    /// unless it already may run at once.
    pub(crate) fn push(&mut self, subject: &ObjectRef, cause: Cause, due: Due, since: Instant) {
        let causes = self.waiting.entry(subject.clone()).or_default();
        let before = earliest(causes);
        let slot = cause.slot();
        if causes.get(slot).is_none_or(|held| held.due.is_some()) {
            causes.insert(slot, Entry { cause, due, since });
        }
        let after = earliest(causes);
        if before != after {
            before.map(|due| self.by_time.remove(&(due, subject.clone())));
            after.map(|due| self.by_time.insert((due, subject.clone())));
        }
    }

    /// Takes the first subject whose time has come and that is not being evaluated, with the causes that are due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Item> {
        let is_due = |due: &Due| due.is_none_or(|due| due <= now);
        let mut ready = self.by_time.iter().take_while(|(due, _)| is_due(due));
        let (due, subject) = ready.find(|(_, subject)| !self.running.contains(subject))?.clone();
        self.by_time.remove(&(due, subject.clone()));
        let (causes, later): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.waiting.remove(&subject)?.into_iter().partition(|(_, entry)| is_due(&entry.due));
        if let Some(next) = earliest(&later) {
            self.by_time.insert((next, subject.clone()));
            self.waiting.insert(subject.clone(), later);
        }
        self.running.insert(subject.clone());
        let since = causes.values().map(|entry| entry.since).min().unwrap_or(now);
        Some(Item { subject, causes: causes.into_values().map(|entry| entry.cause).collect(), since })
    }

    /// The evaluation of a subject ended.
    pub(crate) fn done(&mut self, subject: &ObjectRef) {
        self.running.remove(subject);
    }

    /// Whether a cause of a subject is still to come.
    pub(crate) fn awaits(&self, subject: &ObjectRef, why: &Why) -> bool {
        self.waiting.get(subject).is_some_and(|causes| causes.contains_key(why.word()))
    }

    /// Forgets one cause that is still to come: its reason has gone. What may run at once came to be known since.
    pub(crate) fn forget(&mut self, subject: &ObjectRef, why: &Why) {
        let Some(causes) = self.waiting.get_mut(subject) else { return };
        let before = earliest(causes);
        if causes.get(why.word()).is_some_and(|entry| entry.due.is_some()) {
            causes.remove(why.word());
        }
        let after = earliest(causes);
        before.map(|due| self.by_time.remove(&(due, subject.clone())));
        match after {
            Some(due) => drop(self.by_time.insert((due, subject.clone()))),
            None => drop(self.waiting.remove(subject)),
        }
    }

    /// How long until something may run; nothing when only an end or a push can change that.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut later = self.by_time.iter().filter(|(_, subject)| !self.running.contains(subject));
        later.next().map(|(due, _)| due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now)))
    }

    /// How many run or may run now.
    pub(crate) fn left(&self, now: Instant) -> usize {
        let due = self.by_time.iter().take_while(|(due, _)| due.is_none_or(|due| due <= now));
        due.count() + self.running.len()
    }

    /// How long the subject that waits longest has waited since it may run.
    pub(crate) fn oldest(&self, now: Instant) -> Duration {
        let due = self.by_time.iter().take_while(|(due, _)| due.is_none_or(|due| due <= now));
        let entries = due.filter_map(|(_, subject)| self.waiting.get(subject)).flat_map(BTreeMap::values);
        entries.map(Entry::waits_since).min().map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
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
fn earliest(causes: &BTreeMap<&'static str, Entry>) -> Option<Due> {
    causes.values().map(|entry| entry.due).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> ObjectRef {
        ObjectRef::local("v1", "Thing", None, name)
    }

    #[test]
    fn each_cause_has_its_own_time() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let later = now + Duration::from_secs(60);
        queue.push(&subject("a"), Cause::Evaluate(Why::Audit), Some(later), later);
        assert!(queue.take(now).is_none());
        assert_eq!(queue.wait(now), Some(Duration::from_secs(60)));
        queue.push(&subject("a"), Cause::Updated, None, now);
        assert_eq!(queue.oldest(now + Duration::from_secs(5)), Duration::from_secs(5));
        let item = queue.take(now).unwrap();
        assert_eq!(item.why(), None, "the audit is not due, so the trigger guest is asked");
        queue.done(&item.subject);
        queue.push(&subject("a"), Cause::Updated, None, now);
        let item = queue.take(now + Duration::from_secs(61)).unwrap();
        assert_eq!(item.causes.len(), 2);
        assert!(!item.is_timed(), "an update and an audit are more than time");
        assert_eq!(item.why(), Some(&Why::Audit));
        assert_eq!(item.since, now, "the update came first");
        assert_eq!(queue.wait(now), None);
    }

    #[test]
    fn a_later_word_moves_a_timer_but_never_what_may_run_at_once() {
        let now = Instant::now();
        let timer = || Cause::Evaluate(Why::Timer);
        let mut queue = Queue::default();
        queue.push(&subject("a"), timer(), Some(now + Duration::from_secs(1)), now);
        queue.push(&subject("a"), timer(), Some(now + Duration::from_secs(9)), now);
        assert_eq!(queue.wait(now), Some(Duration::from_secs(9)));
        queue.push(&subject("a"), timer(), None, now);
        queue.push(&subject("a"), timer(), Some(now + Duration::from_secs(9)), now);
        assert_eq!(queue.wait(now), Some(Duration::ZERO));
        queue.forget(&subject("a"), &Why::Timer);
        assert_eq!(queue.wait(now), Some(Duration::ZERO), "what may run at once was said after the timer was set");
        drop(queue.take(now));
        queue.done(&subject("a"));
        queue.push(&subject("a"), timer(), Some(now + Duration::from_secs(9)), now);
        queue.forget(&subject("a"), &Why::Timer);
        assert!(queue.is_idle(now) && queue.waiting.is_empty() && queue.by_time.is_empty());
    }

    #[test]
    fn another_try_is_as_old_as_the_first_but_waits_only_since_it_may_run() {
        let first = Instant::now();
        let (due, now) = (first + Duration::from_secs(300), first + Duration::from_secs(302));
        let mut queue = Queue::default();
        queue.push(&subject("a"), Cause::Evaluate(Why::Retry), Some(due), first);
        assert_eq!(queue.oldest(now), Duration::from_secs(2));
        let item = queue.take(now).unwrap();
        assert!(item.is_timed());
        assert_eq!(item.since, first);
        queue.done(&item.subject);
        queue.push(&subject("a"), Cause::Evaluate(Why::Retry), Some(due), first);
        queue.push(&subject("a"), Cause::Updated, None, now);
        assert!(!queue.take(now).unwrap().is_timed(), "a change came beside the other try");
    }

    #[test]
    fn a_running_subject_waits_for_its_end() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push(&subject("a"), Cause::Evaluate(Why::Appeared), None, now);
        let first = queue.take(now).unwrap();
        queue.push(&subject("a"), Cause::Updated, None, now);
        queue.push(&subject("b"), Cause::Updated, None, now);
        assert_eq!(queue.take(now).unwrap().subject, subject("b"));
        assert!(queue.take(now).is_none());
        assert!(!queue.is_idle(now));
        queue.done(&first.subject);
        queue.done(&subject("b"));
        assert_eq!(queue.take(now).unwrap().subject, subject("a"));
        queue.done(&subject("a"));
        assert!(queue.is_idle(now));
    }
}
