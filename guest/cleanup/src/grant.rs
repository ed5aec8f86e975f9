//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{ADD_ON, MANAGED_CLUSTER, MANIFEST_WORK, NAMESPACE, STAMP_PATHS};
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

const ADDONS: ObjectPattern = ADD_ON.within("{primary.name}", "*");
const WORKS: ObjectPattern = MANIFEST_WORK.within("{primary.name}", "*");

/// What is read of everything that is removed.
const LEFT: &[&str] = &[
    r#"metadata.annotations["open-cluster-management.io/cleanup-priority"]"#,
    "metadata.deletionTimestamp",
    "metadata.finalizers",
    STAMP_PATHS[0],
    STAMP_PATHS[1],
    STAMP_PATHS[2],
];

/// A cluster with more than these would stay for ever: nothing is removed before all are known.
const fn all(role: &'static str, object: ObjectPattern, why: &'static str) -> ReadGrant {
    ReadGrant {
        every: Some((10_000, 4 << 20)),
        ..ReadGrant::every(role, object, why)
    }
}

/// The fields that it reads.
pub(crate) const READS: [Read; 4] = [
    // With this field a cluster that is being deleted crosses: otherwise it would count as absent.
    MANAGED_CLUSTER.read(&["metadata.deletionTimestamp"]),
    NAMESPACE.read(&[r#"metadata.labels["open-cluster-management.io/cluster-name"]"#]),
    ADD_ON.read(LEFT),
    MANIFEST_WORK.read(LEFT),
];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        all("managedclusteraddons", ADDONS, "The add-ons that are left."),
        all("manifestworks", WORKS, "The works that are left."),
    ],
    write: &[
        WriteGrant::conditions(&[decide::DELETING], "Says what is left."),
        WriteGrant::removal(ADDONS, "Removes the add-ons."),
        WriteGrant::removal(WORKS, "Removes the works."),
    ],
    // The one that Open Cluster Management uses for this: clusters that have it are cleaned up as well.
    finalizer: Some("cluster.open-cluster-management.io/resource-cleanup"),
    ..Grant::NONE
};
