//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

const LEASE: ObjectPattern = ObjectPattern {
    api_version: "coordination.k8s.io/v1",
    kind: "Lease",
    namespace: Some("{primary.name}"),
    name: decide::LEASE_NAME,
};

/// The fields that it reads.
pub(crate) const READS: [Read; 2] = [
    Read {
        api_version: "cluster.open-cluster-management.io/v1",
        kind: "ManagedCluster",
        fields: &[
            r#"metadata.annotations["registration.open-cluster-management.io/skip-clock-sync-check"]"#,
            "spec.leaseDurationSeconds",
            "status.conditions[HubAcceptedManagedCluster]",
            "status.conditions[ManagedClusterConditionAvailable]",
            "status.conditions[ManagedClusterConditionClockSynced]",
        ],
        changes: &[],
    },
    Read {
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        fields: &["spec.renewTime"],
        changes: &[],
    },
];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant {
            role: decide::BEAT,
            object: LEASE,
            keys: &[],
            why: "The heartbeats of the cluster.",
        },
        ReadGrant {
            role: decide::LEASE,
            object: LEASE,
            keys: &[],
            why: "Whether there is a lease.",
        },
        ReadGrant {
            role: decide::NAMESPACE,
            object: ObjectPattern {
                api_version: "v1",
                kind: "Namespace",
                namespace: None,
                name: "{primary.name}",
            },
            keys: &[],
            why: "Where the lease is made.",
        },
    ],
    write: &[
        WriteGrant::conditions(
            &[decide::AVAILABLE, decide::CLOCK],
            "Says that the heartbeats stopped, and whether the clock is right.",
        ),
        WriteGrant::objects(
            LEASE,
            &[
                r#"metadata.labels["open-cluster-management.io/cluster-name"]"#,
                "spec.holderIdentity",
                "spec.renewTime",
            ],
            "The lease that the agent of the cluster renews.",
        ),
    ],
};
