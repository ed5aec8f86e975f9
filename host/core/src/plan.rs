//! The plan: ordered steps with every decision made. Printing it is the dry run.

pub mod brake;
pub mod contention;
pub mod handover;
pub mod kubeconfig;
pub mod prune;
pub mod taints;

use crate::object::Object;
use crate::outcome::WriteKind;
use crate::reference::ObjectRef;
use crate::work::Key;
use serde_json::Value;

/// What will be written for one primary under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the policy.
    pub policy: String,
    /// The primary.
    pub primary: ObjectRef,
    /// In the order in which they are applied; empty when everything is in sync.
    pub steps: Vec<Step>,
}

impl Plan {
    /// A plan of at most one step.
    pub fn new(key: &Key, step: Option<Step>) -> Self {
        Self {
            policy: key.policy.to_string(),
            primary: (*key.primary).clone(),
            steps: step.into_iter().collect(),
        }
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
    /// Remove an object that the policy made.
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
    /// The object that the step writes.
    pub fn target(&self) -> &ObjectRef {
        match self {
            Self::Create { desired } | Self::Update { desired, .. } => &desired.reference,
            Self::Patch { reference, .. } | Self::Delete { reference, .. } => reference,
        }
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
