//! Whether what is planned for a primary is what the trial of the revision planned for it, when both rest on the same.

use super::account::writes_of;
use super::gather::ObservedState;
use super::{Admitted, Controller};
use crate::policies::load::LoadedPolicy;
use std::cell::LazyCell;
use transom_api::KnownReason;
use transom_core::failure::Failure;
use transom_core::plan::contention::Contentions;
use transom_core::plan::desired::Open;
use transom_core::plan::fleet::Writes;
use transom_core::plan::{self, PlanInput};
use transom_core::rollout::expected::{Expecting, PlanQuestion, is_determined, planned};

impl Controller {
    /// Whether plans under a revision are compared, or are those of a trial.
    pub(super) fn compares(&self, loaded: &LoadedPolicy) -> bool {
        self.trial.is_some() || self.expecting(loaded).is_some()
    }

    /// What is compared now.
    fn expecting<'a>(&self, loaded: &'a LoadedPolicy) -> Option<&'a Expecting> {
        let expecting = loaded.expecting.as_deref();
        expecting.filter(|one| one.probation.goes_on(self.clock.now_seconds()))
    }

    /// Notes in a trial what is planned; later fails when another thing is planned for the same question. The time is
    /// no part of the question: when it alone makes the difference, the plan is as it was tried.
    ///
    /// # Errors
    /// `Diverged`.
    pub(super) fn as_tried(
        &self,
        admitted: &Admitted,
        observed: &ObservedState,
        wanting: &PlanInput<'_>,
        writes: &LazyCell<Writes, impl FnOnce() -> Writes>,
    ) -> Result<(), Failure> {
        if observed.moved {
            return Ok(());
        }
        let question = PlanQuestion {
            key: &admitted.work.key,
            facts: &self.facts,
            primary: &observed.primary,
            inputs: observed.read.as_ref(),
            targets: &observed.targets,
            others: &observed.others,
        };
        if self.trial.is_some() {
            if !writes.is_empty() {
                let mark = question.mark(writes);
                self.accounts.marked(&admitted.work.key, mark);
            }
            return Ok(());
        }
        let Some(expecting) = self.expecting(&admitted.loaded) else {
            return Ok(());
        };
        let (expected, until) = (&expecting.expected, expecting.probation.until_seconds());
        let tried = expected.planned(question.asked());
        let Some(tried) = tried.filter(|tried| *tried != planned(writes)) else {
            return Ok(());
        };
        match self.planned_at(admitted, observed, wanting, expected.at_seconds) {
            Some(then) if then != tried => {
                let why = "from the same inputs, something else is planned now than when the revision was tried";
                Err(Failure::known(KnownReason::Diverged, why).until(Some(until)))
            }
            _ => Ok(()),
        }
    }

    /// What stands for what would be planned at another time; `None` when that is not known.
    fn planned_at(
        &self,
        admitted: &Admitted,
        observed: &ObservedState,
        wanting: &PlanInput<'_>,
        now_seconds: i64,
    ) -> Option<u32> {
        let answered = self.ask(admitted, observed, now_seconds).ok()?;
        let lowering = self.lowering(admitted, observed, now_seconds);
        let desired = answered.answer.lower(&lowering).ok()?;
        let open = Open::of(&desired);
        let wanting = PlanInput {
            now_seconds,
            ..wanting.clone()
        };
        // What others overwrote meanwhile makes no other plan, but it may hold one up.
        let feasible = plan::plan(&wanting, &desired, &Contentions::default()).ok()?;
        let kept = (&feasible.waits, &feasible.refused);
        let determined = is_determined(&observed.targets, kept, &feasible.unplanned);
        let steps = &feasible.plan.steps;
        determined.then(|| planned(&writes_of(steps, observed.present(), &open)))
    }
}
