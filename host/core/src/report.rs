//! What one evaluation came to: state, reason, message, and when to look again. Never tells anybody itself.

use crate::outcome::WriteKind;
use crate::reference::ObjectRef;
use transom_api::{Reason, State};

/// The end of every evaluation; success and failure both end here.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Name of the policy.
    pub policy: String,
    /// The subject.
    pub subject: ObjectRef,
    /// Its state under the policy.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// For people: what is wrong with what, or what was done.
    pub message: String,
    /// The target, when it is known.
    pub target: Option<ObjectRef>,
    /// What was written by this evaluation.
    pub writes: Vec<(WriteKind, ObjectRef)>,
    /// Digest of the inputs that were judged, when they were gathered.
    pub inputs: Option<String>,
    /// Generation of the subject that was judged, when it has one.
    pub observed_generation: Option<i64>,
    /// When this was found, in seconds since 1970.
    pub at_seconds: i64,
    /// When the subject is evaluated again even if nothing changes, in milliseconds from now.
    pub again_after_ms: Option<u64>,
}
