//! What a candidate would write, shown in place of what is there: a trial sees by that whether it would write again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transom_core::object::Object;
use transom_core::plan::{Step, effect};
use transom_core::reference::ObjectRef;

/// The objects that a candidate would change, as it leaves them.
#[derive(Default)]
pub(crate) struct Overlay(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    stage: Stage,
    objects: HashMap<ObjectRef, Option<Object>>,
}

/// What happens with the objects.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Unused,
    Kept,
    Shown,
}

impl Overlay {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what was kept from now on, and what else follows.
    pub(super) fn show(&self) {
        self.lock().stage = Stage::Shown;
    }

    /// Forgets what was kept, shows what is there, and keeps what follows.
    pub(super) fn begin(&self) {
        *self.lock() = Kept {
            stage: Stage::Kept,
            objects: HashMap::new(),
        };
    }

    /// Keeps what these steps would leave; `before` are the primary and the objects that others made, as they were read.
    pub(in crate::controller) fn keep(&self, steps: &[Step], before: &[Arc<Object>]) {
        let mut kept = self.lock();
        if kept.stage == Stage::Unused {
            return;
        }
        let mut left: HashMap<ObjectRef, Object> = HashMap::new();
        for step in steps {
            let target = step.target();
            let known = left.get(target).or_else(|| effect::target(step, before));
            // Of an object that is not known, what is there is shown.
            let after = effect::after(step, known);
            if let Some(after) = &after {
                left.insert(target.clone(), after.clone());
            }
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
        let shown = kept.objects.get(reference);
        match shown.filter(|_| kept.stage == Stage::Shown) {
            Some(shown) => shown.clone(),
            None => there,
        }
    }
}
