//! One planner for all worlds: from what a policy wants to be there to ordered steps with every decision made.
//! Printing the plan is the dry run.

mod adopt;
mod agreed;
pub mod conditions;
pub mod contention;
mod course;
pub mod desired;
pub mod effect;
mod fields;
pub mod finalizer;
pub mod fleet;
pub mod form;
mod immutable;
pub mod kept;
mod outcome;
pub mod prune;
pub mod remove;
mod whole;
pub mod write_limit;

pub use outcome::{Outcome, StepOutcome, Unplanned, WriteFailure, WriteKind};
pub use whole::unlocated;

use crate::failure::Failure;
use crate::object::Object;
use crate::ownership::Ownership;
use crate::pattern::TemplateData;
use crate::policy::{Policy, WriteRule};
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use contention::Contentions;
use course::{StepError, StillPlanned};
use desired::Desired;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::KnownReason;

/// The name under which a policy writes, as API servers note it in `managedFields`.
pub fn field_manager(policy: &str) -> String {
    format!("transom-{policy}")
}

/// What a plan depends on beside what is desired.
#[derive(Clone, Debug)]
pub struct PlanInput<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Policy and primary by name.
    pub key: &'a Key,
    /// The values for the templates of the grant.
    pub data: TemplateData<'a>,
    /// The primary as it is.
    pub primary: &'a Object,
    /// The objects that the policy may make, each as it is.
    pub targets: &'a [TargetState],
    /// The objects that others made and that the guest named, each as it is.
    pub others: &'a [Other],
    /// The stamp to put on what is made.
    pub stamp: &'a Stamp,
    /// Who sets the times of new elements in lists of the primary.
    pub time_added: TimeAdded,
    /// Seconds since 1970.
    pub now_seconds: i64,
}

/// An object that a policy may make for a primary, as it is.
#[derive(Clone, Debug)]
pub struct TargetState {
    /// Which object.
    pub object: ObjectRef,
    /// As it is; `None` when it is not there.
    pub existing: Option<Arc<Object>>,
    /// The answer of [`crate::ownership::OwnershipIndex::decide`] for it.
    pub ownership: Ownership,
    /// Why it is not taken over now from the primary that it was made for ([`prune::Handover::permit`]).
    pub withheld: Option<Failure>,
}

/// An object that others made and that a policy may write, as it is.
#[derive(Clone, Debug)]
pub struct Other {
    /// Which object.
    pub object: ObjectRef,
    /// As it is; `None` when it is not there.
    pub existing: Option<Arc<Object>>,
}

/// Who sets the time of an element that is added or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeAdded {
    /// A webhook of the cluster: the field is left out.
    SetByCluster,
    /// The agent, to this time in seconds since 1970.
    SetByUs(i64),
}

/// As much of what is desired as can be written now.
#[derive(Clone, Debug, PartialEq)]
pub struct Feasible {
    /// The steps.
    pub plan: Plan,
    /// Why some desires have no step, and which of the later ones are still planned. The earlier ones all are:
    ///
    /// | reason | because | still planned |
    /// |---|---|---|
    /// | `TargetMissing` | fields are wanted of an object that does not exist | removals of roles and bindings that the policy makes |
    /// | `InputTerminating`, `Contended`, `TargetImmutable`, `InvalidObject` | one object is at fault | removals of roles and bindings |
    /// | `Contended` | others keep changing fields of an object of theirs | fields of objects of others |
    /// | `TargetNotOwned`, `OwnedByAnother` | an object to be made belongs to another | removals of objects that the policy makes |
    /// | `OwnershipPending`, `StillNeeded`, `Contended` | an object that the guest removes has to stay for now | everything |
    /// | `TargetNotOwned`, `WriteNotGranted` | an object of others that the guest removes is not one that a rule selects | everything |
    pub waits: Option<Failure>,
    /// What is said of the first object without which the rest waits.
    pub unplanned: Unplanned,
    /// Why an object that the policy makes and its guest removes has to stay: it has another owner. No other step waits
    /// for it.
    pub refused: Option<Failure>,
}

