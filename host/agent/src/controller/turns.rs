//! Takes turns at objects that all primaries of a policy share: whoever cannot write one lets the next one try.

use super::queue::Queued;
use super::{Controller, Touched};
use std::collections::BTreeSet;
use transom_api::reason::Class;
use transom_core::inputs::seen::Observed;
use transom_core::plan::{Outcome, Step, StepOutcome};
use transom_core::reference::ObjectRef;
use transom_core::work::{Cause, Key};

impl Controller {
    /// Notes which of the shared objects were written; a read-only agent that shows what it would write counts that.
    pub(super) fn wrote_shared(&self, outcome: &Outcome, touched: &mut Touched) {
        let shows = self.accounts.shows_shared();
        let is_right = |step: &&StepOutcome| match &step.result {
            Ok(_) => true,
            Err(failure) => shows && Class::of(failure.reason) == Class::Held,
        };
        let lacking = touched.lacking.iter_mut();
        for lacking in lacking {
            for step in outcome.steps.iter().filter(is_right) {
                lacking.remove(&step.target);
            }
        }
    }

    /// A reconcile ended, and these shared objects are not as it wants them: the next ones try. `None`: it is not known
    /// what it wants.
    pub(super) fn end_turn(&self, key: &Key, lacking: Option<&BTreeSet<ObjectRef>>) {
        for target in lacking.into_iter().flatten() {
            self.accounts.hide(key, target);
        }
        let next = self.memory.lock().ownership.ended(key, lacking);
        self.enqueue_released(next);
    }

    /// In an agent that keeps accounts: shows what would be written to shared objects to the other primaries. A trial
    /// keeps all of it.
    pub(super) fn show_planned(&self, key: &Key, steps: &[Step]) {
        if let Some(overlay) = &self.trial {
            overlay.keep(steps);
        }
        if !self.accounts.shows_shared() {
            return;
        }
        for step in steps {
            let (Step::Create { desired } | Step::Update { desired, .. }) = step else {
                continue;
            };
            let target = &desired.reference;
            let shared = || self.memory.lock().ownership.is_shared(&key.policy, target);
            if !shared() || !self.accounts.show(key, step) {
                continue;
            }
            let now_seconds = self.clock.now_seconds();
            let observed = Observed::Present(desired);
            let concerned = self.memory.lock().concerned(target, observed, now_seconds);
            for other in concerned.keys.iter().filter(|other| *other != key) {
                let cause = Cause::Input(target.clone());
                self.queues.push(other, Queued::Reconcile(cause));
            }
        }
    }
}
