//! The contention of every object that is written, by policy, primary and object.

use super::{Contention, FieldFingerprints, WINDOW_SECONDS, whole};
use crate::object::Object;
use crate::plan::kept::{Kept, KeptForms};
use crate::plan::{Step, WriteKind};
use crate::reference::ObjectRef;
use crate::share::lock::MutexExt as _;
use crate::stamp::Stamp;
use crate::work::Key;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The contention of every object that is written. Each look at it locks it for a moment, so that primaries can be
/// planned side by side.
#[derive(Debug, Default)]
pub struct Contentions(Mutex<CountedWrite>);

#[derive(Debug, Default)]
pub(super) struct CountedWrite {
    /// Of objects that a policy makes for a primary.
    pub(super) whole: Table,
    /// Of objects of which fields were written. Several primaries may own fields of one object, so each has its own.
    pub(super) fields: Table,
    /// In which form the server keeps the objects that a policy makes: the same for all primaries that share one,
    /// whichever of them wrote it.
    forms: BTreeMap<(Arc<str>, ObjectRef), KeptForms>,
}

/// By primary and policy, and object. What was counted ends with the primary: one that is made anew starts from
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Table {
    all: BTreeMap<(Key, ObjectRef), Contention>,
    sweep_at: usize,
}

/// Objects of which nothing recent is known are dropped when there are more than this, and then whenever their number
/// has doubled.
pub(super) const SWEPT_FROM: usize = 1_024;

/// Whether an entry is still needed: the server keeps the object in another form; or, within the window before the last
/// write of any object, others changed the object or a write did not succeed.
fn counts(one: &Contention, last: i64) -> bool {
    let recent = last.saturating_sub(one.at) < WINDOW_SECONDS;
    let is_changed = !one.changed_at.is_empty() || !one.lost_at.is_empty();
    !one.forms.is_empty() || recent && (is_changed || one.planned.is_some())
}

/// When a write of any of these was planned last.
fn last<'a>(all: impl Iterator<Item = &'a Contention>) -> i64 {
    all.map(|one| one.at).max().unwrap_or_default()
}

impl Table {
    /// The contention of an object.
    pub(super) fn of(&mut self, key: &Key, object: &ObjectRef) -> &mut Contention {
        if self.all.len() >= self.sweep_at.max(SWEPT_FROM) {
            let last = last(self.all.values());
            self.all.retain(|_, one| counts(one, last));
            self.sweep_at = self.all.len().saturating_mul(2);
        }
        let written = (key.clone(), object.clone());
        self.all.entry(written).or_default()
    }

    /// The same, unless nothing is known of it.
    fn known(&mut self, key: &Key, object: &ObjectRef) -> Option<&mut Contention> {
        if self.all.is_empty() {
            // Fast path, as after a start where all is in sync: no key is built for a look-up.
            return None;
        }
        self.all.get_mut(&(key.clone(), object.clone()))
    }

    /// In which form the server keeps an object.
    fn form(&mut self, key: &Key, object: &ObjectRef) -> KeptForms {
        let contention = self.known(key, object);
        contention.map(|one| one.forms.clone()).unwrap_or_default()
    }

    /// The objects of a policy that the server keeps in another form than they were written.
    fn formed(&self, policy: &str) -> Vec<(Key, ObjectRef, KeptForms)> {
        let of_policy = self.all.iter().filter(|((key, _), one)| {
            let is_of_policy = *key.policy == *policy;
            is_of_policy && !one.forms.is_empty()
        });
        let formed =
            of_policy.map(|((key, object), one)| (key.clone(), object.clone(), one.forms.clone()));
        formed.collect()
    }

    /// Takes in the forms of objects.
    fn form_as(&mut self, formed: Vec<(Key, ObjectRef, KeptForms)>) {
        for (key, object, forms) in formed {
            self.of(&key, &object).forms = forms;
        }
    }

    /// The objects of a primary.
    fn of_key(&mut self, key: &Key) -> impl Iterator<Item = (&ObjectRef, &mut Contention)> {
        let first = (key.clone(), ObjectRef::default());
        let from = self.all.range_mut(first..);
        let of_key = from.take_while(move |((of, _), _)| of == key);
        of_key.map(|((_, object), contention)| (object, contention))
    }

    fn forget(&mut self, key: &Key, object: &ObjectRef) {
        self.all.remove(&(key.clone(), object.clone()));
    }

    fn remove(&mut self, key: &Key) {
        let of_key = self.of_key(key).map(|(object, _)| object.clone());
        for object in of_key.collect::<Vec<_>>() {
            self.forget(key, &object);
        }
    }

