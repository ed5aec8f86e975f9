//! The closed list of signals; one place in the agent turns them into logs and metrics.

use crate::plan::WriteKind;
use crate::reference::ObjectRef;
use crate::work::Key;
use transom_api::KnownReason;

/// A signal about a primary or a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A trigger guest was asked and ignored a change.
    Ignored {
        /// Of which key.
        key: Key,
    },
    /// An object was written.
    Written {
        /// For which key.
        key: Key,
        /// Why, in one word.
        cause: &'static str,
        /// Which kind of write.
        kind: WriteKind,
        /// Which object.
        target: ObjectRef,
    },
    /// A resync found and repaired a difference that no event had reported.
    RepairedByResync {
        /// Of which key.
        key: Key,
        /// Which kind of write.
        kind: WriteKind,
        /// Which object.
        target: ObjectRef,
    },
    /// Something cannot be read; its last good state stays.
    Unreadable {
        /// The file, or the kind of a watch.
        place: String,
        /// Why, in one word.
        reason: KnownReason,
        /// Why, for people; without a value.
        message: String,
    },
    /// This place is readable again, or gone.
    Readable {
        /// The file, or the kind of a watch.
        place: String,
    },
    /// A guest logged a line that its policy lets it log.
    GuestLogged {
        /// For which key.
        key: Key,
        /// `debug`, `info` or `warn`.
        level: &'static str,
        /// The line, cut.
        line: String,
    },
}

/// A signal about a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicySignal {
    /// A policy was loaded for the first time.
    Loaded,
    /// A policy needs rights that RBAC cannot limit.
    Reaches {
        /// Which rights, for people.
        message: String,
    },
    /// A policy was swapped to another revision.
    Swapped,
    /// A new revision is a candidate, or has come to another gate.
    Candidate {
        /// Short digest of the revision.
        revision: String,
        /// The gate, in one word.
        gate: &'static str,
        /// Why it waits there, in one word.
        reason: KnownReason,
        /// Why, for people.
        message: String,
    },
    /// A revision was refused; the earlier one stays active, if there is one.
    Refused {
        /// Why, in one word.
        reason: KnownReason,
        /// Why, for people.
        message: String,
        /// Whether an earlier revision stays active.
        previous_revision_active: bool,
    },
    /// The earlier revision stays active within what the newest manifest allows.
    Bounded {
        /// Whether it is suspended.
        suspended: bool,
    },
    /// A refused policy was mended: the active revision is the newest again.
    Mended,
    /// A tag of a component means something else by now, which is not followed.
    TagMoved {
        /// Which tag, and what it means.
        message: String,
    },
    /// No tag of a policy means something else any more.
    TagReturned,
    /// A controller that the policy replaces runs.
    Conflicting {
        /// Which one, for people.
        message: String,
    },
    /// No controller that the policy replaces runs any more.
    ConflictEnded,
    /// A policy was removed; the objects that it made stay.
    Removed,
    /// A limit of a policy is reached, and the rest is withheld.
    LimitReached {
        /// Which limit, for people.
        message: String,
    },
    /// What is withheld was approved by a user who may not, or by nobody.
    ApprovalForbidden {
        /// Why the approval does not count, for people.
        message: String,
    },
    /// What is withheld was approved.
    Approved {
        /// The digest of what was approved.
        digest: String,
    },
}
