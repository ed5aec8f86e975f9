//! What a trial found right as it is: noted while other things change, and taken over at the swap, so that only the other
//! primaries are reconciled.

use super::Tried;
use crate::controller::Controller;
use crate::controller::queue::Queued;
use crate::controller::workqueue::Workqueue;
use crate::policies::active::Rehearsed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use transom_api::State;
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;
use transom_core::rollout::rehearsal::{Rehearsal, Settled};
use transom_core::work::{Cause, Key};

/// The rehearsals that are told what changes, until nobody has them any more.
#[derive(Default)]
pub(in crate::controller) struct Rehearsals(Mutex<Vec<Weak<Mutex<Rehearsal>>>>);

impl Rehearsals {
    /// One that is told what changes from now on.
    pub(super) fn begin(&self) -> Rehearsed {
        let rehearsed = Rehearsed::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&rehearsed));
        rehearsed
    }

    fn each(&self, tell: impl Fn(&mut Rehearsal)) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for one in all.iter().filter_map(Weak::upgrade) {
            tell(&mut lock(&one));
        }
    }

    /// An object changed, or may have; `version` is the one that it has now, if that is known. Told before any reconcile
    /// that depends on it is enqueued.
    pub(in crate::controller) fn changed(&self, object: &ObjectRef, version: Option<&str>) {
        self.each(|one| one.changed(object, version));
    }

    /// These steps are or were carried out, or tried.
    pub(in crate::controller) fn written(&self, steps: &[Step]) {
        let targets = || steps.iter().map(Step::target);
        self.each(|one| targets().for_each(|target| one.changed(target, None)));
    }

    /// It is not known what changed.
    pub(in crate::controller) fn all_changed(&self) {
        self.each(Rehearsal::all_changed);
    }
}

fn lock(rehearsed: &Rehearsed) -> MutexGuard<'_, Rehearsal> {
    rehearsed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controller {
    /// Keeps what this agent of a trial found right as it is. Moved, not copied: it is as large as the trial itself was.
    pub(super) fn settle(&self, rehearsed: &Rehearsed, tried: BTreeMap<Key, Tried>) {
        let (mut lock, now_seconds) = (self.memory.lock(), self.clock.now_seconds());
        let (memory, mut rehearsal) = (&mut *lock, self::lock(rehearsed));
        for (key, tried) in tried {
            // Of a set, an object that is new would not be noticed.
            let has_sets = memory.sets.has(&key);
            if tried.result.state != State::Applied || tried.writes() || has_sets {
                continue;
            }
            let (Some(last_seen), Some(objects)) =
                (memory.last_seen.remove(&key), memory.seen.remove(&key))
            else {
                continue;
            };
            let read = tried.account.inputs.into_iter();
            let read = read.map(|read| (read.object, read.version));
            let mut settled = Settled::new(last_seen, objects, read);
            settled.targets = memory.ownership.targets(&key).cloned();
            settled.ends_seconds = memory.ends.get(&key).copied();
            settled.ask_again_at = tried.account.again_after_ms.map(|after| {
                let after = i64::try_from(after.div_ceil(1_000)).unwrap_or(i64::MAX);
                now_seconds.saturating_add(after)
            });
            rehearsal.settle(key, settled);
        }
    }

    /// Enqueues every primary of a policy that the trial of its active revision did not find right as it is, or for which
    /// something changed since. The others are as if the active revision had reconciled them: from now on every change
    /// of what they rest on counts for them.
    pub(in crate::controller) fn enqueue_unsettled(
        &self,
        queue: &Workqueue,
        rehearsed: &Rehearsed,
    ) {
        let (primaries, left) = self.expect(&queue.loaded(), false);
        let mut primaries: BTreeSet<ObjectRef> = primaries.into_iter().collect();
        primaries.extend(left.into_iter().map(|key| (*key.primary).clone()));
        for primary in &primaries {
            let key = Key::new(&queue.policy, primary);
            // The lock is taken for each, so that no reconcile waits for all of them.
            if !self.take_over(queue, &key, rehearsed) {
                self.memory.lock().last_seen.remove(&key);
                queue.push(primary, Queued::Reconcile(Cause::Swapped), None);
            }
        }
        let policy = &*queue.policy;
        self.memory
            .lock()
            .last_seen
            .retain(|key, _| *key.policy != *policy || primaries.contains(&*key.primary));
    }

    /// Takes over what was found for a primary; false when it has to be reconciled.
    fn take_over(&self, queue: &Workqueue, key: &Key, rehearsed: &Rehearsed) -> bool {
        // A reconcile under way ends on the revision before, and may still write. One that begins later does not.
        if queue.loaded().revision.policy.suspend || queue.runs(&key.primary) {
            return false;
        }
        let ask_again_at = {
            // Whoever tells of a change tells the rehearsal first, and then takes the memory: it is noticed in one of them.
            let mut memory = self.memory.lock();
            let Some(settled) = lock(rehearsed).take(key) else {
                return false;
            };
            let last = memory.results.get(key);
            if last.is_none_or(|last| last.state != State::Applied)
                || memory.ownership.targets(key) != settled.targets.as_ref()
            {
                return false;
            }
            memory.dependencies.set(key, settled.objects.keys());
            memory.seen.insert(key.clone(), settled.objects);
            memory.sets.remove(key);
            memory.last_seen.insert(key.clone(), settled.last_seen);
            if let Some(ends) = settled.ends_seconds {
                memory.ends.insert(key.clone(), ends);
            }
            settled.ask_again_at
        };
        self.expire(queue, key);
        queue.forget(&key.primary, &Cause::Timer);
        if let Some(at) = ask_again_at {
            let after = at.saturating_sub(self.clock.now_seconds()).max(0);
            let after = Duration::from_secs(after.unsigned_abs());
            queue.push(&key.primary, Queued::Reconcile(Cause::Timer), Some(after));
        }
        true
    }
}
