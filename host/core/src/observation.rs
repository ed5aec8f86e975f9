//! What a watch reported, as a value.

use crate::object::Object;
use crate::reference::ObjectRef;
use std::sync::Arc;

/// One report of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The object exists, new or changed; the whole object as it is now.
    Present(Object),
    /// The object was changed, and is one of which only the name is kept.
    Changed(ObjectRef),
    /// The object is gone.
    Gone(ObjectRef),
    /// A file or a kind cannot be read, and why; the last good state stays.
    Unreadable(Unreadable),
    /// This place is readable again, or gone; and what was not watched meanwhile.
    Readable(String, Unwatched),
    /// The same of one object, whose watch went on meanwhile.
    ObjectReadable(String),
    /// The same of one file, whose folder was watched meanwhile. It may define new objects.
    FileReadable(String),
    /// A watch can be read: its first list is complete, or it answered again while it still counts as unreadable.
    Answered,
}

/// What is not watched while something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwatched {
    /// One object or file; all else is watched.
    Part,
    /// The objects of a kind, or some of them.
    Kind {
        /// Name of the connection.
        cluster: String,
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// Any object of a connection.
    Connection(String),
}

impl Unwatched {
    /// Whether an object may go unwatched.
    pub fn concerns(&self, object: &ObjectRef) -> bool {
        match self {
            Self::Part => false,
            Self::Kind {
                cluster,
                api_version,
                kind,
            } => object.is(cluster, api_version, kind),
            Self::Connection(cluster) => object.cluster == *cluster,
        }
    }
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
    /// What is not watched meanwhile.
    pub unwatched: Unwatched,
    /// The objects concerned, where known.
    pub objects: Vec<Arc<ObjectRef>>,
}
