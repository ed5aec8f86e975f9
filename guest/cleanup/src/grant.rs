//! What this guest reads, and what it asks a policy to grant: the finalizer has to be added to that.

use crate::decide;
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
        ],
        changes: &[],
    }
}

/// The fields that it reads.
pub(crate) const READS: [Read; 3] = [
    Read {
        api_version: "cluster.open-cluster-management.io/v1",
        kind: "ManagedCluster",
        fields: &[],
        changes: &[],
    },
    read(ADDONS),
    read(WORKS),
];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant {
            role: "managedclusteraddons",
            object: ADDONS,
            keys: &[],
            why: "The add-ons that are left.",
        },
        ReadGrant {
            role: "manifestworks",
            object: WORKS,
            keys: &[],
            why: "The works that are left.",
        },
    ],
    write: &[
        WriteGrant::conditions(&[decide::DELETING], "Says what is left."),
        WriteGrant::objects(ADDONS, &[], "Removes the add-ons."),
        WriteGrant::objects(WORKS, &[], "Removes the works."),
    ],
};
