//! Why a reconcile ends without a result, classed by the host's reaction. Holds no value of a document.

use crate::object::Object;
use crate::redact::visible::visible;
use crate::reference::ObjectRef;
use std::fmt;
use transom_api::{KnownReason, Reason, State};

/// The most bytes of a message; longer ones are cut.
const MAX_MESSAGE: usize = 1024;

/// How the host reacts. It acts by the class alone, never by a reason. A guest can cause only the first four, with
/// its own reasons.
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

    /// The class of each of the agent's own reasons.
    pub fn of(word: KnownReason) -> Self {
        match word {
            KnownReason::InSync
            | KnownReason::Suspended
            | KnownReason::ReadOnly
            | KnownReason::Paused
            | KnownReason::Loaded => Self::Held,
            KnownReason::SourceDeleted => Self::Left,
            KnownReason::InputTerminating | KnownReason::OwnedByAnother | KnownReason::StillNeeded => Self::Waiting,
            KnownReason::OwnershipPending => Self::Unlocated,
            KnownReason::NotLeading => Self::Standby,
            KnownReason::GuestTimedOut
            | KnownReason::EngineBusy
            | KnownReason::ComponentNotFound
                | KnownReason::ComponentNotAllowed
            | KnownReason::AgentFailed
            | KnownReason::WriteFailed
            | KnownReason::KindMissing
            | KnownReason::WriteForbidden
            | KnownReason::QuotaExceeded
            | KnownReason::AdmissionRefused
            // Only time mends this one.
            | KnownReason::CertificateNotYetValid => Self::Missing,
            KnownReason::WriteConflict => Self::Conflict,
            KnownReason::ReadFailed | KnownReason::ReadForbidden | KnownReason::ServerUnavailable => Self::Unreachable,
            KnownReason::TargetNotOwned
            | KnownReason::Contended
            | KnownReason::WriteBudgetExceeded
            | KnownReason::ReconcileBudgetExceeded
            | KnownReason::ReadNotGranted
            | KnownReason::WriteNotGranted
            | KnownReason::ServerNotGranted
            | KnownReason::CANotGranted
            | KnownReason::InsecureNotGranted
            | KnownReason::ProxyNotGranted
            | KnownReason::ServerNameNotGranted
            | KnownReason::CredentialNotGranted
            | KnownReason::TaintKeyNotGranted
            | KnownReason::UnknownReference
            | KnownReason::KubeconfigMissing
            | KnownReason::KubeconfigEmpty
            | KnownReason::KubeconfigUnparsable
            | KnownReason::KubeconfigInvalid
            | KnownReason::KubeconfigTooLarge
            | KnownReason::NotAKubeconfig
            | KnownReason::NoClusters
            | KnownReason::DuplicateEntry
            | KnownReason::InvalidBase64
            | KnownReason::InvalidUrl
            | KnownReason::InvalidAuthority
            | KnownReason::InvalidCertificate
            | KnownReason::CertificateKeyMismatch
            | KnownReason::CertificateExpired
            | KnownReason::ContextUnresolved
            | KnownReason::InvalidObject
            | KnownReason::InvalidTargetName
            | KnownReason::ObjectTooLarge
            | KnownReason::GuestMemoryExceeded
            | KnownReason::GuestTablesExceeded
            | KnownReason::GuestStackOverflowed
            | KnownReason::GuestTrapped
            | KnownReason::AnswerTooLarge
            | KnownReason::ArgumentTooLarge
            | KnownReason::LogFlooded
            | KnownReason::HostCallsExceeded
            | KnownReason::ContractBroken
            | KnownReason::TooManyRounds
            | KnownReason::ComponentInvalid
            | KnownReason::ComponentTooLarge
            | KnownReason::DigestMismatch
            | KnownReason::ImportNotGranted
            | KnownReason::WorldMismatch
            | KnownReason::DescriptionInvalid
            | KnownReason::SettingsRefused
            | KnownReason::PolicyInvalid
            | KnownReason::TaintKeyTaken
            | KnownReason::DuplicateObject
            | KnownReason::ManifestInvalid
            | KnownReason::WriteInvalid
            | KnownReason::TargetImmutable
            | KnownReason::AdmissionChanged => Self::Invalid,
        }
    }
}

/// Why a reconcile ends without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the host reacts.
    pub class: Class,
    /// The reason that is shown everywhere.
    pub reason: Reason,
    /// What is wrong, and where; one line, cut, without a value of a credential document.
    pub message: String,
    /// Objects whose appearance or change ends it, where known.
    pub objects: Vec<ObjectRef>,
    /// When time alone may change it, in seconds since 1970.
    pub ask_again_at: Option<i64>,
}

impl Failure {
    /// A failure with one of the agent's own reasons; its class follows from the reason.
    pub fn known(word: KnownReason, message: impl Into<String>) -> Self {
        Self::new(Class::of(word), word.into(), &message.into())
    }

    /// A failure with any reason and class.
    pub fn new(class: Class, reason: Reason, message: &str) -> Self {
        Self {
            class,
            reason,
            message: one_line(message),
            objects: Vec::new(),
            ask_again_at: None,
        }
    }

    /// Adds the objects whose appearance or change ends it.
    pub fn about(mut self, objects: impl IntoIterator<Item = ObjectRef>) -> Self {
        self.objects.extend(objects);
        self
    }

    /// Sets the time at which to ask again.
    pub fn until(mut self, seconds: Option<i64>) -> Self {
        self.ask_again_at = seconds;
        self
    }

    /// `InvalidObject`: a field of an object has the wrong type.
    pub fn invalid_object(object: &Object, invalid: &InvalidField) -> Self {
        Self::known(
            KnownReason::InvalidObject,
            format!("{}: {invalid}", object.reference),
        )
        .about([object.reference.clone()])
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Failure {}

/// A field of an object that has the wrong type or an impossible value. Does not hold the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not {expected}")]
pub struct InvalidField {
    /// Path of the field.
    pub path: String,
    /// What it should be: `a string`, `a port`.
    pub expected: &'static str,
}

/// Makes one line: line breaks and tabs become spaces, invisible characters are escaped, long text is cut.
pub fn one_line(text: &str) -> String {
    let text = text
        .get(..text.floor_char_boundary(MAX_MESSAGE + 4))
        .unwrap_or_default();
    let text = text.replace(['\n', '\r', '\t'], " ");
    let shown = visible(&text);
    match shown.len() > MAX_MESSAGE {
        true => format!(
            "{}…",
            shown
                .get(..shown.floor_char_boundary(MAX_MESSAGE))
                .unwrap_or_default()
        ),
        false => shown.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_short_line() {
        assert_eq!(one_line("a\nb\u{1b}[31m\u{202e}"), "a b\\u001b[31m\\u202e");
        let cut = one_line(&"ä".repeat(2000));
        assert!(cut.len() <= MAX_MESSAGE + '…'.len_utf8() && cut.ends_with('…'));
    }

    #[test]
    fn the_class_of_a_failure_decides_its_state() {
        assert_eq!(
            Failure::known(KnownReason::OwnedByAnother, "")
                .class
                .state(),
            State::Waiting
        );
        assert_eq!(
            Failure::known(KnownReason::Suspended, "").class.state(),
            State::Held
        );
        assert_eq!(
            Failure::known(KnownReason::WriteConflict, "").class.state(),
            State::Failed
        );
    }
}
