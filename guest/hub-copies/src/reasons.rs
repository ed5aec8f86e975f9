//! The reasons of the guest `hub-copies`.

use transom_guest::Reason;
use transom_guest::naming::HOSTING_CLUSTER_UNKNOWN;

pub(crate) const INVALID_COPY_NAME: Reason = Reason {
    name: "InvalidCopyName",
    meaning: "No Secret can have the name of a copy: it begins with the name that the annotation cluster.open-cluster-management.io/managedcluster-name gives, else with that of the HostedCluster. Or no label can hold the name of the HostedCluster, because it is longer than 63 characters. Or the HostedCluster is in the namespace of the copies, and a copy would be the secret that it is copied from.",
    remedy: "Correct the annotation, or take it off: lower-case letters, digits, dashes and dots, the first and the last no dash. A HostedCluster with a longer name, or in the namespace of the copies, has no copies under its own name. Where the reason is TargetNotOwned, the Secret may be the source of a HostedCluster in that namespace: then delete nothing, and give this one another name.",
};

pub(crate) const HUB_NAMESPACE_MISSING: Reason = Reason {
    name: "HubNamespaceMissing",
    meaning: "The hub has no namespace of the cluster that hosts the control planes, in which the copies lie.",
    remedy: "Register that cluster, or set hostingCluster of the guest to the name under which the hub manages it.",
};

pub(crate) const SECRET_MISSING: Reason = Reason {
    name: "SecretMissing",
    meaning: "The secret that is to be copied does not exist yet. A copy that is there stays.",
    remedy: "Nothing: HyperShift makes it. If it does not, look at its operator.",
};

pub(crate) const SECRET_KEY_MISSING: Reason = Reason {
    name: "SecretKeyMissing",
    meaning: "The secret that is to be copied does not have the expected key. A copy that is there stays.",
    remedy: "Look at the secret that the message names, and at the operator of HyperShift, which makes it.",
};

/// All reasons.
pub(crate) const ALL: [Reason; 5] = [
    INVALID_COPY_NAME,
    HOSTING_CLUSTER_UNKNOWN,
    HUB_NAMESPACE_MISSING,
    SECRET_MISSING,
    SECRET_KEY_MISSING,
];
