//! What is known of writes: those under way, those that failed, and which reconciles a write calls for.

use super::Memory;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_core::contract::decide::FailedWrite;
use transom_core::digest::Digest;
use transom_core::inputs::seen::{Fingerprints, Observed};
use transom_core::object::Object;
use transom_core::plan::{Outcome, Step, StepOutcome, Unplanned};
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

/// The most reconciles in a row that own writes call for.
const OWN_WAKES: u8 = 8;

impl Memory {
    /// Registers the targets that a reconcile is about to write. What a watch reports of them waits for the end of the
    /// write, when it is known what was written.
    pub(crate) fn about_to_write(&mut self, key: &Key, steps: &[Step]) {
        for step in steps {
            self.writing
                .entry(step.target().clone())
                .or_insert_with(|| (key.clone(), None));
        }
    }

    /// The write that failed in the last reconcile of a primary.
    pub(crate) fn failed_write(&self, key: &Key) -> Option<FailedWrite> {
        self.failed_writes.get(key).cloned()
    }

    /// Records what became of the writes of a primary, and of what has no step; returns the write that
    /// failed, if one did.
    pub(crate) fn wrote_all(
        &mut self,
        key: &Key,
        outcome: &Outcome,
        unplanned: Unplanned,
    ) -> Option<FailedWrite> {
        let failed = outcome.failed_write(unplanned, self.failed_writes.remove(key));
        if let Some(failed) = &failed {
            self.failed_writes.insert(key.clone(), failed.clone());
        }
        failed
    }

    /// Whether a primary is reconciled again because of its own write, if that was news. A guest whose answer changes
    /// with each of its writes would go on for ever: after some in a row it waits for something else.
    pub(crate) fn wakes_itself(&mut self, key: &Key, news: bool) -> bool {
        if !news {
            self.own_wakes.remove(key);
            return false;
        }
        let count = self.own_wakes.entry(key.clone()).or_default();
        *count = count.saturating_add(1).min(OWN_WAKES + 1);
        *count <= OWN_WAKES
    }

    /// Whether a key is writing an object now. If so, keeps the observation.
    pub(super) fn is_writing(
        &mut self,
        key: &Key,
        object: &ObjectRef,
        observed: impl FnOnce() -> Option<Digest>,
    ) -> bool {
        let writing = self.writing.get_mut(object);
        let ours = writing.filter(|(writer, _)| writer == key);
        ours.map(|(_, last)| *last = Some(observed())).is_some()
    }

    /// Ends a key's write of an object, successful or not; `left` is the object now, if known, with its fingerprints.
    /// True when a watch reported another state of the object meanwhile, or one that cannot be compared because this
    /// one is unknown.
    pub(crate) fn end_of_write(
        &mut self,
        key: &Key,
        object: &ObjectRef,
        left: Option<&Object>,
        fingerprints: &mut Fingerprints,
    ) -> bool {
        let seen = self.seen.get_mut(key).filter(|_| left.is_some());
        if let Some(seen) = seen {
            let seen = seen.entry(object.clone()).or_default();
            seen.written(left, fingerprints);
        }
        let writing = self.writing.get(object);
        if writing.is_none_or(|(writer, _)| writer != key) {
            return false;
        }
        let observed = self.writing.remove(object).and_then(|(_, last)| last);
        let left = left.map(Observed::Present);
        observed
            .is_some_and(|observed| left.is_none_or(|left| observed != fingerprints.whole(left)))
    }

    /// Records a step that is in place, or the part of one that is, and how it left the object; returns the other
    /// reconciles that depend on what it wrote.
    pub(crate) fn wrote(&mut self, key: &Key, step: &Step, done: &StepOutcome) -> Vec<Key> {
        let target = step.target();
        if let Some(written) = &mut self.written {
            let policies = written.entry(target.clone()).or_default();
            policies.insert(Arc::clone(&key.policy));
        }
        match step {
            Step::Create { desired } | Step::Update { desired, .. } => {
                self.outputs.observe(desired);
            }
            Step::Delete { reference, .. } => match done.left.as_deref() {
                // It waits for its finalizers, some of which may be the policy's to take off.
                Some(left) => self.outputs.observe(left),
                None => self.outputs.gone(reference),
            },
            Step::Patch { .. } => {}
        }
        match done.part {
            None => self.contentions.wrote(key, step, &done.kept),
            Some(_) => self.contentions.wrote_part(key, step, &done.kept),
        }
        let dependent = self.dependencies.concerned(target).cloned();
        let now = written(step, done.left.as_deref());
        let of_sets = self.sets.concerned(target, now);
        let others: BTreeSet<Key> = dependent.chain(of_sets).collect();
        others.into_iter().filter(|other| other != key).collect()
    }
}

