//! What a candidate would write, shown in place of what is there: a trial sees by that whether it would write again.

use std::collections::HashMap;
use std::sync::Mutex;
use transom_core::object::Object;
use transom_core::plan::{Step, effect};
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;

/// What a candidate would change.
#[derive(Default)]
pub(crate) struct Overlay(Mutex<OverlayState>);

#[derive(Default)]
struct OverlayState {
    stage: Stage,
    /// The steps to each object since it was last made, replaced or removed.
    steps: HashMap<ObjectRef, Vec<Step>>,
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
    /// Shows what was kept from now on, and what else follows.
    pub(super) fn show(&self) {
        self.0.locked().stage = Stage::Shown;
    }

    /// Forgets what was kept, shows what is there, and keeps what follows.
    pub(super) fn begin(&self) {
        *self.0.locked() = OverlayState {
            stage: Stage::Kept,
            steps: HashMap::new(),
        };
    }

    /// Keeps what these steps would leave.
    pub(in crate::controller) fn keep(&self, steps: &[Step]) {
        let mut kept = self.0.locked();
        if kept.stage == Stage::Unused {
            return;
        }
        for step in steps {
            let steps = kept.steps.entry(step.target().clone()).or_default();
            if !matches!(step, Step::Patch { .. }) {
                steps.clear();
            }
            steps.push(step.clone());
        }
    }

    /// What is shown in place of an object that was read.
    pub(in crate::controller) fn over(
        &self,
        reference: &ObjectRef,
        there: Option<Object>,
    ) -> Option<Object> {
        let kept = self.0.locked();
        let steps = kept.steps.get(reference);
        let steps = steps.filter(|_| kept.stage == Stage::Shown);
        let steps = steps.into_iter().flatten();
        steps.fold(there, |left, step| effect::after(step, left))
    }
}
