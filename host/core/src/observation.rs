//! What a watch told us, as a value. Never says what should follow.

use crate::object::Object;
use crate::reference::ObjectRef;
use std::sync::Arc;

/// One thing that a cluster told.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The object is there, for the first time or changed; the whole object as it is now.
    Present(Object),
    /// The object is gone.
    Gone(ObjectRef),
    /// Every object that was there at the start has been told.
    Synced,
    /// Something cannot be read: which file or kind, and why; the last good state is kept.
    Unreadable(Unreadable),
    /// What was unreadable is readable again, or gone.
    Readable(String),
}

/// Something that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, or the kind of a watch.
    pub place: String,
    /// Why, in one word.
    pub reason: transom_api::Word,
    /// Where in it and why, without a value of it.
    pub message: String,
    /// The objects concerned, when they are known.
    pub objects: Vec<Arc<ObjectRef>>,
}
