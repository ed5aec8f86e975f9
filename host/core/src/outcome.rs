//! The result of a plan, step by step.

use crate::failure::Failure;
use crate::object::Object;
use crate::plan::Step;
use crate::reference::ObjectRef;
use transom_api::KnownReason;

/// The result of every step of a plan, in order; steps after a failed one are not tried.
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
    /// The object as the write left it, when a read still returns it: no later change is known.
    pub left: Option<Box<Object>>,
}

impl StepOutcome {
    /// The result of a step that changed nothing.
    pub fn failed(step: &Step, failure: WriteFailure) -> Self {
        Self {
            target: step.target().clone(),
            kind: step.kind(),
            result: Err(failure),
            left: None,
        }
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

    /// Whether every step was tried and succeeded.
    pub fn is_whole(&self) -> bool {
        self.stopped.is_none() && self.failure().is_none()
    }
}
