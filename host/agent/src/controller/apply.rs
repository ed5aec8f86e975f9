//! Stage 7, apply: carries out a plan, and has every reconcile that depends on what was written run again.

mod confirm;

use crate::controller::memory;
use crate::controller::plan::Planned;
use crate::controller::queue::Queued;
use crate::controller::{Admitted, Controller, Ended, Touched, account};
use crate::telemetry;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::failure::Failure;
use transom_core::inputs::seen::{Fingerprints, Observed, WakeDecision};
use transom_core::inputs::sets::SeenSet;
use transom_core::object::Object;
use transom_core::plan::desired::Fields;
use transom_core::plan::{
    Outcome, Plan, Step, StepOutcome, TimeAdded, Unplanned, WriteKind, write_limit,
};
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::report::Success;
use transom_core::work::{Cause, Key};

/// A reconcile that ran to its end.
pub(super) struct Applied {
    /// The result of each step.
    pub(super) success: Success,
    /// What was read.
    pub(super) touched: Touched,
}

impl Applied {
    /// Whether a write was sent.
    pub(super) fn has_written(&self) -> bool {
        !self.success.outcome.steps.is_empty()
    }
}

impl Controller {
    /// Carries out the steps in order, as far as failures permit.
    pub(super) async fn apply(&self, planned: Planned) -> Result<Applied, Box<Ended>> {
        let Planned {
            admitted,
            plan,
            fields,
            time_added,
            kept,
            unplanned,
            ends,
            mut touched,
        } = planned;
        if let Err(failure) = self.nothing_missed(ends, &touched).await {
            return Err(touched.end(failure));
        }
        let writes_fields = to_fields(&plan);
        let mut outcome = self.carry_out(&admitted, plan, &mut touched, false).await;
        Self::wrote_shared(&outcome, &mut touched);
        let written = is_done(writes_fields, &admitted.work.key, &outcome);
        let by_cluster = time_added == TimeAdded::SetByCluster;
        let fields = if by_cluster && written {
            fields
        } else {
            Vec::new()
        };
        let timed = self.set_times(&admitted, fields, &mut outcome, &mut touched);
        if let Err(failure) = timed.await {
            return Err(touched.end(failure));
        }
        let key = &admitted.work.key;
        // What a guest is told changes its answer; a dry run shows the answers before that.
        let unplanned = match self.accounts.is_dry_run() {
            false => unplanned,
            true => Unplanned::Nothing,
        };
        let failed = self.memory.lock().wrote_all(key, &outcome, unplanned);
        let told = touched.shown_failure.take();
        touched.reconcile.told_otherwise = told.is_some_and(|told| told != failed);
        let kept = kept.filter(|_| outcome.is_whole());
        let success = Success {
            gone: touched.primary.is_none(),
            outcome,
            kept,
        };
        Ok(Applied { success, touched })
    }

    /// Sets the times of owned elements that were written and that the cluster left without one. Then records the
    /// primary, as the last write left it, as the state that this reconcile saw.
    async fn set_times(
        &self,
        admitted: &Arc<Admitted>,
        fields: Vec<Fields>,
        outcome: &mut Outcome,
        touched: &mut Touched,
    ) -> Result<(), Failure> {
        let key = &admitted.work.key;
        let mut left = left_by(outcome, key);
        let untimed = |left: &mut Box<Object>| fields.iter().any(|one| one.untimed(left));
        if let Some(primary) = left.take_if(untimed) {
            self.connections.left_without_time(&key.primary);
            let plan = self.with_times(admitted, &primary, fields)?;
            let timed = self.carry_out(admitted, plan, touched, true).await;
            outcome.steps.extend(timed.steps);
            outcome.stopped = timed.stopped;
            left = left_by(outcome, key);
        }
        let mut steps = outcome.steps.iter();
        let wrote = |step: &StepOutcome| step.target == *key.primary && step.has_written();
        // An object that is no longer a primary has no last seen state, so its next event counts as a change.
        if touched.primary.is_some() && steps.any(wrote) {
            // The state after the write counts as seen. When it is not known, another writer may have changed the
            // primary meanwhile, and its state may look as it did before the write: reconcile again.
            touched.last_seen = left.map(Arc::from);
            let unknown = touched.last_seen.is_none() && outcome.failure().is_none();
            if unknown && !self.accounts.is_dry_run() {
                let cause = Queued::Reconcile(Cause::Undecided);
                self.queues.push(key, cause);
            }
        }
        Ok(())
    }

