//! The result of a plan, step by step.

use super::desired::Desired;
use super::kept::Kept;
use super::{Plan, Step};
use crate::contract::decide::FailedWrite;
use crate::failure::Failure;
use crate::object::Object;
use crate::policy::rbac;
use crate::reference::ObjectRef;
use std::collections::BTreeSet;
use transom_api::{KnownReason, Reason};

/// The result of every step of a plan, in order; steps after a failed one are tried as far as it permits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// One entry for each step that was tried.
    pub steps: Vec<StepOutcome>,
    /// Why the remaining steps are not tried now, when no write failed.
    pub stopped: Option<Failure>,
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// What was written.
    pub target: ObjectRef,
    /// Which kind of write.
    pub kind: WriteKind,
    /// How it ended.
    pub result: Result<(), WriteFailure>,
    /// Of a step that failed: the part of it that was written all the same, by a request before the one that failed.
    pub part: Option<Box<Step>>,
    /// The object as the write left it, when a read still returns it: no later change is known.
    pub left: Option<Box<Object>>,
    /// What the cluster made of the values that were written.
    pub kept: Kept,
}

impl StepOutcome {
    /// What became of a write of an object: what a read returns of it now, if that is known, or why it failed.
    pub fn of(
        target: ObjectRef,
        kind: WriteKind,
        result: Result<Option<Object>, WriteFailure>,
    ) -> Self {
        let (result, left) = match result {
            Ok(left) => (Ok(()), left.map(Box::new)),
            Err(failure) => (Err(failure), None),
        };
        Self {
            target,
            kind,
            result,
            part: None,
            left,
            kept: Kept::default(),
        }
    }

    /// The result of a step that failed after a part of it was written; `left` and `kept` are of that part.
    pub fn in_part(step: &Step, failure: WriteFailure, part: Step, left: Option<Object>) -> Self {
        Self {
            part: Some(Box::new(part)),
            left: left.map(Box::new),
            ..Self::failed(step, failure)
        }
    }

    /// What is in place of the step that this is the result of: all of it, or the part that was written.
    pub fn written<'a>(&'a self, step: &'a Step) -> Option<&'a Step> {
        match self.result {
            Ok(()) => Some(step),
            Err(_) => self.part.as_deref(),
        }
    }

    /// Whether anything was written.
    pub fn has_written(&self) -> bool {
        self.result.is_ok() || self.part.is_some()
    }

    /// The same with what the cluster made of the values that were written.
    #[must_use]
    pub fn keeping(mut self, kept: Kept) -> Self {
        self.kept = kept;
        self
    }

    /// The result of a step that changed nothing.
    pub fn failed(step: &Step, failure: WriteFailure) -> Self {
        Self::of(step.target().clone(), step.kind(), Err(failure))
    }
}

/// Which kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// A new object.
    Create,
    /// A replaced object.
    Update,
    /// Changed fields.
    Patch,
    /// A removed object.
    Delete,
}

impl WriteKind {
    /// What was done, in a sentence about the object.
    pub fn past(self) -> &'static str {
        match self {
            Self::Create => "created",
            Self::Update => "updated",
            Self::Patch => "patched",
            Self::Delete => "deleted",
        }
    }
}

/// Why a write did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// `WriteConflict` when the object is not as it was read, `ReadOnly`, or why a cluster refused.
    pub reason: KnownReason,
    /// What was attempted on what, and why it failed.
    pub message: String,
}

/// What a plan says of the first object without a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unplanned {
    /// Everything has its steps.
    #[default]
    Nothing,
    /// That passes by itself, or is not said of the object.
    PutOff,
    /// The object cannot be written: its guest is told as of a write that failed. With the objects that the answer
    /// removes, which count after it.
    Failed(FailedWrite, BTreeSet<ObjectRef>),
}

impl Outcome {
    /// The first write that failed.
    pub fn failure(&self) -> Option<(&ObjectRef, &WriteFailure)> {
        self.steps.iter().find_map(|step| {
            step.result
                .as_ref()
                .err()
                .map(|failure| (&step.target, failure))
        })
    }

