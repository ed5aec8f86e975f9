//! What this guest reads, and what it asks a policy to grant. The rules, roles and subjects have to be listed in the
//! policy; `policies/cluster-access` does.

use crate::decide;
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, WriteGrant};

/// The fields that it reads.
pub(crate) const READS: [Read; 1] = [Read {
    api_version: "cluster.open-cluster-management.io/v1",
    kind: "ManagedCluster",
    fields: &[
        "spec.hubAcceptsClient",
        "status.conditions[HubAcceptedManagedCluster]",
    ],
    changes: &[],
}];

const fn role(
    kind: &'static str,
    namespace: Option<&'static str>,
    name: &'static str,
) -> ObjectPattern {
    ObjectPattern {
        api_version: "rbac.authorization.k8s.io/v1",
        kind,
        namespace,
        name,
    }
}

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[ReadGrant {
        role: decide::WORKS,
        object: ObjectPattern {
            api_version: "work.open-cluster-management.io/v1",
            kind: "ManifestWork",
            namespace: Some("{primary.name}"),
            name: "*",
        },
        keys: &[],
        why: "Whether a denied cluster still has works to clean up.",
    }],
    write: &[
        WriteGrant::conditions(
            &[decide::HUB_ACCEPTED],
            "Says that the cluster was accepted or denied.",
        ),
        WriteGrant::objects(
            ObjectPattern {
                api_version: "v1",
                kind: "Namespace",
                namespace: None,
                name: "{primary.name}",
            },
            &[r#"metadata.labels["open-cluster-management.io/cluster-name"]"#],
            "The namespace of the cluster.",
        ),
        WriteGrant::objects(
            role(
                "ClusterRole",
                None,
                "open-cluster-management:managedcluster:{primary.name}",
            ),
            &["rules"],
            "What the agents of the cluster may do on the whole hub.",
        ),
        WriteGrant::objects(
            role(
                "ClusterRoleBinding",
                None,
                "open-cluster-management:managedcluster:{primary.name}",
            ),
            &["roleRef", "subjects"],
            "Gives it to them.",
        ),
        WriteGrant::objects(
            role(
                "RoleBinding",
                Some("{primary.name}"),
                "open-cluster-management:managedcluster:{primary.name}:*",
            ),
            &["roleRef", "subjects"],
            "Gives them the shared roles in the namespace of the cluster.",
        ),
        WriteGrant::objects(
            role(
                "ClusterRole",
                None,
                "open-cluster-management:managedcluster:registration",
            ),
            &["rules"],
            "What registration agents may do in the namespaces of their clusters.",
        ),
        WriteGrant::objects(
            role(
                "ClusterRole",
                None,
                "open-cluster-management:managedcluster:work",
            ),
            &["rules"],
            "What work agents may do in the namespaces of their clusters.",
        ),
    ],
};
