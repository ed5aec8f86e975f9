//! The one list of reasons: condition, Event, metric, log and command line use the same word.
//! A reason that is not listed here was declared by a guest.

mod known;

pub use known::KnownReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

crate::words! {
    /// What state a primary is in under one policy.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
    )]
    pub enum State {
        /// The objects match the desired state.
        Applied = "Applied",
        /// Left unchanged on purpose; not a failure.
        Held = "Held",
        /// Something that the primary needs does not exist yet; not a failure.
        Waiting = "Waiting",
        /// The reconcile failed; the reason says what to fix.
        Failed = "Failed",
    }
}

/// How the host reacts. It acts by the class; where a few reasons need more than theirs, the code that acts names them.
/// A guest can cause only the first four, with its own reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Left as it is on purpose; checked again when something changes.
    Held,
    /// Not a failure: woken when something appears, changes or is released.
    Waiting,
    /// A failure: tried again with back-off, and when an input changes.
    Missing,
    /// A failure: tried again only when an input changes.
    Invalid,
    /// A failure: tried again at once, with back-off when it keeps failing.
    Conflict,
    /// A failure: tried again with back-off, and when what cannot be read or reached now can be.
    Unreachable,
    /// Not a failure, and not reported: the policy is starting. Woken when the last primary is located.
    Unlocated,
    /// Not a failure: another replica leads. Reconciled as soon as this one leads.
    Standby,
    /// Left as it is for good: the primary is gone, and the objects made for it stay. Not requeued.
    Left,
}

impl Class {
    /// The state of a primary whose reconcile ends like this.
    pub fn state(self) -> State {
        match self {
            Self::Held | Self::Left => State::Held,
            Self::Waiting | Self::Unlocated | Self::Standby => State::Waiting,
            Self::Missing | Self::Invalid | Self::Conflict | Self::Unreachable => State::Failed,
        }
    }

    /// Whether it says nothing about what a primary wants: the agent starts or stands by, or could not read something
    /// as it is for the moment.
    pub fn passes(self) -> bool {
        use Class::{Conflict, Standby, Unlocated, Unreachable};
        matches!(self, Unlocated | Standby | Conflict | Unreachable)
    }
}

/// Why a primary is in its state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// One of the agent's own reasons.
    Known(KnownReason),
    /// A reason that a guest declared when it was loaded.
    Declared(Arc<str>),
}

impl Reason {
    /// The agent's own reason; `None` for one that a guest declared.
    pub fn known(&self) -> Option<KnownReason> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Declared(_) => None,
        }
    }

    /// The reason as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Declared(word) => word,
        }
    }
}

impl From<KnownReason> for Reason {
    fn from(word: KnownReason) -> Self {
        Self::Known(word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_says_nothing_about_what_a_primary_wants() {
        use KnownReason::{GuestTrapped, OwnershipPending, Paused, ReadFailed, TargetMissing};
        for (word, passes) in [
            (Paused, false),
            (TargetMissing, false),
            (GuestTrapped, false),
            (OwnershipPending, true),
            (ReadFailed, true),
            (KnownReason::WriteConflict, true),
        ] {
            assert_eq!(Class::of(word).passes(), passes, "{word:?}");
        }
    }

    #[test]
    fn displays_a_reason_by_its_name() {
        let reasons = [
            Reason::from(KnownReason::OwnedByAnother),
            Reason::Declared("OurOwn".into()),
        ];
        assert_eq!(
            serde_json::to_string(&reasons).unwrap(),
            r#"["OwnedByAnother","OurOwn"]"#
        );
        assert_eq!(
            reasons.map(|reason| reason.to_string()),
            ["OwnedByAnother", "OurOwn"]
        );
    }
}
