//! Changes of the state: what became of a file, and the news about it. Plain values, no I/O.

use super::manifest::{FileFault, FoundObject};
use super::patch::Patch;
use super::slot::MadeObject;
use super::tree::FileStamp;
use super::words::Words;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::observation::{Unreadable, Unwatched};
use transom_core::reference::ObjectRef;

/// A notification.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DirectoryNews {
    /// The object changed, or is gone.
    Object(Arc<ObjectRef>),
    /// Something cannot be read.
    Unreadable(Box<Unreadable>),
    /// A folder became readable, or is gone.
    Readable(String),
    /// The same of a file, while its folder was watched.
    FileReadable(String),
}

/// Identifies the content of a file when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    /// Keyed hash of its bytes.
    pub(super) bytes: u64,
    /// Proves that it did not change since; `None` if it had changed too recently.
    pub(super) stamp: Option<FileStamp>,
}

/// The content of a file.
pub(super) enum FileContent {
    /// Objects of a user.
    Objects(Vec<FoundObject>),
    /// An object that the agent made.
    Made(Arc<ObjectRef>, MadeObject),
    /// Fields that the agent laid over an object.
    Patch(Arc<ObjectRef>, Patch),
    /// Nothing usable.
    Nothing,
}

/// What became of a file.
pub(super) enum Edit {
    /// It is gone.
    Remove,
    /// It cannot be judged now.
    Keep,
    /// It has the same bytes.
    Same(Option<FileStamp>),
    /// It has this content now.
    Put(Print, FileContent),
    /// It cannot be used; its last content stays. With the words of what was read.
    Refuse(Option<Print>, FileFault, Words),
}

impl Edit {
    /// Whether the file is another one than before, or is gone.
    pub(super) fn is_change(&self) -> bool {
        matches!(self, Self::Remove | Self::Put(..))
    }
}

/// The report of objects that are in several files.
pub(super) fn duplicate(files: &Arc<str>, objects: &BTreeSet<Arc<ObjectRef>>) -> Unreadable {
    let shown: Vec<String> = objects.iter().take(3).map(ToString::to_string).collect();
    let more = objects.len().saturating_sub(shown.len());
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    Unreadable {
        place: files.to_string(),
        reason: KnownReason::DuplicateObject,
        message: format!(
            "{}{more}: defined more than once in {files}",
            shown.join(", ")
        ),
        unwatched: Unwatched::Part,
        objects: objects.iter().cloned().collect(),
    }
}
