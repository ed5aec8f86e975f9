//! Why an object cannot be read, of whichever cluster. Never holds a value of the object.

use transom_api::Word;

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadFailure {
    /// `DuplicateObject`, `InvalidObject`, `ObjectTooLarge`, `ReadForbidden`, `ServerUnavailable` or `ReadFailed`.
    pub reason: Word,
    /// What was attempted on what, and why it failed; without a value of it.
    pub message: String,
}
