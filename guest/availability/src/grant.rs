//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{self, MANAGED_CLUSTER, NAMESPACE};
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

const LEASE: ObjectPattern = kinds::LEASE.within("{primary.name}", decide::LEASE_NAME);

/// The fields that it reads.
pub(crate) const READS: [Read; 2] = [
    MANAGED_CLUSTER.read(&[
        r#"metadata.annotations["registration.open-cluster-management.io/skip-clock-sync-check"]"#,
        "spec.leaseDurationSeconds",
        "status.conditions[HubAcceptedManagedCluster]",
        "status.conditions[ManagedClusterConditionAvailable]",
        "status.conditions[ManagedClusterConditionClockSynced]",
    ]),
    kinds::LEASE.read(&["spec.renewTime"]),
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
            object: NAMESPACE.named("{primary.name}"),
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