    /// Performs the steps of a plan, which may be empty. Other reconciles that depend on what was written are enqueued;
    /// this one records it as what it saw last. One that has begun to write goes on to its end.
    async fn carry_out(
        &self,
        admitted: &Admitted,
        plan: Plan,
        touched: &mut Touched,
        has_begun: bool,
    ) -> Outcome {
        let key = &admitted.work.key;
        self.show_planned(key, &plan.steps);
        if plan.steps.is_empty() {
            self.limits.unwanted(key);
            self.memory.lock().own_wakes.remove(key);
            return Outcome::default();
        }
        let before = touched.before();
        self.accounts.planned(key, &plan.steps, &before);
        if self.accounts.is_dry_run() {
            return account::as_if_done(&plan.steps);
        }
        let within = async {
            self.same_cluster(key, &plan, touched).await?;
            self.may_write(admitted, &plan, &before, has_begun).await
        };
        let counted = match within.await {
            Ok(counted) => counted,
            Err(failure) => {
                touched.ask_again(failure.ask_again_at);
                let stopped = Some(failure);
                return Outcome {
                    stopped,
                    ..Outcome::default()
                };
            }
        };
        let now_seconds = self.clock.now_seconds();
        let write_limit::PermittedPlan { plan, stopped } =
            self.memory
                .lock()
                .write_limiter
                .admit(key, plan, now_seconds);
        touched.ask_again(stopped.as_ref().and_then(|stopped| stopped.ask_again_at));
        let steps = plan.steps.clone();
        self.rehearsals.written(&steps);
        self.memory.lock().about_to_write(key, &steps);
        touched.room.finish();
        let mut outcome = self.connections.apply(plan).await;
        // A trial may have read them in between.
        self.rehearsals.written(&steps);
        outcome.stopped = stopped;
        self.uncount(key, &counted, (&steps, &outcome));
        let of_sets = self.wrote(key, &steps, &outcome, &touched.sets);
        let of_needs = self.end_steps(key, &steps, &outcome, touched);
        self.wake_itself(key, of_needs.or(of_sets));
        outcome
    }

    /// Enqueues the primary again if its own write changed an input of its guest, but only a few times in a
    /// row.
    fn wake_itself(&self, key: &Key, news: Option<ObjectRef>) {
        let wakes = self.memory.lock().wakes_itself(key, news.is_some());
        if let Some(object) = news.filter(|_| wakes) {
            self.queues
                .push(key, Queued::Reconcile(Cause::Input(object)));
        }
    }

    /// Records how the steps ended; returns an object whose new state is news for what the guest asked for.
    fn end_steps(
        &self,
        key: &Key,
        steps: &[Step],
        outcome: &Outcome,
        touched: &mut Touched,
    ) -> Option<ObjectRef> {
        let mut news = None;
        for (at, (step, done)) in outcome.of(steps).enumerate() {
            if done.is_none_or(is_unwritten) {
                let limiter = &mut self.memory.lock().write_limiter;
                limiter.give_back(key, step);
            }
            // The last step on an object says how it was left.
            let mut later = steps[at + 1..].iter();
            let is_last = !later.any(|later| later.target() == step.target());
            if is_last && self.end_step(key, step, done, touched) {
                news = Some(step.target().clone());
            }
        }
        news
    }

    /// Records how the last step on an object ended, for this reconcile and for the next. Returns whether that is news
    /// for what the guest asked for.
    fn end_step(
        &self,
        key: &Key,
        step: &Step,
        done: Option<&StepOutcome>,
        touched: &mut Touched,
    ) -> bool {
        let target = step.target();
        let left = done.and_then(|done| done.left.as_deref());
        // What a delete leaves waits for its finalizers: the next reconcile takes off those that are the policy's.
        let held = left.is_some() && step.kind() == WriteKind::Delete;
        let fingerprints = &mut Fingerprints::default();
        let now = done.and_then(|done| self.unreported(done.written(step)?, left));
        let (changed, news) = {
            let memory = &mut self.memory.lock();
            let now_seconds = self.clock.now_seconds();
            let news = touched.needed.get_mut(target).zip(now);
            let news = news.map(|(needed, now)| {
                needed.observe(now, fingerprints, &mut memory.sightings, now_seconds)
            });
            let news = news == Some(WakeDecision::Wakes);
            let changed = memory.end_of_write(key, target, left, fingerprints);
            (changed || held, news)
        };
        if changed {
            let cause = Cause::Input(target.clone());
            self.queues.push(key, Queued::Reconcile(cause));
        }
        if let Some(seen) = touched.objects.get_mut(target) {
            // Replaces the fingerprint from before the write. When the new one is not known, any later state is a
            // change.
            seen.written(left, fingerprints);
        }
        news
    }

    /// An object as a step left it, unless a watch reports that for certain. It may have reported a write before the
    /// write ended, and does not report it again. A removal counts when it is reported, where a watch is followed.
    fn unreported<'a>(&self, step: &'a Step, left: Option<&'a Object>) -> Option<Observed<'a>> {
        let now = memory::written(step, left);
        let is_followed = || !self.ends && self.connections.weigh(step.target()).is_some();
        let is_reported = matches!(now, Observed::Gone) && is_followed();
        (!is_reported).then_some(now)
    }

