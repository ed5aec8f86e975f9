//! What the agent knows besides the objects of the clusters. It is in memory only and can be rebuilt. The lock is not
//! held across an `await`.

mod last_result;
mod pause;
mod shared;
mod writes;

use crate::controller::queue::Queued;
pub(crate) use last_result::LastResult;
pub(crate) use pause::Pause;
pub(crate) use shared::SharedMemory;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use transom_core::contract::decide::FailedWrite;
use transom_core::dependencies::{DependencyIndex, Outputs};
use transom_core::digest::Digest;
use transom_core::inputs::seen::{Fingerprints, Observed, Seen, WakeDecision};
use transom_core::inputs::sets::Sets;
use transom_core::inputs::sightings::Sightings;
use transom_core::metrics::{self, CopyAttempt, CountedAttempt};
use transom_core::object::Object;
use transom_core::ownership::{Contender, OwnershipIndex};
use transom_core::plan::contention::Contentions;
use transom_core::plan::write_limit::WriteLimiter;
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::share::reconcile_limit::ReconcileLimiter;
use transom_core::stamp::Stamp;
use transom_core::trigger::LastSeen;
use transom_core::work::{Cause, Key};
pub(crate) use writes::written;

/// What a change of an object concerns.
#[derive(Debug, Default)]
pub(crate) struct Concerned {
    /// The reconciles that it calls for, each once, also where one read the object by itself and in a set: the second
    /// could come when it is under way.
    pub(crate) keys: BTreeSet<Key>,
    /// Those to schedule because a time with an age limit changed, each with its time in seconds since 1970.
    pub(crate) moved: Vec<(Key, i64)>,
}

/// Ownership, dependencies, own outputs, and the state and result of each primary's last reconcile.
#[derive(Default)]
pub(crate) struct Memory {
    /// Who wants which target.
    pub(crate) ownership: OwnershipIndex,
    /// Which reconcile depends on which object.
    pub(crate) dependencies: DependencyIndex,
    /// What each reconcile saw of the objects that it depends on.
    pub(crate) seen: HashMap<Key, BTreeMap<ObjectRef, Seen>>,
    /// When the agent saw fields change, for guests that ask for a field by that time.
    pub(crate) sightings: Sightings,
    /// Which reconcile depends on which set of objects.
    pub(crate) sets: Sets,
    /// Which objects bear the agent's stamp.
    pub(crate) outputs: Outputs,
    /// Objects that their policy does not select and that bear its finalizer, as they were found at a start.
    pub(crate) deselected: BTreeSet<Key>,
    /// How often in a row a primary was reconciled for its own writes.
    pub(crate) own_wakes: BTreeMap<Key, u8>,
    /// Each primary as its policy saw it last.
    pub(crate) last_seen: HashMap<Key, LastSeen>,
    /// The uid of each primary of policies that make objects on other connections, as it was last there.
    pub(crate) uids: HashMap<Key, Box<str>>,
    /// How often other writers overwrote what a policy wrote.
    pub(crate) contentions: Arc<Contentions>,
    /// The writes of the last minute, to limit them.
    pub(crate) write_limiter: WriteLimiter,
    /// How often each primary was reconciled in the last minute.
    pub(crate) often: ReconcileLimiter,
    /// Which key is writing an object now, and what a watch last reported of the object since then.
    writing: HashMap<ObjectRef, (Key, Option<Option<Digest>>)>,
    /// The objects that were written, and the policies that wrote them; `None` unless a command records them.
    pub(crate) written: Option<BTreeMap<ObjectRef, BTreeSet<Arc<str>>>>,
    /// The reconciles and their causes; `None` unless a command records them.
    pub(crate) journal: Option<Vec<HistoryEntry>>,
    /// When the next certificate expires in what was made for each primary, in seconds since 1970.
    pub(crate) ends: BTreeMap<Key, i64>,
    /// The write that failed in the last reconcile of each primary for which one did.
    failed_writes: HashMap<Key, FailedWrite>,
    /// The result of each primary's last reconcile.
    pub(crate) results: BTreeMap<Key, LastResult>,
    /// The last attempt that was counted for each primary.
    pub(crate) counted: HashMap<Key, CountedAttempt>,
}

