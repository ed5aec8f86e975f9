//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{NAMESPACE, STAMP_PATHS};
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

const fn of_cluster(api_version: &'static str, kind: &'static str) -> ObjectPattern {
    ObjectPattern {
        api_version,
        kind,
        namespace: Some("{primary.name}"),
        name: "*",
    }
}

const ADDONS: ObjectPattern = of_cluster(
    "addon.open-cluster-management.io/v1alpha1",
    "ManagedClusterAddOn",
);
const WORKS: ObjectPattern = of_cluster("work.open-cluster-management.io/v1", "ManifestWork");

const fn read(object: ObjectPattern) -> Read {
    Read {
        api_version: object.api_version,
        kind: object.kind,
        fields: &[
            r#"metadata.annotations["open-cluster-management.io/cleanup-priority"]"#,
            "metadata.deletionTimestamp",
            "metadata.finalizers",
            STAMP_PATHS[0],
            STAMP_PATHS[1],
            STAMP_PATHS[2],
        ],
        changes: &[],
    }
}

/// A cluster with more than these would stay for ever: nothing is removed before all are known.
const fn all(role: &'static str, object: ObjectPattern, why: &'static str) -> ReadGrant {
    ReadGrant {
        every: Some((10_000, 4 << 20)),
        ..ReadGrant::every(role, object, why)
    }
}

/// The fields that it reads.
pub(crate) const READS: [Read; 4] = [
    Read {
        api_version: "cluster.open-cluster-management.io/v1",
        kind: "ManagedCluster",
        // With this field a cluster that is being deleted crosses: otherwise it would count as absent.
        fields: &["metadata.deletionTimestamp"],
        changes: &[],
    },
    NAMESPACE.read(&[r#"metadata.labels["open-cluster-management.io/cluster-name"]"#]),
    read(ADDONS),
    read(WORKS),
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
