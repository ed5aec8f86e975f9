//! What happens to the state: what became of a file, and what is told of it. Values only.

use super::manifest::{Fault, Found};
use super::patch::Patch;
use super::slot::Made;
use super::tree::Stamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::Word;
use transom_core::observation::Unreadable;
use transom_core::reference::ObjectRef;

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// The object looks different, or is gone.
    Object(Arc<ObjectRef>),
    /// Something cannot be read.
    Unreadable(Box<Unreadable>),
    /// What could not be read can be, or is gone.
    Readable(String),
}

/// What a file was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    /// Keyed hash of its bytes.
    pub(super) bytes: u64,
    /// What tells that it did not change since.
    pub(super) stamp: Option<Stamp>,
}

/// What a file holds.
pub(super) enum Content {
    /// Objects of a user.
    Objects(Vec<Found>),
    /// An object that we made.
    Made(Arc<ObjectRef>, Made),
    /// Fields that we laid over an object.
    Patch(Arc<ObjectRef>, Patch),
    /// Nothing of use.
    Nothing,
}

/// What became of a file.
pub(super) enum Edit {
    /// It is gone.
    Remove,
    /// Nothing is known about it now.
    Keep,
    /// It has the same bytes.
    Same(Option<Stamp>),
    /// It holds this now.
    Put(Print, Content),
    /// It cannot be used; what it held last stays.
    Refuse(Option<Print>, Fault),
}

/// Objects that stand in several files.
pub(super) fn duplicate(files: &Arc<str>, objects: &BTreeSet<Arc<ObjectRef>>) -> Unreadable {
    let shown: Vec<String> = objects.iter().take(3).map(ToString::to_string).collect();
    let more = objects.len().saturating_sub(shown.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Unreadable {
        place: files.to_string(),
        reason: Word::DuplicateObject,
        message: format!("{}{more}: more than once in {files}", shown.join(", ")),
        objects: objects.iter().cloned().collect(),
    }
}