    fn remove_policy(&mut self, policy: &str) {
        self.all.retain(|(key, _), _| *key.policy != *policy);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

impl CountedWrite {
    fn wrote(&mut self, key: &Key, step: &Step, kept: &Kept) {
        let target = step.target();
        self.keep_form(key, step, kept);
        let contention = match step {
            // It says nothing about the fields that are contended.
            step if step.is_of_finalizers() => None,
            Step::Delete { .. } => {
                let removal = Some(FieldFingerprints::from(whole(None)));
                let known = self.whole.known(key, target);
                if known.is_none_or(|known| known.planned != removal) {
                    // Pruned: nothing was counted for that.
                    self.whole.forget(key, target);
                }
                self.whole.known(key, target)
            }
            Step::Patch { .. } => self.fields.known(key, target),
            Step::Create { .. } | Step::Update { .. } => self.whole.known(key, target),
        };
        if let Some(contention) = contention {
            contention.written_as(kept);
        }
    }

    /// Takes in what the server made of an object that a policy makes. Of one that is made anew nothing is known. One
    /// without a stamp is made once: nobody looks at it again.
    fn keep_form(&mut self, key: &Key, step: &Step, kept: &Kept) {
        let is_once = matches!(step, Step::Create { desired } if Stamp::read(desired).is_none());
        if is_once || step.kind() == WriteKind::Patch {
            return;
        }
        let made = (Arc::clone(&key.policy), step.target().clone());
        let mut forms = self.forms.remove(&made).unwrap_or_default();
        if step.kind() != WriteKind::Update {
            forms = KeptForms::default();
        }
        forms.then(kept);
        if !forms.is_empty() {
            self.forms.insert(made, forms);
        }
    }
}

impl Contentions {
    /// A panic while it is locked leaves it whole.
    pub(super) fn counted(&self) -> MutexGuard<'_, CountedWrite> {
        self.0.locked()
    }

    /// Looks at the contention of an object that a policy makes for a primary.
    pub fn of_whole<T>(
        &self,
        key: &Key,
        object: &ObjectRef,
        look: impl FnOnce(&mut Contention) -> T,
    ) -> T {
        look(self.counted().whole.of(key, object))
    }

    /// Looks at the contention of an object of which fields are written for a primary under a policy.
    pub fn of_fields<T>(
        &self,
        key: &Key,
        object: &ObjectRef,
        look: impl FnOnce(&mut Contention) -> T,
    ) -> T {
        look(self.counted().fields.of(key, object))
    }

    /// Takes in which fields of an object are as a primary's policy wants them now, whoever wrote that.
    pub(in crate::plan) fn agree(
        &self,
        key: &Key,
        object: &ObjectRef,
        before: &FieldFingerprints,
        after: &FieldFingerprints,
    ) {
        if let Some(contention) = self.counted().fields.known(key, object) {
            contention.agree(before, after);
        }
    }

    /// Looks at the objects of which fields were written for a primary.
    pub(in crate::plan) fn of_key(
        &self,
        key: &Key,
        mut look: impl FnMut(&ObjectRef, &mut Contention),
    ) {
        let mut counted = self.counted();
        let of_key = counted.fields.of_key(key);
        of_key.for_each(|(object, contention)| look(object, contention));
    }

    /// Takes in that an object is as a primary's policy wants it.
    pub(in crate::plan) fn settle(&self, key: &Key, object: &ObjectRef, there: Option<&Object>) {
        let mut counted = self.counted();
        let pending = counted.whole.known(key, object);
        // The fingerprint is made only where a write is pending.
        if let Some(pending) = pending.filter(|one| one.planned.is_some()) {
            pending.settle(&whole(there).into());
        }
    }

    /// What the server made of an object that a policy made, for whichever primary.
    pub(in crate::plan) fn form(&self, key: &Key, object: &ObjectRef) -> KeptForms {
        let forms = &self.counted().forms;
        // Fast path: no key is built for a look-up.
        let made = (!forms.is_empty()).then(|| (Arc::clone(&key.policy), object.clone()));
        let forms = made.and_then(|made| forms.get(&made));
        forms.cloned().unwrap_or_default()
    }

    /// What the server made of fields that were written for a primary.
    pub(in crate::plan) fn forms(&self, key: &Key, object: &ObjectRef) -> KeptForms {
        self.counted().fields.form(key, object)
    }

    /// Copies the forms in which the server keeps the values that a policy wrote, without the counts.
    pub fn copy_forms(&self, to: &Self, policy: &str) {
        // Never both locks at once.
        let (whole, fields) = {
            let counted = self.counted();
            let whole = counted.forms.iter().filter(|((of, _), _)| **of == *policy);
            let whole: Vec<_> = whole
                .map(|(made, forms)| (made.clone(), forms.clone()))
                .collect();
            (whole, counted.fields.formed(policy))
        };
        let mut counted = to.counted();
        counted.forms.extend(whole);
        counted.fields.form_as(fields);
    }

    /// Records a successful step for a primary under a policy, and what the server made of it.
    pub fn wrote(&self, key: &Key, step: &Step, kept: &Kept) {
        self.counted().wrote(key, step, kept);
    }

    /// Records the part of a step for a primary under a policy that was written before the rest failed, and what the
    /// server made of it.
    pub fn wrote_part(&self, key: &Key, part: &Step, kept: &Kept) {
        let Step::Patch {
            reference, fields, ..
        } = part
        else {
            return;
        };
        if let Some(contention) = self.counted().fields.known(key, reference) {
            contention.part_written_as(fields, kept);
        }
    }

    /// Forgets in which form an object was kept that a policy made and that is not there any more.
    pub fn forget_form(&self, key: &Key, object: &ObjectRef) {
        let made = (Arc::clone(&key.policy), object.clone());
        self.counted().forms.remove(&made);
    }

    /// Forgets an object that is not there any more, of which fields were written.
    pub fn gone(&self, key: &Key, object: &ObjectRef) {
        self.counted().fields.forget(key, object);
    }

    /// Forgets what was counted for a primary that is gone.
    pub fn remove(&self, key: &Key) {
        let mut counted = self.counted();
        counted.whole.remove(key);
        counted.fields.remove(key);
    }

    /// Forgets a policy.
    pub fn remove_policy(&self, policy: &str) {
        let mut counted = self.counted();
        counted.whole.remove_policy(policy);
        counted.forms.retain(|(of, _), _| **of != *policy);
        counted.fields.remove_policy(policy);
    }
}
