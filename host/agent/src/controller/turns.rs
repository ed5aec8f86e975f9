//! Takes turns at objects that all primaries of a policy share: whoever cannot write one lets the next one try.

use super::{Controller, Touched};
use std::collections::BTreeSet;
use transom_core::plan::{Outcome, StepOutcome};
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

impl Controller {
    /// Notes which of the shared objects were written.
    pub(super) fn wrote_shared(outcome: &Outcome, touched: &mut Touched) {
        let is_right = |step: &&StepOutcome| step.result.is_ok();
        for lacking in touched.lacking.iter_mut() {
            for step in outcome.steps.iter().filter(is_right) {
                lacking.remove(&step.target);
            }
        }
    }

    /// A reconcile ended, and these shared objects are not as it wants them: the next ones try. `None`: it is not known
    /// what it wants.
    pub(super) fn end_turn(&self, key: &Key, lacking: Option<&BTreeSet<ObjectRef>>) {
        let next = self.memory.lock().ownership.ended(key, lacking);
        self.enqueue_released(next);
    }
}
