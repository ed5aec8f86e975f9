//! Why a reconcile ends without a result, classed by the host's reaction. Holds no value of a document.

pub mod failing;

use crate::object::Object;
use crate::redact::visible::visible;
use crate::reference::ObjectRef;
use std::fmt;
pub use transom_api::reason::Class;
use transom_api::{KnownReason, Reason};

/// The most bytes of a message; longer ones are cut.
const MAX_MESSAGE: usize = 1024;

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

impl InvalidField {
    /// A declared path leads through something of another shape.
    pub(crate) fn shape(path: String) -> Self {
        Self {
            path,
            expected: "a mapping or a list as its kind requires",
        }
    }
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
    use transom_api::State;

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
