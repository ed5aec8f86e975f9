//! The contention of every object that is written: by object for what a policy makes, by primary and object for fields.

use super::{Contention, Said, WINDOW_SECONDS, whole};
use crate::plan::Step;
use crate::plan::kept::{Forms, Kept};
use crate::reference::ObjectRef;
use crate::work::Key;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The contention of every object that is written. Each look at it locks it for a moment, so that primaries can be planned
/// side by side.
#[derive(Debug, Default)]
pub struct Contentions(Mutex<Counted>);

#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Of objects that a policy makes.
    pub(super) whole: HashMap<(Arc<str>, ObjectRef), Contention>,
    /// Of objects of which fields were written. Several primaries may own fields of one object, so each has its own.
    pub(super) fields: BTreeMap<(Key, ObjectRef), Contention>,
    sweep_whole_at: usize,
    sweep_fields_at: usize,
}

/// Objects of which nothing recent is known are dropped when there are more than this, and then whenever their number has doubled.
pub(super) const SWEPT_FROM: usize = 1_024;

/// Whether more is known of an object than a write that is in place: in which form it is kept; or, within the window before
/// the last write of any object, that others changed it, or a write that did not succeed.
fn counts(one: &Contention, last: i64) -> bool {
    let recent = last.saturating_sub(one.at) < WINDOW_SECONDS;
    !one.forms.is_empty() || recent && (!one.changed_at.is_empty() || one.planned.is_some())
}

/// When a write of any of these was planned last.
fn last<'a>(all: impl Iterator<Item = &'a Contention>) -> i64 {
    all.map(|one| one.at).max().unwrap_or_default()
}

impl Counted {
    /// The contention of an object that a policy makes.
    pub(super) fn of(&mut self, policy: &Arc<str>, object: &ObjectRef) -> &mut Contention {
        if self.whole.len() >= self.sweep_whole_at.max(SWEPT_FROM) {
            let last = last(self.whole.values());
            self.whole.retain(|_, one| counts(one, last));
            self.sweep_whole_at = self.whole.len().saturating_mul(2);
        }
        self.whole
            .entry((Arc::clone(policy), object.clone()))
            .or_default()
    }

    /// The contention of an object of which fields are written for a primary under a policy.
    pub(super) fn of_fields(&mut self, key: &Key, object: &ObjectRef) -> &mut Contention {
        if self.fields.len() >= self.sweep_fields_at.max(SWEPT_FROM) {
            let last = last(self.fields.values());
            self.fields.retain(|_, one| counts(one, last));
            self.sweep_fields_at = self.fields.len().saturating_mul(2);
        }
        let written = (key.clone(), object.clone());
        self.fields.entry(written).or_default()
    }

    fn wrote(&mut self, key: &Key, step: &Step, kept: &Kept) {
        let written = || (Arc::clone(&key.policy), step.target().clone());
        let contention = match step {
            // It says nothing about the fields that are contended.
            step if step.is_of_finalizers() => None,
            Step::Delete { .. } => {
                let removal = Some(Said::from(whole(None)));
                let written = written();
                let planned = self.whole.get(&written).map(|one| &one.planned);
                if planned.is_none_or(|planned| *planned != removal) {
                    // Pruned: nothing was counted for that.
                    self.whole.remove(&written);
                }
                self.whole.get_mut(&written)
            }
            Step::Patch { reference, .. } => self.fields.get_mut(&(key.clone(), reference.clone())),
            Step::Create { .. } | Step::Update { .. } => self.whole.get_mut(&written()),
        };
        if let Some(contention) = contention {
            if matches!(step, Step::Create { .. } | Step::Delete { .. }) {
                contention.forms = Forms::default();
            }
            contention.written_as(kept);
        }
    }
}

impl Contentions {
    /// A panic while it is locked leaves it whole.
    pub(super) fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the contention of an object that a policy makes.
    pub fn of<T>(
        &self,
        policy: &Arc<str>,
        object: &ObjectRef,
        look: impl FnOnce(&mut Contention) -> T,
    ) -> T {
        look(self.counted().of(policy, object))
    }

    /// Looks at the contention of an object of which fields are written for a primary under a policy.
    pub fn of_fields<T>(
        &self,
        key: &Key,
        object: &ObjectRef,
        look: impl FnOnce(&mut Contention) -> T,
    ) -> T {
        look(self.counted().of_fields(key, object))
    }

    /// Takes in which fields of an object are as a primary's policy wants them now, whoever wrote that.
    pub(in crate::plan) fn agree(
        &self,
        key: &Key,
        object: &ObjectRef,
        before: &Said,
        after: &Said,
    ) {
        let place = (key.clone(), object.clone());
        if let Some(contention) = self.counted().fields.get_mut(&place) {
            contention.agree(before, after);
        }
    }

    /// Looks at the objects of which fields were written for a primary.
    pub(in crate::plan) fn of_key(
        &self,
        key: &Key,
        mut look: impl FnMut(&ObjectRef, &mut Contention),
    ) {
        let first = (key.clone(), ObjectRef::default());
        let mut counted = self.counted();
        let from = counted.fields.range_mut(first..);
        let of_key = from.take_while(|((of, _), _)| of == key);
        of_key.for_each(|((_, object), contention)| look(object, contention));
    }

    /// What the server made of an object that a policy made.
    pub(in crate::plan) fn form(&self, policy: &Arc<str>, object: &ObjectRef) -> Forms {
        let place = (Arc::clone(policy), object.clone());
        let counted = self.counted();
        let contention = counted.whole.get(&place);
        contention.map(|one| one.forms.clone()).unwrap_or_default()
    }

    /// What the server made of fields that were written for a primary.
    pub(in crate::plan) fn forms(&self, key: &Key, object: &ObjectRef) -> Forms {
        let place = (key.clone(), object.clone());
        let counted = self.counted();
        let contention = counted.fields.get(&place);
        contention.map(|one| one.forms.clone()).unwrap_or_default()
    }

    /// Records a successful step for a primary under a policy, and what the server made of it.
    pub fn wrote(&self, key: &Key, step: &Step, kept: &Kept) {
        self.counted().wrote(key, step, kept);
    }

    /// Forgets in which form an object was kept that a policy made and that is not there any more.
    pub fn forget_form(&self, policy: &Arc<str>, object: &ObjectRef) {
        let place = (Arc::clone(policy), object.clone());
        if let Some(contention) = self.counted().whole.get_mut(&place) {
            contention.forms = Forms::default();
        }
    }

    /// Forgets an object that is not there any more, of which fields were written.
    pub fn gone(&self, key: &Key, object: &ObjectRef) {
        let place = (key.clone(), object.clone());
        self.counted().fields.remove(&place);
    }

    /// Forgets what was counted for a primary of which fields, and of other objects, were written.
    pub fn remove(&self, key: &Key) {
        let first = (key.clone(), ObjectRef::default());
        let fields = &mut self.counted().fields;
        let of_key = fields.range(first..).map(|(written, _)| written);
        let of_key = of_key.take_while(|(of, _)| of == key);
        for written in of_key.cloned().collect::<Vec<_>>() {
            fields.remove(&written);
        }
    }

    /// Forgets a policy.
    pub fn remove_policy(&self, policy: &str) {
        let mut counted = self.counted();
        counted.whole.retain(|(of, _), _| **of != *policy);
        counted.fields.retain(|(key, _), _| *key.policy != *policy);
    }
}
