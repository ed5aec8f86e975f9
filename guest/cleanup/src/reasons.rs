//! The reasons of this guest.

use transom_guest::Reason;

/// All of them.
pub(crate) const ALL: [Reason; 2] = [REMAINING, NOTHING];

pub(crate) const REMAINING: Reason = Reason {
    name: "ResourceRemaining",
    meaning: "The cluster is being deleted, and objects in its namespace are not gone yet; the message names them.",
    remedy: "Wait. If it takes long, look at the finalizers of the objects: whoever set them has to take them off.",
};

pub(crate) const NOTHING: Reason = Reason {
    name: "NoResource",
    meaning: "Nothing that has to be cleaned up is left in the namespace of the cluster.",
    remedy: "Nothing.",
};
