//! Why an object cannot be read, for both kinds of cluster.

use transom_api::KnownReason;

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadFailure {
    /// `DuplicateObject`, `InvalidObject`, `ObjectTooLarge`, `ReadForbidden`, `ServerUnavailable` or `ReadFailed`.
    pub reason: KnownReason,
    /// What was attempted on which object, and why it failed. Contains no value of the object.
    pub message: String,
}