impl Memory {
    /// Whether it can be kept when one more field of an object changes, beside those that reconciles ask for; `now` is
    /// what the present one saw of it.
    pub(crate) fn can_observe(
        &mut self,
        object: &ObjectRef,
        field: &str,
        now: Option<&Seen>,
    ) -> bool {
        let (dependencies, seen) = (&self.dependencies, &self.seen);
        self.sightings.has_room(object, field, |field| {
            let before = dependencies.concerned(object);
            let before = before.filter_map(|key| seen.get(key)?.get(object));
            before.chain(now).any(|seen| seen.observes(field))
        })
    }

    /// Records that an object is gone.
    pub(crate) fn gone(&mut self, object: &ObjectRef) {
        if let Some(owner) = self.outputs.owner(object) {
            self.contentions.forget_form(owner, object);
        }
        self.outputs.gone(object);
    }

    /// Records an object that bears a stamp. Returns its owner if that was reconciled before, without knowing of the
    /// object.
    pub(crate) fn found(&mut self, object: &ObjectRef, stamp: Stamp) -> Option<Key> {
        self.outputs.stamped(object, Some(stamp));
        let owner = self.outputs.owner(object)?;
        self.results.contains_key(owner).then(|| owner.clone())
    }

    /// Records an object as a watch reports it. Returns the owner that its stamp names if that does not depend on the
    /// object: its primary is gone, and somebody put the object back.
    pub(crate) fn observed(&mut self, object: &Object) -> Option<Key> {
        self.outputs.observe(object);
        let owner = self.outputs.owner(&object.reference)?;
        let mut concerned = self.dependencies.concerned(&object.reference);
        concerned.all(|key| key != owner).then(|| owner.clone())
    }

    /// The reconciles that a change of an object concerns. A reconcile that saw this very state has nothing to do. Of
    /// an object that is being written, the observation is kept for [`Self::end_of_write`] instead.
    pub(crate) fn concerned(
        &mut self,
        object: &ObjectRef,
        observed: Observed<'_>,
        now_seconds: i64,
    ) -> Concerned {
        let mut concerned = Concerned::default();
        let mut fingerprints = Fingerprints::default();
        self.sightings.observe(object, observed, now_seconds);
        let dependent: Vec<Key> = self.dependencies.concerned(object).cloned().collect();
        for key in dependent {
            let seen = self
                .seen
                .get_mut(&key)
                .and_then(|seen| seen.get_mut(object));
            let meaning = match seen {
                Some(seen) => {
                    let sightings = &mut self.sightings;
                    seen.observe(observed, &mut fingerprints, sightings, now_seconds)
                }
                None => WakeDecision::Wakes,
            };
            match meaning {
                WakeDecision::Wakes
                    if self.is_writing(&key, object, || fingerprints.whole(observed)) => {}
                WakeDecision::Wakes => drop(concerned.keys.insert(key)),
                WakeDecision::Moves => concerned
                    .moved
                    .extend(self.expires(&key).map(|at| (key, at))),
                WakeDecision::Nothing => {}
            }
        }
        let of_sets = self.sets.concerned(object, observed).into_iter();
        concerned.keys.extend(of_sets);
        concerned
    }

    /// The reconciles that wait for a change of an object of which only the name is kept: their plan cannot go on
    /// because of it, or they are about to read it.
    pub(crate) fn waiting_for(&self, object: &ObjectRef) -> Vec<Key> {
        let dependent = self.dependencies.concerned(object);
        let waits = |key: &&Key| {
            let seen = self.seen.get(*key).and_then(|seen| seen.get(object));
            seen.is_none_or(Seen::is_awaited)
        };
        dependent.filter(waits).cloned().collect()
    }

    /// When a time in an object that a reconcile depends on gets as old as its limit, in seconds since 1970.
    pub(crate) fn expires(&self, key: &Key) -> Option<i64> {
        let seen = self.seen.get(key)?.values();
        seen.filter_map(Seen::until).min()
    }