    /// Each step of its plan with how it ended; none for one that was not tried.
    pub fn of<'a>(
        &'a self,
        steps: &'a [Step],
    ) -> impl Iterator<Item = (&'a Step, Option<&'a StepOutcome>)> {
        let mut done = self.steps.iter().peekable();
        steps.iter().map(move |step| {
            let is =
                |done: &&StepOutcome| (&done.target, done.kind) == (step.target(), step.kind());
            (step, done.next_if(is))
        })
    }

    /// Whether a step of a plan is carried out after these. A step runs if all steps before it succeeded. Exceptions:
    ///
    /// - A removal also runs after removals that an admission webhook or another writer refused: each concerns one
    ///   object.
    /// - A step that takes a right away also runs after any write that failed because of its one object: who can block
    ///   that object must not keep the right.
    /// - A pruned object always waits for what is desired: nothing is pruned until everything is written.
    /// - An object that is made anew is removed only if it can be made as well: after any failed write it stays.
    pub fn permits(&self, plan: &Plan, next: &Step) -> bool {
        let takes_right = takes_right(&plan.primary, next);
        let is_pruned = |target: &ObjectRef| plan.pruned.contains(target);
        let next_is_pruned = is_pruned(next.target());
        let of_one_object = |step: &StepOutcome| {
            let Err(WriteFailure { reason, .. }) = step.result else {
                return true;
            };
            let says_of_object = says_of_object(reason);
            let waits = next_is_pruned && !is_pruned(&step.target);
            if takes_right && says_of_object && !waits {
                return true;
            }
            matches!(
                (step.kind, reason, next.kind()),
                (
                    WriteKind::Delete,
                    KnownReason::AdmissionRefused | KnownReason::WriteConflict,
                    WriteKind::Delete
                )
            )
        };
        let is_remade = plan.remade.contains(next.target());
        let mut steps = self.steps.iter();
        steps.all(|step| step.result.is_ok() || !is_remade && of_one_object(step))
    }

    /// The failed write that a guest gets as an input; `before` is the earlier one. That stays after what passes by
    /// itself and after a step that was not planned or not tried: these say nothing about the object. An object that
    /// cannot be written counts before one that cannot be removed.
    pub fn failed_write(
        &self,
        unplanned: Unplanned,
        before: Option<FailedWrite>,
    ) -> Option<FailedWrite> {
        let mut steps = self.steps.iter();
        let failed = steps.find_map(|step| Some((step, step.result.as_ref().err()?.reason)));
        let failed = failed.filter(|(_, reason)| !is_only_put_off(*reason));
        match (failed, unplanned) {
            (Some((step, _)), Unplanned::Failed(told, removed))
                if removed.contains(&step.target) =>
            {
                Some(told)
            }
            (Some((step, reason)), _) => Some(failed_write(&step.target, reason)),
            (None, Unplanned::Failed(told, _)) => Some(told),
            (None, Unplanned::Nothing) if self.is_whole() => None,
            (None, _) => before.filter(|before| !self.has_written(&before.object)),
        }
    }

    /// Whether an object was written, all of it, and is there.
    fn has_written(&self, object: &ObjectRef) -> bool {
        let mut steps = self.steps.iter().rev();
        let last = steps.find(|step| step.target == *object);
        last.is_some_and(|step| step.result.is_ok() && step.kind != WriteKind::Delete)
    }

    /// Whether every step was tried and succeeded.
    pub fn is_whole(&self) -> bool {
        self.stopped.is_none() && self.failure().is_none()
    }
}

/// Whether a failure is about the object that was written, and not about the cluster or the agent: each other write may
/// succeed all the same.
fn says_of_object(reason: KnownReason) -> bool {
    use KnownReason as R;
    matches!(
        reason,
        R::AdmissionChanged
            | R::AdmissionRefused
            | R::InputTerminating
            | R::KindMissing
            | R::ObjectTooLarge
            | R::QuotaExceeded
            | R::TargetImmutable
            | R::TargetNamespaceMissing
            | R::TargetNotOwned
            | R::WriteConflict
            | R::WriteForbidden
            | R::WriteInvalid
    )
}

