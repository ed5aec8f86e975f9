//! Plans one desire, and decides which of the later ones are still planned when that is not possible: [`StepError`] has
//! the cases, and [`StillPlanned`] what each of them leaves.

use super::contention::Contentions;
use super::desired::Desired;
use super::{PlanInput, PlannedFields, Step, absent, fields, finalizer, remove, unnamed, whole};
use crate::failure::Failure;
use crate::policy::rbac;
use crate::reference::ObjectRef;
use transom_api::KnownReason;

/// Which of the later desires are still planned after one failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StillPlanned {
    All,
    /// The fields of objects of others, until something else comes.
    FieldsOfOthers,
    /// The removals of objects that the policy makes: they must not wait for another object that cannot be made. An
    /// object of others stays, because its replacement may be that object.
    Removals,
    /// Only removals of objects that give rights: blocking another object must not keep a right in place.
    Rights,
}

impl StillPlanned {
    pub(super) fn has(self, wanting: &PlanInput<'_>, one: &Desired<'_>) -> bool {
        match self {
            Self::All => true,
            Self::FieldsOfOthers => is_of_others(one, &wanting.primary.reference),
            Self::Removals => is_own_removal(wanting, one),
            Self::Rights => takes_rights(wanting, one),
        }
    }

    /// The same after one of them was left out.
    pub(super) fn after_skipping(self) -> Self {
        match self {
            Self::FieldsOfOthers => Self::Rights,
            rest => rest,
        }
    }
}

/// Why there is no step to what is desired.
pub(super) enum StepError {
    /// Nothing at all is planned.
    Fails(Failure),
    /// Only these of the later desires are planned.
    Waits(Failure, StillPlanned),
    /// A removal that may be possible later: all later desires are planned, but the plan does not count as whole.
    Later(Failure),
    /// A removal of an object that is not ours; it holds nothing up.
    Refused(Failure),
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        Self::Fails(failure)
    }
}

/// Checks that the guest named an object among its targets, so that an answer that breaks the contract fails before its
/// first write.
///
/// # Errors
/// `ContractBroken`.
pub(super) fn named(wanting: &PlanInput<'_>, one: &Desired<'_>) -> Result<(), Failure> {
    let of_others = |object: &ObjectRef| {
        let mut others = wanting.others.iter();
        others.any(|other| other.object == *object)
    };
    let (object, wants, is_named) = match one {
        Desired::Whole(one) => (&one.object, "wants", makes(wanting, &one.object)),
        Desired::Fields(one) => {
            let is_primary = one.object == wanting.primary.reference;
            (
                &one.object,
                "wants fields of",
                is_primary || of_others(&one.object),
            )
        }
        Desired::Gone(object) => (
            object,
            "removes",
            makes(wanting, object) || of_others(object),
        ),
        Desired::Finalizer => return Ok(()),
    };
    match is_named {
        true => Ok(()),
        false => Err(unnamed(wants, object)),
    }
}

/// Plans one of all that is desired. One without a step is like a write that fails: what stands before it is written
/// all the same.
pub(super) fn step(
    wanting: &PlanInput<'_>,
    one: &Desired<'_>,
    contentions: &Contentions,
) -> Result<Vec<Step>, StepError> {
    match one {
        Desired::Whole(one) => {
            whole::plan(wanting, one, contentions).map_err(|failure| match remove::is_kept_from_us(
                &failure,
            ) {
                true => StepError::Waits(failure, StillPlanned::Removals),
                false => hindered(failure),
            })
        }
        Desired::Fields(fields) => match fields::plan(wanting, fields, contentions) {
            Ok(PlannedFields::Step(step)) => Ok(step.into_iter().collect()),
            Ok(PlannedFields::Absent) => {
                // When it comes back, others made it anew.
                contentions.gone(wanting.key, &fields.object);
                Err(StepError::Waits(
                    absent(&fields.object),
                    StillPlanned::Rights,
                ))
            }
            Err(failure)
                if is_of_others(one, &wanting.primary.reference) && is_contended(&failure) =>
            {
                Err(StepError::Waits(failure, StillPlanned::FieldsOfOthers))
            }
            Err(failure) => Err(hindered(failure)),
        },
        Desired::Gone(object) => {
            gone(wanting, object, contentions).map(|step| step.into_iter().collect())
        }
        Desired::Finalizer => Ok(finalizer::keep(wanting).into_iter().collect()),
    }
}

/// Plans a removal. If an object has to stay, all other steps are still carried out: whoever writes the object of a
/// removal may label it as they like, and must not keep the rest in place by that.
fn gone(
    wanting: &PlanInput<'_>,
    object: &ObjectRef,
    contentions: &Contentions,
) -> Result<Option<Step>, StepError> {
    let makes = makes(wanting, object);
    let pending = |failure: &Failure| {
        let reasons = [KnownReason::OwnershipPending, KnownReason::StillNeeded];
        reasons.iter().any(|one| failure.reason == (*one).into())
    };
    remove::plan(wanting, object, contentions).map_err(|failure| match makes {
        true if remove::is_kept_from_us(&failure) => StepError::Refused(failure),
        true if pending(&failure) || is_contended(&failure) => StepError::Later(failure),
        false if remove::is_left_alone(&failure) => StepError::Later(failure),
        _ => StepError::Fails(failure),
    })
}

/// How a desire without a step affects the others: if only its object is at fault, the earlier ones and removals of
/// rights are still planned.
fn hindered(failure: Failure) -> StepError {
    use KnownReason::{Contended, InputTerminating, InvalidObject, StillNeeded, TargetImmutable};
    let of_object = [
        Contended,
        InputTerminating,
        InvalidObject,
        StillNeeded,
        TargetImmutable,
    ];
    let is_of_object = of_object
        .iter()
        .any(|reason| failure.reason == (*reason).into());
    match is_of_object {
        true => StepError::Waits(failure, StillPlanned::Rights),
        false => StepError::Fails(failure),
    }
}

/// Whether the policy makes an object.
fn makes(wanting: &PlanInput<'_>, object: &ObjectRef) -> bool {
    let mut targets = wanting.targets.iter();
    targets.any(|claimed| claimed.object == *object)
}

fn is_own_removal(wanting: &PlanInput<'_>, one: &Desired<'_>) -> bool {
    matches!(one, Desired::Gone(object) if makes(wanting, object))
}

fn takes_rights(wanting: &PlanInput<'_>, one: &Desired<'_>) -> bool {
    let gives = |object: &ObjectRef| rbac::gives_rights(&object.api_version);
    matches!(one, Desired::Gone(object) if makes(wanting, object) && gives(object))
}

fn is_of_others(one: &Desired<'_>, primary: &ObjectRef) -> bool {
    matches!(one, Desired::Fields(one) if one.object != *primary)
}

fn is_contended(failure: &Failure) -> bool {
    failure.reason == KnownReason::Contended.into()
}
