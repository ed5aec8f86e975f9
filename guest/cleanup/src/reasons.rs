//! The reasons of this guest.

use transom_guest::Reason;

/// All of them.
pub(crate) const ALL: [Reason; 3] = [REMAINING, NOTHING, CLUSTER_GONE];

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

pub(crate) const CLUSTER_GONE: Reason = Reason {
    name: "ClusterGone",
    meaning: "The ManagedCluster of a namespace is not there, and add-ons or works of it are left; the message names them. They are \
              removed when the time of the setting graceSeconds has passed.",
    remedy: "Nothing, if the cluster is gone for good. Otherwise create the ManagedCluster in time.",
};
