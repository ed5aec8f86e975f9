//! The reasons of this guest.

use transom_guest::Reason;

/// All of them.
pub(crate) const ALL: [Reason; 5] = [ACCEPTED, DENIED, ERROR, WORKS_REMAIN, NAME_RESERVED];

pub(crate) const ACCEPTED: Reason = Reason {
    name: "HubClusterAdminAccepted",
    meaning: "The cluster was accepted: its agents have what they need on the hub.",
    remedy: "Nothing.",
};

pub(crate) const DENIED: Reason = Reason {
    name: "HubClusterAdminDenied",
    meaning: "The cluster was denied after it was accepted: its agents may only read its ManagedCluster.",
    remedy: "Set spec.hubAcceptsClient of the ManagedCluster to accept it again.",
};

/// The word that Open Cluster Management has for it.
pub(crate) const ERROR: Reason = Reason {
    name: "Error",
    meaning: "The cluster was accepted, and a role or a binding of it could not be written: its agents may lack rights on the hub.",
    remedy: "See the message for the object, and the status of the policy for the cause. The agent tries again.",
};

pub(crate) const WORKS_REMAIN: Reason = Reason {
    name: "ManifestWorksRemain",
    meaning: "A denied cluster still has ManifestWorks, so its work agent keeps its rights in order to clean up.",
    remedy: "Delete the ManifestWorks in the namespace of the cluster, or wait until they are gone.",
};

pub(crate) const NAME_RESERVED: Reason = Reason {
    name: "ClusterNameReserved",
    meaning: "A cluster with the name `registration` or `work` would have the role that all clusters share.",
    remedy: "Register the cluster under another name.",
};