    /// Keeps the claims of a primary whose targets are not known now; returns the keys to wake.
    pub(crate) fn keep_claims(&mut self, contender: Contender) -> Vec<Key> {
        let stamped: Vec<_> = self.outputs.of(&contender.key).cloned().collect();
        self.ownership.keep(contender, &stamped)
    }

    /// Whether a key was reconciled before, or something was made for it.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.results.contains_key(key) || self.outputs.of(key).next().is_some()
    }

    /// The results of the primaries of a policy, in order of their name, from a place on.
    fn results_from(
        &self,
        policy: &str,
        from: Bound<Key>,
    ) -> impl Iterator<Item = (&Key, &LastResult)> {
        let results = self.results.range((from, Bound::Unbounded));
        results.take_while(move |(key, _)| *key.policy == *policy)
    }

    /// Forgets all that is known for a deleted policy; returns the keys whose target it released.
    pub(crate) fn remove_policy(&mut self, policy: &str) -> Vec<Key> {
        let from = Key::first_of(policy);
        // A reconcile that ended later, or by a bug in the agent, left no result, but may have read something.
        let read = (self.dependencies.keys().chain(self.sets.keys()))
            .chain(self.seen.keys().chain(self.ends.keys()))
            .filter(|key| *key.policy == *policy);
        let keys = self.results_from(policy, from).map(|(key, _)| key);
        for key in keys.chain(read).cloned().collect::<BTreeSet<_>>() {
            self.remove(&key);
            self.results.remove(&key);
        }
        self.writing
            .retain(|_, (writer, _)| *writer.policy != *policy);
        self.counted.retain(|key, _| *key.policy != *policy);
        self.last_seen.retain(|key, _| *key.policy != *policy);
        self.uids.retain(|key, _| *key.policy != *policy);
        self.failed_writes.retain(|key, _| *key.policy != *policy);
        self.contentions.remove_policy(policy);
        self.deselected.retain(|key| *key.policy != *policy);
        self.own_wakes.retain(|key, _| *key.policy != *policy);
        let dependencies = &self.dependencies;
        self.sightings
            .keep(|object| dependencies.concerned(object).next().is_some());
        self.ownership.remove_policy(policy)
    }

    /// Records when the earliest certificate ends of what is applied for a primary, if there is one.
    pub(crate) fn ends_at(&mut self, key: &Key, ends_seconds: Option<i64>) {
        match ends_seconds {
            Some(ends) => self.ends.insert(key.clone(), ends),
            None => self.ends.remove(key),
        };
    }

    /// Forgets what a primary depends on and what was made for it.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.dependencies.remove(key);
        self.seen.remove(key);
        self.sets.remove(key);
        self.ends.remove(key);
        self.failed_writes.remove(key);
        self.deselected.remove(key);
        self.own_wakes.remove(key);
        if self.outputs.of(key).next().is_none() {
            self.uids.remove(key);
        }
    }

    /// Forgets what was counted for the object that had the name of a primary before, if that is another one; whether
    /// it is. A watch need not tell that the former is gone. What limits how often anything is done goes by the name.
    pub(crate) fn replaced(&mut self, key: &Key, uid: &str) -> bool {
        let last = self.results.get_mut(key);
        let Some(last) = last.filter(|last| last.is_of_another(uid)) else {
            return false;
        };
        (last.failures, last.tried_early) = (0, false);
        self.contentions.remove(key);
        self.own_wakes.remove(key);
        self.failed_writes.remove(key);
        self.counted.remove(key);
        true
    }

    /// Registers objects that a reconcile is about to read. From then on every change counts for it, even one that
    /// restores the object as the reconcile before saw it.
    pub(crate) fn about_to_read(&mut self, key: &Key, objects: &[ObjectRef]) {
        self.dependencies.add(key, objects);
        if let Some(seen) = self.seen.get_mut(key) {
            seen.retain(|object, _| !objects.contains(object));
        }
    }

    /// Which attempt a reconcile counts as, given what was counted before; `timed` when time alone called for it.
    pub(crate) fn attempt(
        &mut self,
        policy: &Policy,
        (key, primary_read): (&Key, bool),
        timed: bool,
        report: &Report,
    ) -> Option<CopyAttempt> {
        if !primary_read {
            self.counted.remove(key);
        }
        let before = self.counted.get(key).copied();
        let counted = metrics::attempt(policy, primary_read, timed, before, report)?;
        self.counted.insert(key.clone(), counted);
        Some(counted.attempt)
    }

    /// Records a reconcile that ended by a bug in the agent. True when it counts as an attempt: the same failure in a
    /// row does not count as another one.
    pub(crate) fn faulted(&mut self, key: &Key, policy: &Policy, report: &Report) -> bool {
        // What a watch reports of them from now on wakes the key again.
        self.writing.retain(|_, (writer, _)| writer != key);
        let now = CountedAttempt {
            attempt: CopyAttempt::Failed,
            at_seconds: report.at_seconds,
        };
        let before = self.counted.get(key).copied();
        let counts = metrics::copies(policy) && metrics::is_news(before, now, true);
        if counts {
            self.counted.insert(key.clone(), now);
        }
        let result = LastResult::of(report, "").after(self.results.get(key));
        self.results.insert(key.clone(), result);
        counts
    }
}

