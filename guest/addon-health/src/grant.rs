//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{ADD_ON, MANAGED_CLUSTER};
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

const ADDONS: ObjectPattern = ADD_ON.within("{primary.name}", "*");

/// The fields that it reads.
pub(crate) const READS: [Read; 2] = [
    MANAGED_CLUSTER.read(&[
        "metadata.labels",
        "status.conditions[ManagedClusterConditionAvailable]",
    ]),
    ADD_ON.read(&["status.conditions[Available]"]),
];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[ReadGrant::every(
        decide::ADDONS,
        ADDONS,
        "How the add-ons of the cluster are.",
    )],
    write: &[
        WriteGrant::fields(
            &[r#"metadata.labels["feature.open-cluster-management.io/addon-*"]"#],
            "Labels of the cluster that tell how each of its add-ons is.",
        )
        .of_values(&[(
            r#"metadata.labels["feature.open-cluster-management.io/addon-*"]"#,
            &[
                r#""available""#,
                r#""unhealthy""#,
                r#""unreachable""#,
                "null",
            ],
        )]),
        WriteGrant::conditions_of(
            ADDONS,
            &[decide::AVAILABLE],
            "Says that an add-on of an unreachable cluster is not known to be available.",
        ),
    ],
    ..Grant::NONE
};
