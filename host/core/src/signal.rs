//! The closed list of things worth telling. Never says them: one place in the agent turns them into logs and metrics.

use crate::outcome::WriteKind;
use crate::reference::ObjectRef;
use crate::work::Key;
use std::sync::Arc;
use transom_api::Word;

/// One thing worth telling.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A trigger guest was asked and ignored a change.
    Ignored {
        /// Whose change.
        key: Key,
    },
    /// An object was written.
    Written {
        /// For which key.
        key: Key,
        /// Why, in one word.
        why: &'static str,
        /// Which kind of write.
        kind: WriteKind,
        /// Which object.
        target: ObjectRef,
    },
    /// A resync found a difference that no event had told, and mended it.
    RepairedByResync {
        /// Whose output.
        key: Key,
        /// Which kind of write.
        kind: WriteKind,
        /// Which object.
        target: ObjectRef,
    },
    /// A policy was loaded for the first time.
    PolicyLoaded {
        /// Its name.
        policy: Arc<str>,
    },
    /// A policy takes rights that RBAC cannot bind.
    PolicyReaches {
        /// Its name.
        policy: Arc<str>,
        /// Which, for people.
        message: String,
    },
    /// A policy was swapped in whole.
    Swapped {
        /// Its name.
        policy: Arc<str>,
    },
    /// A revision was refused; the earlier one goes on, if there is one.
    SwapRefused {
        /// Name of the policy.
        policy: Arc<str>,
        /// Why, in one word.
        reason: Word,
        /// Why, for people.
        message: String,
        /// Whether an earlier revision goes on.
        earlier_goes_on: bool,
    },
    /// The earlier revision goes on within what the newest manifest allows.
    PolicyBounded {
        /// Name of the policy.
        policy: Arc<str>,
        /// Whether it is suspended.
        suspended: bool,
    },
    /// A refused policy was put right by what is at work already.
    PolicyMended {
        /// Its name.
        policy: Arc<str>,
    },
    /// A policy was removed; what it made stays.
    PolicyRemoved {
        /// Its name.
        policy: Arc<str>,
    },
    /// Something cannot be read; its last good state is kept.
    Unreadable {
        /// The file, or the kind of a watch.
        place: String,
        /// Why, in one word.
        reason: Word,
        /// Why, for people; never with a value.
        message: String,
    },
    /// What was unreadable is readable again, or gone.
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