    /// Records what was just written, and enqueues every other reconcile that depends on it. Returns an object that is
    /// news for a set that this one saw.
    fn wrote(
        &self,
        key: &Key,
        steps: &[Step],
        outcome: &Outcome,
        sets: &[SeenSet],
    ) -> Option<ObjectRef> {
        let mut news = None;
        telemetry::wrote(key, outcome);
        let done = outcome.of(steps);
        let written = done.filter_map(|(step, done)| Some((done?.written(step)?, done?)));
        for (step, done) in written {
            let left = done.left.as_deref();
            self.connections.component_changed(step.target());
            let concerned = self.memory.lock().wrote(key, step, done);
            let now = self.unreported(step, left);
            if now.is_some_and(|now| sets.iter().any(|set| set.concerns(step.target(), now))) {
                news = Some(step.target().clone());
            }
            for other in concerned {
                let cause = Cause::Input(step.target().clone());
                self.queues.push(&other, Queued::Reconcile(cause));
            }
            let made_by = |policy: &Policy| match step {
                Step::Create { desired } | Step::Update { desired, .. } => policy.has_made(desired),
                Step::Patch { .. } | Step::Delete { .. } => false,
            };
            for queue in self.queues.all() {
                let loaded = queue.loaded();
                let policy = &loaded.revision.policy;
                let other = (&queue.policy, step.target()) != (&key.policy, &key.primary);
                if other && policy.primary.admits(step.target()) && !made_by(policy) {
                    queue.push(step.target(), Queued::Updated, None);
                }
            }
        }
        news
    }
}

/// Which of the steps to the primary, counted from 0, writes the fields that are desired of it.
fn to_fields(plan: &Plan) -> Option<usize> {
    let steps = plan.steps.iter();
    let mut of_primary = steps.filter(|step| *step.target() == plan.primary);
    of_primary.position(|step| !step.is_of_finalizers())
}

/// Whether this one of the steps to the primary was carried out. After one that failed, none to the primary is tried.
fn is_done(step: Option<usize>, key: &Key, outcome: &Outcome) -> bool {
    let steps = outcome.steps.iter();
    let done = steps.filter(|step| step.target == *key.primary && step.result.is_ok());
    let done = done.count();
    step.is_some_and(|step| step < done)
}

/// Whether a step changed nothing, as far as is known. What a webhook changed while it was written is in place.
fn is_unwritten(done: &StepOutcome) -> bool {
    let failed = done.result.as_ref().err().map(|failure| failure.reason);
    !done.has_written() && failed != Some(KnownReason::AdmissionChanged)
}

/// The primary as the last write to it left it, where that is known.
fn left_by(outcome: &mut Outcome, key: &Key) -> Option<Box<Object>> {
    let mut steps = outcome.steps.iter_mut().rev();
    let last = steps.find(|step| step.target == *key.primary && step.has_written());
    last.and_then(|step| step.left.take())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_api::KnownReason;
    use transom_core::plan::WriteFailure;

    #[test]
    fn fields_that_stand_behind_a_failed_write_are_not_written() {
        let primary = ObjectRef::local("v1", "Node", None, "n");
        let role = ObjectRef::local("v1", "Role", Some("n"), "r");
        let key = Key::new(&"p".into(), &primary);
        let patch = |object: &ObjectRef, path: &str| Step::Patch {
            reference: object.clone(),
            version: "1".to_owned(),
            fields: vec![(path.to_owned(), json!(null))],
        };
        let finalizer = patch(&primary, "metadata.finalizers");
        let mut plan = Plan::new(&key, None);
        plan.steps = vec![
            finalizer.clone(),
            patch(&role, "rules"),
            patch(&primary, "spec.taints"),
            patch(&role, "x"),
        ];
        // As many steps succeed, and the next one fails.
        let written = |succeed: usize| {
            let steps = plan.steps.iter().take(succeed + 1).enumerate();
            let steps = steps.map(|(at, step)| {
                let failure = WriteFailure {
                    reason: KnownReason::AdmissionRefused,
                    message: String::new(),
                };
                let result = if at < succeed { Ok(None) } else { Err(failure) };
                StepOutcome::of(step.target().clone(), step.kind(), result)
            });
            let (steps, stopped) = (steps.collect(), None);
            is_done(to_fields(&plan), &key, &Outcome { steps, stopped })
        };
        let all = [0, 1, 2, 3, 4].map(written);
        assert_eq!(all, [false, false, false, true, true]);
        // They are right, or could not be planned.
        let none = Plan::new(&key, Some(finalizer));
        assert_eq!(to_fields(&none), None);
    }

    #[test]
    fn the_last_write_says_how_the_primary_was_left() {
        let primary = ObjectRef::local("v1", "Node", None, "n");
        let key = Key::new(&"p".into(), &primary);
        let patched = |version: Option<&str>| {
            let left = version.map(|version| Object {
                reference: primary.clone(),
                version: version.to_owned(),
                body: json!({}),
            });
            StepOutcome::of(primary.clone(), WriteKind::Patch, Ok(left))
        };
        let left = |steps: Vec<StepOutcome>| {
            let stopped = None;
            let left = left_by(&mut Outcome { steps, stopped }, &key);
            left.map(|left| left.version)
        };
        let known = left(vec![patched(Some("1")), patched(Some("2"))]);
        assert_eq!(known.as_deref(), Some("2"));
        // Somebody else wrote it since.
        assert_eq!(left(vec![patched(Some("1")), patched(None)]), None);
        assert_eq!(left(Vec::new()), None);
    }
}