/// One reconcile, or one update that a trigger guest ignored.
#[derive(Clone, Debug)]
pub(crate) struct HistoryEntry {
    /// What was reconciled.
    pub(crate) key: Key,
    /// The causes, as they were taken from the queue.
    pub(crate) causes: Vec<Queued>,
    /// Why it was reconciled; `None` when it was not.
    pub(crate) cause: Option<Cause>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use serde_json::json;
    use transom_api::State;
    use transom_core::contract::decide::{Absence, Age, Form, Need, Wake};
    use transom_core::inputs::sets::{SeenSet, SetQuestion};
    use transom_core::inputs::sightings::MOST;

    #[test]
    fn an_object_that_was_read_by_itself_and_in_a_set_calls_for_one_reconcile() {
        let map = Object {
            reference: ObjectRef::local("v1", "ConfigMap", Some("n"), "c"),
            version: String::new(),
            body: json!({"metadata": {}}),
        };
        let need = Need {
            role: "maps".to_owned(),
            reference: ObjectRef::local("v1", "ConfigMap", Some("n"), ""),
            form: Form::Count(Vec::new()),
            absence: Absence::Fine,
            wake: Wake::Change,
        };
        let question = Arc::new(SetQuestion::how_many(&need, &[]).unwrap());
        let seen = SeenSet::pending(question, Wake::Change).with(Arc::default());
        let key = Key::new(&"p".into(), &map.reference);
        let mut memory = Memory::default();
        memory.dependencies.add(&key, [&map.reference]);
        memory.sets.set(&key, vec![seen]);
        let concerned = memory.concerned(&map.reference, Observed::Present(&map), 0);
        assert!(concerned.keys.into_iter().eq([key]));
    }

