//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{self, MANAGED_CLUSTER, NAMESPACE};
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, Verb, WriteGrant};

const LEASE: ObjectPattern = kinds::LEASE.within("{primary.name}", decide::LEASE_NAME);

/// The fields that it reads.
pub(crate) const READS: [Read; 2] = [
    MANAGED_CLUSTER.read(&[
        r#"metadata.annotations["registration.open-cluster-management.io/skip-clock-sync-check"]"#,
        "spec.leaseDurationSeconds",
        "status.conditions[HubAcceptedManagedCluster]",
        "status.conditions[ManagedClusterConditionAvailable]",
        "status.conditions[ManagedClusterConditionClockSynced]",
        "status.conditions[ManagedClusterJoined]",
    ]),
    kinds::LEASE.read(&["metadata.deletionTimestamp", "spec.renewTime"]),
];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::object(decide::BEAT, LEASE, "The heartbeats of the cluster."),
        ReadGrant::object(
            decide::ARRIVAL,
            LEASE,
            "When the last of them came, for the clock of the cluster.",
        ),
        ReadGrant::object(decide::LEASE, LEASE, "Whether there is a lease."),
        ReadGrant::object(
            decide::NAMESPACE,
            NAMESPACE.named("{primary.name}"),
            "Where the lease is made.",
        ),
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
            "The lease that the agent of the cluster renews. It is made once.",
        )
        .doing(&[Verb::Create])
        .of_values(&[
            (
                r#"metadata.labels["open-cluster-management.io/cluster-name"]"#,
                &[r#""{primary.name}""#],
            ),
            ("spec.holderIdentity", &[r#""managed-cluster-lease""#]),
        ]),
    ],
    ..Grant::NONE
};
