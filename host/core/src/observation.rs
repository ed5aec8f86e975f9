//! What a watch reported, as a value.

use crate::object::Object;
use crate::reference::ObjectRef;
use std::sync::Arc;

/// One report of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The object exists, new or changed; the whole object as it is now.
    Present(Object),
    /// The object is gone.
    Gone(ObjectRef),
    /// A file or a kind cannot be read, and why; the last good state stays.
    Unreadable(Unreadable),
    /// This place is readable again, or gone.
    Readable(String),
    /// The same of one object, whose watch went on meanwhile.
    ObjectReadable(String),
    /// The same of one file, whose folder was watched meanwhile. It may define new objects.
    FileReadable(String),
    /// A watch can be read: its first list is complete, or it answered again while it still counts as unreadable.
    Answered,
}

/// Something that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, or the kind of a watch.
    pub place: String,
    /// Why, in one word.
    pub reason: transom_api::KnownReason,
    /// Where in it and why, without its values.
    pub message: String,
    /// Whether all else is watched meanwhile: it is one object or file.
    pub is_part: bool,
    /// The objects concerned, where known.
    pub objects: Vec<Arc<ObjectRef>>,
}
