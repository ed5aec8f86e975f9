//! One item per subject of one policy, each with the time from which it may run. Never runs one itself,
//! and never gives out a subject that is being evaluated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use transom_core::reference::ObjectRef;

/// Why a subject is to be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Seen for the first time, or the agent started.
    Appeared,
    /// It changed: the trigger guest is asked first.
    Changed,
    /// It is gone.
    Gone,
    /// An input, a target or an own output changed.
    Input,
    /// A target that it claims was released.
    Released,
    /// A guest asked for it, or a retry is due.
    Timer,
    /// Everything is looked at now and then.
    Audit,
    /// Its policy has a new revision.
    Swapped,
}

impl Cause {
    /// Whether the trigger guest is asked before the evaluation: only for updates of the subject.
    fn asks(self) -> bool {
        matches!(self, Self::Changed)
    }
}

/// What a worker takes from the queue.
#[derive(Debug)]
pub(crate) struct Item {
    /// The subject.
    pub(crate) subject: ObjectRef,
    /// Every cause since the last evaluation.
    pub(crate) causes: BTreeSet<Cause>,
}

impl Item {
    /// Whether nothing but updates of the subject put it here.
    pub(crate) fn asks(&self) -> bool {
        self.causes.iter().all(|cause| cause.asks())
    }
}

/// Subjects that wait for their time, and those that are being evaluated.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<ObjectRef, BTreeMap<Cause, Due>>,
    by_time: BTreeSet<(Due, ObjectRef)>,
    running: BTreeSet<ObjectRef>,
}

/// When an item may run; `None` sorts first and means at once.
type Due = Option<Instant>;

impl Queue {
    /// Puts a subject in. Causes add up, each with its own time; the latest word on a cause holds,
    /// unless it already may run at once.
    pub(crate) fn push(&mut self, subject: &ObjectRef, cause: Cause, due: Due) {
        let causes = self.waiting.entry(subject.clone()).or_default();
        let before = causes.values().min().copied();
        let held = causes.entry(cause).or_insert(due);
        if held.is_some() {
            *held = due;
        }
        let after = causes.values().min().copied();
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
            self.waiting.remove(&subject)?.into_iter().partition(|(_, due)| is_due(due));
        if let Some(next) = later.values().min() {
            self.by_time.insert((*next, subject.clone()));
            self.waiting.insert(subject.clone(), later);
        }
        self.running.insert(subject.clone());
        Some(Item { subject, causes: causes.into_keys().collect() })
    }

    /// Forgets every cause of a subject that is still to come.
    pub(crate) fn forget(&mut self, subject: &ObjectRef) {
        if let Some(due) = self.waiting.remove(subject).and_then(|causes| causes.into_values().min()) {
            self.by_time.remove(&(due, subject.clone()));
        }
    }

    /// The evaluation of a subject ended.
    pub(crate) fn done(&mut self, subject: &ObjectRef) {
        self.running.remove(subject);
    }

    /// How long until something may run; nothing when only an end or a push can change that.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut later = self.by_time.iter().filter(|(_, subject)| !self.running.contains(subject));
        later.next().map(|(due, _)| due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now)))
    }

    /// Whether nothing runs and nothing may run now.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.running.is_empty() && self.wait(now).is_none_or(|wait| !wait.is_zero())
    }

    /// How many wait or run.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }
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
        queue.push(&subject("a"), Cause::Audit, Some(now + Duration::from_secs(60)));
        assert!(queue.take(now).is_none());
        assert_eq!(queue.wait(now), Some(Duration::from_secs(60)));
        queue.push(&subject("a"), Cause::Changed, None);
        let item = queue.take(now).unwrap();
        assert!(item.asks(), "the audit is not due, so the trigger guest is asked");
        queue.done(&item.subject);
        queue.push(&subject("a"), Cause::Changed, None);
        let item = queue.take(now + Duration::from_secs(61)).unwrap();
        assert_eq!(item.causes, BTreeSet::from([Cause::Changed, Cause::Audit]));
        assert!(!item.asks());
        assert_eq!(queue.wait(now), None);
    }

    #[test]
    fn a_later_word_moves_a_timer_but_never_what_may_run_at_once() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push(&subject("a"), Cause::Timer, Some(now + Duration::from_secs(1)));
        queue.push(&subject("a"), Cause::Timer, Some(now + Duration::from_secs(9)));
        assert_eq!(queue.wait(now), Some(Duration::from_secs(9)));
        queue.push(&subject("a"), Cause::Timer, None);
        queue.push(&subject("a"), Cause::Timer, Some(now + Duration::from_secs(9)));
        assert_eq!(queue.wait(now), Some(Duration::ZERO));
        queue.forget(&subject("a"));
        assert!(queue.is_idle(now) && queue.len() == 0);
    }

    #[test]
    fn a_running_subject_waits_for_its_end() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push(&subject("a"), Cause::Appeared, None);
        let first = queue.take(now).unwrap();
        queue.push(&subject("a"), Cause::Changed, None);
        queue.push(&subject("b"), Cause::Changed, None);
        assert_eq!(queue.take(now).unwrap().subject, subject("b"));
        assert!(queue.take(now).is_none());
        assert!(!queue.is_idle(now));
        queue.done(&first.subject);
        queue.done(&subject("b"));
        let again = queue.take(now).unwrap();
        assert_eq!((again.asks(), again.subject), (true, subject("a")));
        queue.done(&subject("a"));
        assert!(queue.is_idle(now));
        assert_eq!(queue.len(), 0);
    }
}