/// Plans a step for each desired value that differs from what is there, in order. The finalizer of the primary comes
/// first if the plan makes an object, and last otherwise. Records each object in `contentions`; call
/// [`contention::Contention::written`] after a successful write.
///
/// # Errors
/// `OwnedByAnother`, `OwnershipPending`, `InputTerminating`, `TargetNotOwned`, `TargetImmutable`, `WriteNotGranted`,
/// `InvalidObject`, `ContractBroken`, `Contended`.
pub fn plan(
    wanting: &PlanInput<'_>,
    desired: &[Desired<'_>],
    contentions: &Contentions,
) -> Result<Feasible, Failure> {
    let (primary, records) = (&wanting.primary.reference, &wanting.data.agent.records);
    let mut objects = desired.iter().map(|one| one.object(primary));
    objects.try_for_each(|object| records.spare(object))?;
    let others = with_made_once(wanting);
    let wanting = &PlanInput {
        others: &others,
        ..wanting.clone()
    };
    let mut feasible = Feasible {
        plan: Plan::new(wanting.key, None),
        waits: None,
        unplanned: Unplanned::Nothing,
        refused: None,
    };
    desired
        .iter()
        .try_for_each(|one| course::named(wanting, one))?;
    let (mut rest, mut later) = (StillPlanned::All, None);
    for one in desired {
        if !rest.has(wanting, one) {
            rest = rest.after_skipping();
        }
        if !rest.has(wanting, one) {
            continue;
        }
        match course::step(wanting, one, contentions) {
            Ok(steps) => feasible.plan.extend(one, steps),
            Err(StepError::Fails(failure)) => return Err(failure),
            Err(StepError::Waits(failure, next)) => {
                if feasible.waits.is_none() {
                    feasible.unplanned = Unplanned::of(one.object(primary), &failure, desired);
                }
                feasible.waits.get_or_insert(failure);
                rest = next;
            }
            Err(StepError::Later(failure)) => drop(later.get_or_insert(failure)),
            Err(StepError::Refused(failure)) => drop(feasible.refused.get_or_insert(failure)),
        }
    }
    agreed::note(wanting, desired, contentions);
    finalizer::defer(&mut feasible.plan.steps, wanting.primary);
    feasible.waits = feasible.waits.or(later);
    Ok(feasible)
}

/// The objects of others, with the objects that the policy only creates: once they exist, they belong to others.
fn with_made_once(wanting: &PlanInput<'_>) -> Vec<Other> {
    let is_made_once = |one: &&TargetState| {
        let rule = wanting.policy.whole(&one.object, &wanting.data);
        rule.is_ok_and(WriteRule::creates_only)
    };
    let made = wanting.targets.iter().filter(is_made_once);
    let made = made.map(|one| Other {
        object: one.object.clone(),
        existing: one.existing.clone(),
    });
    wanting.others.iter().cloned().chain(made).collect()
}

/// The objects that all primaries share, whose turn it is for this one, and that are not as it wants them.
pub fn lacking(
    wanting: &PlanInput<'_>,
    desired: &[Desired<'_>],
    contentions: &Contentions,
) -> BTreeSet<ObjectRef> {
    let whole = desired.iter().filter_map(|one| match one {
        Desired::Whole(one) => Some(one).filter(|one| wanting.policy.may_share(&one.object)),
        _ => None,
    });
    let lacking = whole.filter(|one| whole::lacks(wanting, one, contentions));
    lacking.map(|one| one.object.clone()).collect()
}

/// What becomes of fields of one object.
enum PlannedFields {
    /// The write, unless all is right.
    Step(Option<Step>),
    /// The object is not there.
    Absent,
}

/// The failure of an answer about an object that its guest did not name.
fn unnamed(wants: &str, object: &ObjectRef) -> Failure {
    let message = format!("the guest {wants} {object}, which is none of the targets that it named");
    Failure::known(KnownReason::ContractBroken, message)
}

fn absent(object: &ObjectRef) -> Failure {
    let message = format!("{object} does not exist, and the guest wants only fields of it");
    Failure::known(KnownReason::TargetMissing, message).about([object.clone()])
}

/// What will be written for one primary under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the policy.
    pub policy: String,
    /// The primary.
    pub primary: ObjectRef,
    /// In the order in which they are applied; empty when everything is in sync.
    pub steps: Vec<Step>,
    /// The objects of those steps that remove what is no longer desired. They come last.
    pub pruned: BTreeSet<ObjectRef>,
    /// The objects that are removed to be made anew.
    pub remade: BTreeSet<ObjectRef>,
}

impl Plan {
    /// A plan of steps that do not wait for others.
    pub fn new(key: &Key, steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            policy: key.policy.to_string(),
            primary: (*key.primary).clone(),
            steps: steps.into_iter().collect(),
            pruned: BTreeSet::new(),
            remade: BTreeSet::new(),
        }
    }

    /// Adds the steps to what is desired. A removal of an object that is wanted is the first half of making it anew.
    fn extend(&mut self, desired: &Desired<'_>, steps: Vec<Step>) {
        if matches!(desired, Desired::Whole(_)) {
            let removed = steps.iter().filter(|step| step.kind() == WriteKind::Delete);
            self.remade
                .extend(removed.map(|step| step.target().clone()));
        }
        self.steps.extend(steps);
    }

    /// Adds the steps that remove what is no longer desired: they wait for the earlier steps ([`Outcome::permits`]).
    pub fn prune(&mut self, steps: Vec<Step>) {
        let targets = steps.iter().map(|step| step.target().clone());
        self.pruned.extend(targets);
        self.steps.extend(steps);
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create an object that does not exist.
    Create {
        /// The whole object, stamp included.
        desired: Object,
    },
    /// Replace an object that the policy owns.
    Update {
        /// The whole object as it will be; its version is the one that was read, as precondition.
        desired: Object,
        /// Paths that differ, for people; without values.
        changed: Vec<String>,
    },
    /// Set fields of an object that a user owns.
    Patch {
        /// Which object.
        reference: ObjectRef,
        /// The version that was read, as precondition.
        version: String,
        /// Dotted path and its whole new value; null removes it.
        fields: Vec<(String, Value)>,
    },
    /// Remove an object.
    Delete {
        /// Which object.
        reference: ObjectRef,
        /// The version that was read, as precondition.
        version: String,
        /// The uid that was read, as precondition; empty where the cluster has none.
        uid: String,
        /// Why.
        why: String,
    },
}

impl Step {
    /// The removal of an object as it was read.
    fn delete(object: &Object, why: &str) -> Self {
        Self::Delete {
            reference: object.reference.clone(),
            version: object.version.clone(),
            uid: object.uid().to_owned(),
            why: why.to_owned(),
        }
    }

    /// The object that the step writes.
    pub fn target(&self) -> &ObjectRef {
        match self {
            Self::Create { desired } | Self::Update { desired, .. } => &desired.reference,
            Self::Patch { reference, .. } | Self::Delete { reference, .. } => reference,
        }
    }

    /// The same step, for the version at which an earlier step of the plan left the object.
    #[must_use]
    pub fn at(mut self, now: &str) -> Self {
        match &mut self {
            Self::Create { .. } => {}
            Self::Update { desired, .. } => now.clone_into(&mut desired.version),
            Self::Patch { version, .. } | Self::Delete { version, .. } => now.clone_into(version),
        }
        self
    }

    /// Which kind of write it is.
    pub fn kind(&self) -> WriteKind {
        match self {
            Self::Create { .. } => WriteKind::Create,
            Self::Update { .. } => WriteKind::Update,
            Self::Patch { .. } => WriteKind::Patch,
            Self::Delete { .. } => WriteKind::Delete,
        }
    }
}
