//! What this guest reads, and what it asks a policy to grant. The rules, roles and subjects have to be listed in the
//! policy; `policies/cluster-access` does.

use crate::decide;
use transom_guest::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, MANAGED_CLUSTER, NAMESPACE, ROLE_BINDING,
};
use transom_guest::{Grant, Read, ReadGrant, WriteGrant};

/// The fields that it reads.
pub(crate) const READS: [Read; 1] = [MANAGED_CLUSTER.read(&[
    "spec.hubAcceptsClient",
    "status.conditions[HubAcceptedManagedCluster]",
])];

/// What a work agent applies to its cluster.
pub(crate) const MANIFEST_WORK: Kind =
    Kind::new("work.open-cluster-management.io/v1", "ManifestWork");

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[ReadGrant {
        role: decide::WORKS,
        object: MANIFEST_WORK.within("{primary.name}", "*"),
        keys: &[],
        why: "Whether a denied cluster still has works to clean up.",
    }],
    write: &[
        WriteGrant::conditions(
            &[decide::HUB_ACCEPTED],
            "Says that the cluster was accepted or denied.",
        ),
        WriteGrant::objects(
            NAMESPACE.named("{primary.name}"),
            &[r#"metadata.labels["open-cluster-management.io/cluster-name"]"#],
            "The namespace of the cluster.",
        ),
        WriteGrant::objects(
            CLUSTER_ROLE.named("open-cluster-management:managedcluster:{primary.name}"),
            &["rules"],
            "What the agents of the cluster may do on the whole hub.",
        ),
        WriteGrant::objects(
            CLUSTER_ROLE_BINDING.named("open-cluster-management:managedcluster:{primary.name}"),
            &["roleRef", "subjects"],
            "Gives it to them.",
        ),
        WriteGrant::objects(
            ROLE_BINDING.within(
                "{primary.name}",
                "open-cluster-management:managedcluster:{primary.name}:*",
            ),
            &["roleRef", "subjects"],
            "Gives them the shared roles in the namespace of the cluster.",
        ),
        WriteGrant::objects(
            CLUSTER_ROLE.named("open-cluster-management:managedcluster:registration"),
            &["rules"],
            "What registration agents may do in the namespaces of their clusters.",
        ),
        WriteGrant::objects(
            CLUSTER_ROLE.named("open-cluster-management:managedcluster:work"),
            &["rules"],
            "What work agents may do in the namespaces of their clusters.",
        ),
    ],
};