    #[test]
    fn a_change_of_an_object_of_which_only_the_name_is_kept_wakes_who_waits_for_one() {
        let object = ObjectRef::local("v1", "ConfigMap", Some("n"), "c");
        let key = Key::new(&"p".into(), &object);
        let mut hinders = Seen::whole(None);
        hinders.hinders();
        for (seen, waits) in [
            // It is about to be read.
            (None, true),
            (Some(Seen::pending()), true),
            (Some(hinders), true),
            (Some(Seen::whole(None)), false),
            (Some(Seen::presence(None)), false),
            (Some(Seen::default()), false),
        ] {
            let mut memory = Memory::default();
            assert!(memory.waiting_for(&object).is_empty(), "nobody needs it");
            memory.dependencies.add(&key, [&object]);
            let seen = seen.map(|seen| (object.clone(), seen));
            memory.seen.insert(key.clone(), seen.into_iter().collect());
            assert_eq!(memory.waiting_for(&object).contains(&key), waits);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_primary_made_anew_under_its_name_starts_from_nothing() {
        let policy = "external-managed-kubeconfig";
        let (folder, session, primary) = of_case(policy, Clock::new(Some(1_795_000_000))).await;
        let controller = &session.controller;
        let key = Key::new(&policy.into(), &primary);
        let made = session.take_written().into_keys().next().unwrap();
        let (count, state) = {
            let memory = controller.memory.lock();
            let text = |text: &str| Digest::of(&json!(text));
            memory.contentions.of_whole(&key, &made, |one| {
                for change in ["a", "b", "c", "d"] {
                    one.permit(&made, text(change), text("ours"), 1_795_000_000)
                        .ok();
                }
            });
            let last = &memory.results[&key];
            (memory.results.len(), (last.uid.clone(), last.state))
        };
        assert!(count == 1 && state == (state.0.clone(), State::Applied));
        let given = std::fs::read_to_string(folder.path().join("given.yaml")).unwrap();
        let anew = given.replace(&*state.0, "22222222-2222-4222-8222-222222222222");
        assert_ne!(anew, given);
        session.directory.take("given.yaml", anew.as_bytes());
        let retry = Queued::Reconcile(Cause::Retry);
        controller.queues.push(&key, retry);
        controller.idle().await;
        let memory = controller.memory.lock();
        let last = &memory.results[&key];
        assert!(
            last.state == State::Applied && last.uid != state.0,
            "{last:?}"
        );
    }

    #[test]
    fn another_object_of_the_name_takes_over_no_count() {
        let key = Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, "n"));
        let end = transom_core::report::End::Gone;
        let mut last = LastResult::sample(end, transom_api::KnownReason::ReadFailed, 0);
        (last.uid, last.failures) = ("1".into(), 7);
        let mut memory = Memory::default();
        memory.results.insert(key.clone(), last);
        memory.wakes_itself(&key, true);
        assert!(!memory.replaced(&key, "1") && !memory.replaced(&key, ""));
        assert!(memory.results[&key].failures == 7 && !memory.own_wakes.is_empty());
        assert!(memory.replaced(&key, "2"));
        assert!(memory.results[&key].failures == 0 && memory.own_wakes.is_empty());
    }

    #[test]
    fn a_field_is_observed_as_long_as_a_reconcile_asks_for_it() {
        let lease = ObjectRef::local("coordination.k8s.io/v1", "Lease", Some("n"), "l");
        let fields: serde_json::Map<_, _> =
            (0..=MOST).map(|at| (format!("f{at}"), json!(at))).collect();
        let object = Object {
            reference: lease.clone(),
            version: String::new(),
            body: json!({"spec": fields, "metadata": {}}),
        };
        let field = |at: usize| format!("spec.f{at}");
        let policy: Arc<str> = "p".into();
        let key = Key::new(&policy, &lease);
        let (mut memory, mut seen) = (Memory::default(), Seen::default());
        for at in 0..MOST {
            let age = Age {
                field: field(at),
                seconds: 60,
            };
            assert!(memory.can_observe(&lease, &age.field, Some(&seen)));
            let observed = memory.sightings.freshness(Some(&object), &age, 0);
            let need = Need {
                role: "lease".to_owned(),
                reference: lease.clone(),
                form: Form::Observed(age),
                absence: Absence::Fine,
                wake: Wake::Change,
            };
            seen.add(Seen::of(&need, Some(&object), Some(observed), 0));
        }
        // By the reconcile that is under way, and by one that ended.
        let more = field(MOST);
        assert!(!memory.can_observe(&lease, &more, Some(&seen)));
        memory.dependencies.add(&key, [&lease]);
        let objects = BTreeMap::from([(lease.clone(), seen)]);
        memory.seen.insert(key.clone(), objects);
        assert!(!memory.can_observe(&lease, &more, None));
        assert!(memory.can_observe(&lease, &field(3), None));
        memory.seen.remove(&key);
        assert!(memory.can_observe(&lease, &more, None));
    }
}