/// An object as a step that is in place left it, as far as that is known: what was deleted, and is not known to wait
/// for its finalizers, is gone.
pub(crate) fn written<'a>(step: &'a Step, left: Option<&'a Object>) -> Observed<'a> {
    match (left, step) {
        (Some(left), _) => Observed::Present(left),
        (None, Step::Create { desired } | Step::Update { desired, .. }) => {
            Observed::Present(desired)
        }
        (None, Step::Patch { .. }) => Observed::Unreadable,
        (None, Step::Delete { .. }) => Observed::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_api::policy::LabelOperator;
    use transom_core::contract::decide::{Absence, Form, LabelTerm, Need, Wake};
    use transom_core::inputs::sets::{SeenSet, SetQuestion};

    #[test]
    fn a_failed_write_of_a_policy_goes_with_it() {
        let object = ObjectRef::local("v1", "ConfigMap", Some("n"), "c");
        let mut memory = Memory::default();
        let failed = FailedWrite {
            object: object.clone(),
            reason: "WriteForbidden".to_owned(),
        };
        for policy in ["p", "q"] {
            // Of a reconcile that ended after its policy was removed there is no result.
            let key = Key::new(&policy.into(), &object);
            memory.failed_writes.insert(key, failed.clone());
        }
        memory.remove_policy("p");
        let left: Vec<_> = memory.failed_writes.keys().collect();
        assert_eq!(left, [&Key::new(&"q".into(), &object)]);
    }

    #[test]
    fn the_uid_of_a_primary_is_known_as_long_as_anything_that_it_made_is_there() {
        let made = ObjectRef::local("v1", "ConfigMap", Some("n"), "c");
        let key = Key::new(&"p".into(), &ObjectRef::local("v1", "Thing", None, "t"));
        let mut memory = Memory::default();
        memory.outputs.record(&made, Some(key.clone()));
        memory.uids.insert(key.clone(), "u".into());
        // The primary is gone, and what it made waits for something else.
        memory.remove(&key);
        assert!(memory.uids.contains_key(&key));
        memory.outputs.gone(&made);
        memory.remove(&key);
        assert!(memory.uids.is_empty());
    }

    #[test]
    fn a_write_concerns_those_who_saw_the_object_in_a_set() {
        let place = ObjectRef::local("v1", "ConfigMap", Some("n"), "");
        let map = |of: &str| Object {
            reference: ObjectRef {
                name: "m".to_owned(),
                ..place.clone()
            },
            version: "1".to_owned(),
            body: json!({"metadata": {"labels": {"of": of}}}),
        };
        let labels = [LabelTerm {
            key: "of".to_owned(),
            operator: LabelOperator::In,
            values: vec!["x".to_owned()],
        }];
        let need = Need {
            role: "maps".to_owned(),
            reference: place.clone(),
            form: Form::Count(labels.to_vec()),
            absence: Absence::Fine,
            wake: Wake::Change,
        };
        let question = Arc::new(SetQuestion::how_many(&need, &labels).unwrap());
        let seen = SeenSet::pending(question, Wake::Change).with(Arc::default());
        let [counts, writes] = ["counts", "writes"].map(|name| Key::new(&name.into(), &place));
        let mut memory = Memory::default();
        memory.sets.set(&counts, vec![seen]);
        let made = |of: &str| Step::Create { desired: map(of) };
        let mut wrote = |step: &Step, left: Option<Object>| {
            let done = StepOutcome::of(step.target().clone(), step.kind(), Ok(left));
            memory.wrote(&writes, step, &done)
        };
        assert_eq!(wrote(&made("y"), None), []);
        let told = vec![counts];
        assert_eq!(wrote(&made("x"), None), told);
        let patch = Step::Patch {
            reference: map("y").reference,
            version: "1".to_owned(),
            fields: Vec::new(),
        };
        assert_eq!(wrote(&patch, Some(map("x"))), told);
        assert_eq!(wrote(&patch, Some(map("y"))), []);
        // What it left is not known.
        assert_eq!(wrote(&patch, None), told);
    }

    #[test]
    fn what_was_deleted_is_gone_unless_it_waits_for_its_finalizers() {
        let left = Object {
            reference: ObjectRef::local("v1", "ConfigMap", Some("n"), "c"),
            version: "2".to_owned(),
            body: json!({}),
        };
        let step = Step::Delete {
            reference: left.reference.clone(),
            version: "1".to_owned(),
            uid: String::new(),
            why: String::new(),
        };
        assert!(matches!(written(&step, None), Observed::Gone));
        assert!(matches!(written(&step, Some(&left)), Observed::Present(_)));
    }

    #[test]
    fn own_writes_call_for_a_few_reconciles_in_a_row_until_one_is_quiet() {
        let key = Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, "n"));
        let mut memory = Memory::default();
        for _ in 0..2 {
            let woken = (0..20).filter(|_| memory.wakes_itself(&key, true)).count();
            assert_eq!(woken, usize::from(OWN_WAKES));
            assert!(!memory.wakes_itself(&key, false));
        }
    }
}
