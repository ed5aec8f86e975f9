//! What a candidate would write, shown in place of what is there: a trial sees by that whether it would write again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use transom_core::object::Object;
use transom_core::plan::{Step, effect};
use transom_core::reference::ObjectRef;

/// The objects that a candidate would change, as it leaves them. Kept while it is not shown.
#[derive(Default)]
pub(crate) struct Overlay(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    is_shown: bool,
    objects: HashMap<ObjectRef, Option<Object>>,
}

impl Overlay {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what was kept from now on.
    pub(super) fn show(&self) {
        self.lock().is_shown = true;
    }

    /// Forgets what was kept, and shows what is there.
    pub(super) fn clear(&self) {
        *self.lock() = Kept::default();
    }

    /// Keeps what these steps would leave; `primary` is the primary as it was read.
    pub(in crate::controller) fn keep(&self, steps: &[Step], primary: Option<&Object>) {
        let mut kept = self.lock();
        if kept.is_shown {
            return;
        }
        for step in steps {
            let target = step.target();
            let before = primary.filter(|primary| primary.reference == *target);
            // Of an object that is not known, what is there is shown.
            let after = effect::after(step, before);
            if after.is_some() || matches!(step, Step::Delete { .. }) {
                kept.objects.insert(target.clone(), after);
            }
        }
    }

    /// What is shown in place of an object that was read.
    pub(in crate::controller) fn over(
        &self,
        reference: &ObjectRef,
        there: Option<Object>,
    ) -> Option<Object> {
        let kept = self.lock();
        match kept.objects.get(reference).filter(|_| kept.is_shown) {
            Some(shown) => shown.clone(),
            None => there,
        }
    }
}
