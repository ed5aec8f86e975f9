//! The primaries that a trial found up to date: recorded while other objects change, and taken over at the swap, so
//! that only the other primaries are reconciled.

use super::TriedPrimary;
use crate::controller::Controller;
use crate::controller::queue::Queued;
use crate::controller::workqueue::Workqueue;
use crate::policies::active::Rehearsed;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use transom_api::State;
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;
use transom_core::rollout::rehearsal::{Rehearsal, Settled};
use transom_core::share::lock::MutexExt as _;
use transom_core::work::{Cause, Key};

/// The rehearsals to notify of changes, as long as someone holds them.
#[derive(Default)]
pub(in crate::controller) struct Rehearsals(Mutex<Vec<Weak<Mutex<Rehearsal>>>>);

impl Rehearsals {
    /// One that is told what changes from now on.
    pub(super) fn begin(&self) -> Rehearsed {
        let rehearsed = Rehearsed::default();
        let mut all = self.0.locked();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&rehearsed));
        rehearsed
    }

    fn each(&self, tell: impl Fn(&mut Rehearsal)) {
        let all = self.0.locked();
        for one in all.iter().filter_map(Weak::upgrade) {
            tell(&mut one.locked());
        }
    }

    /// An object changed, or may have; `version` is the one that it has now, if that is known. Told before any
    /// reconcile that depends on it is enqueued.
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

impl Controller {
    /// Moves the primaries that this trial found up to date into the rehearsal. A copy would take as much memory as the
    /// trial itself.
    pub(super) fn settle(&self, rehearsed: &Rehearsed, tried: BTreeMap<Key, TriedPrimary>) {
        let (mut memory, now_seconds) = (self.memory.lock(), self.clock.now_seconds());
        for (key, tried) in tried {
            // A rehearsal would not notice a new member of a set.
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
            settled.sightings = memory.sightings.of(settled.objects.keys());
            settled.targets = memory.ownership.targets(&key).cloned();
            settled.ends_seconds = memory.ends.get(&key).copied();
            settled.ask_again_at = tried.account.again_after_ms.map(|after| {
                let after = i64::try_from(after.div_ceil(1_000)).unwrap_or(i64::MAX);
                now_seconds.saturating_add(after)
            });
            // Whoever tells of a change waits for one primary at most.
            rehearsed.locked().settle(key, settled);
        }
    }

    /// Takes over the result of the trial for a primary, as if the active revision had reconciled it: from now on every
    /// change of what it read enqueues it. Returns false if the primary must be reconciled.
    pub(in crate::controller) fn take_over(
        &self,
        queue: &Workqueue,
        key: &Key,
        rehearsed: &Rehearsed,
    ) -> bool {
        // A reconcile under way ends on the revision before, and may still write. One that begins later does not.
        if queue.loaded().revision.policy.suspend || queue.runs(&key.primary) {
            return false;
        }
        let settled = {
            // A change notifies the rehearsal first, and then locks the memory: so one of the two notices it.
            let mut memory = self.memory.lock();
            let Some(mut settled) = rehearsed.locked().take(key) else {
                return false;
            };
            let last = memory.results.get(key);
            if last.is_none_or(|last| last.state != State::Applied)
                || memory.ownership.targets(key) != settled.targets.as_ref()
                || memory.ownership.expects(key)
            {
                return false;
            }
            memory.dependencies.set(key, settled.objects.keys());
            memory.sightings.adopt(mem::take(&mut settled.sightings));
            memory.sets.remove(key);
            // What is replaced is freed without the lock.
            match memory.seen.get_mut(key) {
                Some(seen) => mem::swap(seen, &mut settled.objects),
                None => drop(
                    memory
                        .seen
                        .insert(key.clone(), mem::take(&mut settled.objects)),
                ),
            }
            match memory.last_seen.get_mut(key) {
                Some(last) => mem::swap(last, &mut settled.last_seen),
                None => drop(
                    memory
                        .last_seen
                        .insert(key.clone(), settled.last_seen.clone()),
                ),
            }
            memory.ends_at(key, settled.ends_seconds);
            settled
        };
        self.expire(queue, key);
        queue.forget(&key.primary, &Cause::Timer);
        if let Some(at) = settled.ask_again_at {
            let after = at.saturating_sub(self.clock.now_seconds()).max(0);
            let after = Duration::from_secs(after.unsigned_abs());
            queue.push(&key.primary, Queued::Reconcile(Cause::Timer), Some(after));
        }
        true
    }
}
