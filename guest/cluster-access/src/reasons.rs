//! The reasons of this guest.

use transom_guest::Reason;

/// All of them.
pub(crate) const ALL: [Reason; 7] = [
    ACCEPTED,
    DENIED,
    ERROR,
    WORKS_REMAIN,
    BINDING_REMAINS,
    NAME_RESERVED,
    NAME_IMPOSSIBLE,
];

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
    meaning: "A cluster that was denied, or is being deleted, still has ManifestWorks, so its work agent keeps its rights in order to clean up.",
    remedy: "Delete the ManifestWorks in the namespace of the cluster, or wait until they are gone. Look at their finalizers if they stay: the work agent takes them off.",
};

pub(crate) const BINDING_REMAINS: Reason = Reason {
    name: "WorkBindingRemains",
    meaning: "The RoleBinding that gives the work agent its rights is being deleted, and is not gone yet.",
    remedy: "Wait: it goes when its finalizers are off, and is made again for an accepted cluster. Look at its finalizers if it stays: whoever set them has to take them off. If its namespace is being deleted, it stays until the ManifestWorks are gone.",
};

pub(crate) const NAME_RESERVED: Reason = Reason {
    name: "ClusterNameReserved",
    meaning: "A cluster with the name `registration` or `work` would have the role that all clusters share, and one with the name `managed-clusters` the group of all their agents; in a namespace such as `kube-system` its agents could write the Leases of controllers.",
    remedy: "Register the cluster under another name.",
};

pub(crate) const NAME_IMPOSSIBLE: Reason = Reason {
    name: "InvalidTargetName",
    meaning: "The cluster is accepted, and no namespace can have its name: its agents get nothing.",
    remedy: "Register the cluster under a name of at most 63 lower-case letters, digits and dashes.",
};
