//! What is kept of one object, and its key.

use super::Moment;
use std::fmt;
use std::sync::Arc;
use transom_api::KnownReason;

/// From how many bytes an object is large, as it is kept: three times what a kubeconfig with several CAs takes.
const LARGE: usize = 32 << 10;

/// `namespace/name`, or `/name` for a cluster-scoped object. Sorts by namespace, and takes a third of the memory of an
/// `ObjectRef`.
pub(in crate::kubernetes) type StoreKey = Box<str>;

/// The key of an object.
pub(in crate::kubernetes) fn key(namespace: Option<&str>, name: &str) -> StoreKey {
    format!("{}/{name}", namespace.unwrap_or_default()).into()
}

/// Namespace and name of a key.
pub(in crate::kubernetes) fn parts(key: &str) -> (Option<&str>, &str) {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    (
        Some(namespace).filter(|namespace| !namespace.is_empty()),
        name,
    )
}

/// Why one object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) struct ObjectFault {
    /// In one word.
    pub(in crate::kubernetes) reason: KnownReason,
    /// What is wrong. Contains no value of the object.
    pub(in crate::kubernetes) message: String,
}

impl ObjectFault {
    /// Of a large object for which no room is left beside others, which take so many bytes.
    pub(super) fn of_many(bytes: usize) -> Self {
        let message = format!(
            "it is larger than {} KiB, and the agent keeps at most {} MiB of such objects of a kind; it is read again \
             when it changes",
            LARGE >> 10,
            bytes >> 20
        );
        Self {
            reason: KnownReason::ObjectTooLarge,
            message,
        }
    }
}

/// What is kept of an object.
#[derive(Clone, PartialEq)]
pub(in crate::kubernetes) enum KeptContent {
    /// Compact JSON without the version: equal bytes mean that no reader can see a change.
    Body(Arc<[u8]>),
    /// The object exists, but cannot be used.
    Fault(Arc<ObjectFault>),
    /// The object exists, and nothing of it is kept.
    Name,
}

impl fmt::Debug for KeptContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Self::Fault(fault) => write!(f, "Fault({})", fault.reason.as_str()),
            Self::Name => f.write_str("Name"),
        }
    }
}

/// One object as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubernetes) struct Item {
    /// Which object.
    pub(in crate::kubernetes) key: StoreKey,
    /// Its version.
    pub(in crate::kubernetes) version: Box<str>,
    /// What is kept of it.
    pub(in crate::kubernetes) content: KeptContent,
    /// Whether it carries the agent's label.
    pub(in crate::kubernetes) ours: bool,
}

/// One object in the store.
#[derive(Clone, Debug)]
pub(in crate::kubernetes) struct StoredObject {
    /// Its version.
    pub(in crate::kubernetes) version: Box<str>,
    /// What is kept of it.
    pub(in crate::kubernetes) content: KeptContent,
    /// Whether it carries the agent's label.
    pub(in crate::kubernetes) ours: bool,
    /// When an answer reported it; `TOLD` once the watch has reported this version.
    pub(super) learnt: Moment,
    /// The last list that contained it.
    pub(super) round: u32,
}

impl StoredObject {
    /// Whether the object cannot be used.
    pub(in crate::kubernetes) fn is_faulty(&self) -> bool {
        matches!(self.content, KeptContent::Fault(_))
    }

    /// How many bytes are kept of it, if it is large.
    pub(super) fn large_bytes(&self) -> usize {
        match &self.content {
            KeptContent::Body(bytes) if bytes.len() > LARGE => bytes.len(),
            _ => 0,
        }
    }
}
