//! The reasons of the guest `auto-import`.

use transom_guest::Reason;
use transom_guest::naming::{HOSTING_CLUSTER_UNKNOWN, INVALID_TARGET_NAME};

pub(crate) const CLUSTER_NAMESPACE_MISSING: Reason = Reason {
    name: "ClusterNamespaceMissing",
    meaning: "The hub has not made the namespace of the ManagedCluster yet, in which its KlusterletAddonConfig lies.",
    remedy: "Nothing: the hub makes it for every ManagedCluster. If it does not, look at its registration controller.",
};

/// All reasons.
pub(crate) const ALL: [Reason; 3] = [
    INVALID_TARGET_NAME,
    HOSTING_CLUSTER_UNKNOWN,
    CLUSTER_NAMESPACE_MISSING,
];