/// Whether a write that failed so is only tried again: a conflict, a namespace that is being deleted, a server that
/// does not answer, or an agent that may not write now.
fn is_only_put_off(reason: KnownReason) -> bool {
    use KnownReason as R;
    matches!(
        reason,
        R::InputTerminating | R::NotLeading | R::ReadOnly | R::ServerUnavailable | R::WriteConflict
    )
}

impl Unplanned {
    /// An object for which no step could be planned.
    pub(super) fn of(object: &ObjectRef, failure: &Failure, desired: &[Desired<'_>]) -> Self {
        let removed = |one: &Desired<'_>| match one {
            Desired::Gone(object) => Some(object.clone()),
            _ => None,
        };
        match failure.reason {
            Reason::Known(reason) if says_of_object(reason) && !is_only_put_off(reason) => {
                let removed = desired.iter().filter_map(removed);
                Self::Failed(failed_write(object, reason), removed.collect())
            }
            _ => Self::PutOff,
        }
    }
}

fn failed_write(object: &ObjectRef, reason: KnownReason) -> FailedWrite {
    FailedWrite {
        object: object.clone(),
        reason: reason.as_str().to_owned(),
    }
}

/// Whether a step takes a right away: it removes a role or a binding, or lets go of one that is being deleted.
fn takes_right(primary: &ObjectRef, step: &Step) -> bool {
    let target = step.target();
    let ends = matches!(step, Step::Delete { .. }) || step.is_of_finalizers();
    ends && target != primary && rbac::gives_rights(&target.api_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn failed(reason: KnownReason) -> FailedWrite {
        of("c1", reason)
    }

    fn of(name: &str, reason: KnownReason) -> FailedWrite {
        FailedWrite {
            object: ObjectRef::local("v1", "Namespace", None, name),
            reason: reason.as_str().to_owned(),
        }
    }

    fn of_role(name: &str, reason: KnownReason) -> FailedWrite {
        FailedWrite {
            object: role(name),
            reason: reason.as_str().to_owned(),
        }
    }

    fn target() -> ObjectRef {
        ObjectRef::local("v1", "Namespace", None, "c1")
    }

    fn role(name: &str) -> ObjectRef {
        let api_version = "rbac.authorization.k8s.io/v1";
        ObjectRef::local(api_version, "ClusterRole", None, name)
    }

    fn delete(reference: ObjectRef) -> Step {
        Step::Delete {
            reference,
            version: "1".to_owned(),
            uid: String::new(),
            why: String::new(),
        }
    }

    /// A plan without steps.
    fn plan(primary: ObjectRef) -> Plan {
        Plan {
            policy: "p".to_owned(),
            primary,
            steps: Vec::new(),
            pruned: BTreeSet::new(),
            remade: BTreeSet::new(),
        }
    }

    fn ending(result: Result<(), KnownReason>) -> Outcome {
        let message = String::new();
        let result = result.map_err(|reason| WriteFailure { reason, message });
        let step = StepOutcome {
            target: target(),
            kind: WriteKind::Create,
            result,
            part: None,
            left: None,
            kept: Kept::default(),
        };
        Outcome {
            steps: vec![step],
            stopped: None,
        }
    }

    #[test]
    fn a_removal_that_is_refused_holds_up_no_other_removal() {
        use KnownReason::{AdmissionRefused, ServerUnavailable, WriteConflict, WriteForbidden};
        let delete = delete(target());
        let patch = Step::Patch {
            reference: target(),
            version: "1".to_owned(),
            fields: Vec::new(),
        };
        let plan = plan(ObjectRef::local("v1", "Node", None, "n"));
        let after = |kind, result: Result<(), KnownReason>| {
            let mut outcome = ending(result);
            outcome.steps[0].kind = kind;
            [&delete, &patch].map(|next| outcome.permits(&plan, next))
        };
        let (both, neither) = ([true, true], [false, false]);
        assert_eq!(after(WriteKind::Patch, Ok(())), both);
        for reason in [AdmissionRefused, WriteConflict] {
            assert_eq!(after(WriteKind::Delete, Err(reason)), [true, false]);
            assert_eq!(after(WriteKind::Patch, Err(reason)), neither);
        }
        for reason in [WriteForbidden, ServerUnavailable] {
            assert_eq!(after(WriteKind::Delete, Err(reason)), neither);
        }
    }

    #[test]
    fn what_takes_a_right_away_is_held_up_by_no_other_object() {
        use KnownReason::{
            AdmissionChanged, AdmissionRefused, InputTerminating, KindMissing, NotLeading,
            ObjectTooLarge, QuotaExceeded, ReadOnly, ServerUnavailable, TargetImmutable,
            TargetNamespaceMissing, WriteConflict, WriteFailed, WriteForbidden, WriteInvalid,
        };
        let plan = plan(role("primary"));
        let patch = |reference, path: &str| Step::Patch {
            reference,
            version: "1".to_owned(),
            fields: vec![(path.to_owned(), serde_json::Value::Null)],
        };
        let finalizers = "metadata.finalizers";
        let takes = [delete(role("r")), patch(role("r"), finalizers)];
        // Of the primary it is the release, which comes last, and data may be what the failed write was to replace.
        let others = [
            patch(role("primary"), finalizers),
            patch(role("r"), "rules"),
            delete(ObjectRef::local("v1", "ConfigMap", Some("n"), "c")),
        ];
        for kind in [WriteKind::Create, WriteKind::Update, WriteKind::Patch] {
            let after = |reason, next: &Step| {
                let mut outcome = ending(Err(reason));
                outcome.steps[0].kind = kind;
                outcome.permits(&plan, next)
            };
            for reason in [
                AdmissionChanged,
                AdmissionRefused,
                InputTerminating,
                KindMissing,
                ObjectTooLarge,
                QuotaExceeded,
                TargetImmutable,
                TargetNamespaceMissing,
                WriteConflict,
                WriteForbidden,
                WriteInvalid,
            ] {
                assert!(takes.iter().all(|next| after(reason, next)), "{reason:?}");
                assert!(!others.iter().any(|next| after(reason, next)), "{reason:?}");
            }
            for reason in [NotLeading, ReadOnly, ServerUnavailable, WriteFailed] {
                assert!(!takes.iter().any(|next| after(reason, next)), "{reason:?}");
            }
        }
    }

    #[test]
    fn what_is_pruned_waits_until_all_that_is_desired_is_written() {
        let mut plan = plan(ObjectRef::local("v1", "Node", None, "n"));
        plan.prune(vec![delete(role("former"))]);
        let [former] = plan.steps.as_slice() else {
            panic!("{plan:?}")
        };
        let removed = delete(role("removed"));
        for reason in [KnownReason::AdmissionRefused, KnownReason::QuotaExceeded] {
            let mut outcome = ending(Err(reason));
            assert!(outcome.permits(&plan, &removed), "{reason:?}");
            assert!(!outcome.permits(&plan, former), "{reason:?}");
            // Another pruned object holds up no right.
            outcome.steps[0].kind = WriteKind::Delete;
            let mut both = plan.clone();
            both.prune(vec![delete(target())]);
            assert!(outcome.permits(&both, former), "{reason:?}");
        }
        assert!(ending(Ok(())).permits(&plan, former));
    }

    #[test]
    fn a_step_that_was_not_tried_has_no_outcome() {
        let named = |name: &str| delete(ObjectRef::local("v1", "Namespace", None, name));
        let steps = ["a", "b", "c"].map(named);
        let done =
            |at: usize| StepOutcome::of(steps[at].target().clone(), steps[at].kind(), Ok(None));
        let outcome = Outcome {
            steps: vec![done(0), done(2)],
            stopped: None,
        };
        let tried: Vec<bool> = outcome.of(&steps).map(|(_, done)| done.is_some()).collect();
        assert_eq!(tried, [true, false, true]);
    }

    #[test]
    fn a_guest_is_told_of_a_write_that_was_refused_and_of_none_that_is_only_tried_again() {
        use KnownReason::{
            InputTerminating, NotLeading, ReadOnly, ServerUnavailable, WriteConflict, WriteFailed,
            WriteForbidden, WriteInvalid,
        };
        let before = || Some(failed(KnownReason::QuotaExceeded));
        for (result, told) in [
            (Err(WriteForbidden), Some(failed(WriteForbidden))),
            (Err(WriteInvalid), Some(failed(WriteInvalid))),
            // In a folder it is what a file of the user defines.
            (Err(WriteFailed), Some(failed(WriteFailed))),
            (Err(WriteConflict), before()),
            (Err(ServerUnavailable), before()),
            (Err(InputTerminating), before()),
            (Err(NotLeading), before()),
            (Err(ReadOnly), before()),
            (Ok(()), None),
        ] {
            let outcome = ending(result);
            let failed = outcome.failed_write(Unplanned::Nothing, before());
            assert_eq!(failed, told, "{result:?}");
        }
        let nothing = Outcome::default();
        assert_eq!(nothing.failed_write(Unplanned::Nothing, before()), None);
        let mut stopped = ending(Ok(()));
        stopped.stopped = Some(Failure::known(KnownReason::WriteBudgetExceeded, ""));
        let other = || Some(of("other", KnownReason::QuotaExceeded));
        assert_eq!(stopped.failed_write(Unplanned::Nothing, other()), other());
    }

    #[test]
    fn a_guest_is_told_of_an_object_without_a_step_like_a_write_that_failed() {
        use KnownReason::{
            Contended, OwnedByAnother, QuotaExceeded, ServerUnavailable, TargetMissing,
            TargetNotOwned, WriteConflict, WriteForbidden,
        };
        let removed = [Desired::Gone(role("removed"))];
        let unplanned = |reason| {
            let object = ObjectRef::local("v1", "Namespace", None, "unplanned");
            Unplanned::of(&object, &Failure::known(reason, ""), &removed)
        };
        let told = || Some(of("unplanned", TargetNotOwned));
        let (before, was) = (
            || Some(of("other", QuotaExceeded)),
            Some(failed(QuotaExceeded)),
        );
        let wrote = || ending(Ok(()));
        let refused = ending(Err(WriteForbidden));
        let mut stays = refused.clone();
        for step in &mut stays.steps {
            (step.kind, step.target) = (WriteKind::Delete, role("removed"));
        }
        // It was to be made anew.
        let mut remains = refused.clone();
        for step in &mut remains.steps {
            step.kind = WriteKind::Delete;
        }
        let mut halfway = wrote();
        for step in &mut halfway.steps {
            step.kind = WriteKind::Delete;
        }
        halfway.steps.extend(ending(Err(ServerUnavailable)).steps);
        for (outcome, reason, before, expected) in [
            (Outcome::default(), TargetNotOwned, before(), told()),
            (wrote(), TargetNotOwned, before(), told()),
            (ending(Err(WriteConflict)), TargetNotOwned, before(), told()),
            // The first write that failed comes first, but not what stays.
            (
                refused.clone(),
                TargetNotOwned,
                before(),
                Some(failed(WriteForbidden)),
            ),
            (stays.clone(), TargetNotOwned, before(), told()),
            (
                stays,
                Contended,
                before(),
                Some(of_role("removed", WriteForbidden)),
            ),
            (
                remains,
                TargetNotOwned,
                before(),
                Some(failed(WriteForbidden)),
            ),
            // What passes by itself says nothing of another object, but a write of that does.
            (Outcome::default(), OwnedByAnother, before(), before()),
            (wrote(), Contended, before(), before()),
            (wrote(), TargetMissing, was.clone(), None),
            (halfway, Contended, was.clone(), was),
        ] {
            let failed = outcome.failed_write(unplanned(reason), before);
            assert_eq!(failed, expected, "{outcome:?} {reason:?}");
        }
    }
}
