//! The reasons of this guest.

use transom_guest::Reason;
use transom_guest::naming::HOSTING_CLUSTER_UNKNOWN;

/// All of them.
pub(crate) const ALL: [Reason; 5] = [
    CLUSTER_REMAINS,
    KLUSTERLET_REMAINS,
    KLUSTERLET_STUCK,
    HOSTING_CLUSTER_UNKNOWN,
    CLUSTER_UNKNOWN,
];

pub(crate) const CLUSTER_REMAINS: Reason = Reason {
    name: "ManagedClusterRemains",
    meaning: "The HostedCluster is being deleted, and the hub has not finished deleting its ManagedCluster.",
    remedy: "Wait. If it takes long, look at the finalizers and the conditions of the ManagedCluster on the hub.",
};

pub(crate) const CLUSTER_UNKNOWN: Reason = Reason {
    name: "ManagedClusterUnknown",
    meaning: "An annotation of the HostedCluster names its ManagedCluster, and no ManagedCluster can have that name. So it is not known which one to remove.",
    remedy: "Correct the annotation that the message names, or take it off.",
};

pub(crate) const KLUSTERLET_REMAINS: Reason = Reason {
    name: "KlusterletRemains",
    meaning: "The HostedCluster is being deleted, and its Klusterlet on the hosting cluster is not gone yet.",
    remedy: "Wait: the klusterlet operator cleans up in the hosted cluster.",
};

pub(crate) const KLUSTERLET_STUCK: Reason = Reason {
    name: "KlusterletStuck",
    meaning: "The Klusterlet of a HostedCluster that is being deleted does not go: the operator cannot clean up in the hosted cluster.",
    remedy: "Look at the conditions of the Klusterlet. If the hosted cluster is gone for good, take its finalizer off, or set takeFinalizers.",
};
