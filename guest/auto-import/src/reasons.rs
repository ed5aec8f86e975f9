//! The reasons of the guest `auto-import`.

use transom_guest::Reason;
use transom_guest::naming::{HOSTING_CLUSTER_UNKNOWN, INVALID_TARGET_NAME};

pub(crate) const CLUSTER_NAMESPACE_MISSING: Reason = Reason {
    name: "ClusterNamespaceMissing",
    meaning: "The hub has not made the namespace of the ManagedCluster yet, in which its KlusterletAddonConfig lies.",
    remedy: "Nothing: the hub makes it for every ManagedCluster. If it does not, look at its registration controller.",
};

pub(crate) const IMPORTED_FOR_ANOTHER: Reason = Reason {
    name: "ImportedForAnother",
    meaning: "The HostedCluster was imported before, and the ManagedCluster of that name was made for another HostedCluster. It is left alone, and its labels do not follow this one.",
    remedy: "If this HostedCluster takes the place of the other, which is gone, take the annotation import.open-cluster-management.io/auto-imported-as off this one: the ManagedCluster becomes its own. Else nothing: what was detached stays detached.",
};

pub(crate) const RENAMED_AFTER_IMPORT: Reason = Reason {
    name: "RenamedAfterImport",
    meaning: "The HostedCluster was imported, its annotation or the settings name another ManagedCluster since, and that one is not there or was made for another HostedCluster. It is left alone: a second ManagedCluster would be the same cluster twice. The policy that copies kubeconfigs goes by the new name, so the imported cluster gets no new credential.",
    remedy: "Give it its former name back: the one in the annotation import.open-cluster-management.io/auto-imported-as. If that cluster was detached and is to be imported under the new name, take that annotation off.",
};

/// All reasons.
pub(crate) const ALL: [Reason; 5] = [
    INVALID_TARGET_NAME,
    HOSTING_CLUSTER_UNKNOWN,
    CLUSTER_NAMESPACE_MISSING,
    IMPORTED_FOR_ANOTHER,
    RENAMED_AFTER_IMPORT,
];
