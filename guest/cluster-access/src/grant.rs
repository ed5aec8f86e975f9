//! What this guest reads, and what it asks a policy to grant.

use crate::decide;
use transom_guest::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, MANAGED_CLUSTER, MANIFEST_WORK, NAMESPACE, ROLE_BINDING,
    STAMP_PATHS,
};
use transom_guest::{Grant, ObjectPattern, Read, ReadGrant, Verb, WriteGrant};

/// The fields that it reads.
pub(crate) const READS: [Read; 4] = [
    MANAGED_CLUSTER.read(&[
        "spec.hubAcceptsClient",
        "status.conditions[HubAcceptedManagedCluster]",
    ]),
    NAMESPACE.read(&[LABEL, "metadata.deletionTimestamp"]),
    CLUSTER_ROLE.read(&["metadata.deletionTimestamp"]),
    ROLE_BINDING.read(&[
        "metadata.deletionTimestamp",
        "metadata.finalizers",
        LABEL,
        STAMP_PATHS[0],
        STAMP_PATHS[1],
        STAMP_PATHS[2],
        "roleRef",
        "subjects",
    ]),
];

/// The label that names the cluster of an object.
const LABEL: &str = r#"metadata.labels["open-cluster-management.io/cluster-name"]"#;
/// What gives the work agent its rights. Like that of Open Cluster Management it outlives its removal until the works
/// are gone.
const WORK_BINDING: ObjectPattern = ROLE_BINDING.within(
    "{primary.name}",
    "open-cluster-management:managedcluster:{primary.name}:work",
);
/// What gives the registration agent its rights in the namespace of the cluster.
const REGISTRATION_BINDING: ObjectPattern = ROLE_BINDING.within(
    "{primary.name}",
    "open-cluster-management:managedcluster:{primary.name}:registration",
);
/// What the agents of a cluster may do on the whole hub.
const OWN_ROLE: ObjectPattern =
    CLUSTER_ROLE.named("open-cluster-management:managedcluster:{primary.name}");
/// The groups of the agents of a cluster.
const AGENTS: &[&str] = &[
    r#"{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:open-cluster-management:{primary.name}"}"#,
    r#"{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "open-cluster-management:{primary.name}"}"#,
];

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::every(
            decide::WORKS,
            MANIFEST_WORK.within("{primary.name}", "*"),
            "Whether a denied cluster still has works to clean up.",
        ),
        ReadGrant::object(
            decide::NAMESPACED,
            NAMESPACE.named("{primary.name}"),
            "Whether its namespace bears the name of the cluster.",
        ),
        ReadGrant::object(
            decide::BINDING,
            WORK_BINDING,
            "Whether the binding of the work agent is being deleted.",
        ),
        ReadGrant::object(
            decide::REGISTERED,
            REGISTRATION_BINDING,
            "Whether the binding of the registration agent is one that stays after a denial.",
        ),
        ReadGrant::object(
            decide::ROLE,
            OWN_ROLE,
            "Whether a cluster that is not accepted was accepted once.",
        ),
    ],
    write: &[
        WriteGrant::conditions(
            &[decide::HUB_ACCEPTED],
            "Says that the cluster was accepted or denied.",
        ),
        WriteGrant::objects(
            NAMESPACE.named("{primary.name}"),
            &[LABEL],
            "The namespace of the cluster. It is made once, and stays.",
        )
        .doing(&[Verb::Create])
        .of_values(&[
            (LABEL, &[r#""{primary.name}""#]),
        ]),
        WriteGrant::fields_of(
            NAMESPACE.named("{primary.name}"),
            &[LABEL],
            "Names the cluster on a namespace that others made.",
        )
        .of_values(&[
            (LABEL, &[r#""{primary.name}""#]),
        ]),
        WriteGrant::objects(
            CLUSTER_ROLE.named("open-cluster-management:managedcluster:registration"),
            &["rules"],
            "What registration agents may do in the namespaces of their clusters.",
        )
        .of_values(&[
            (
                "rules",
                &[
                    r#"{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "update"]}"#,
                    r#"{"apiGroups": ["addon.open-cluster-management.io"], "resources": ["managedclusteraddons"], "verbs": ["get", "list", "watch"]}"#,
                    r#"{"apiGroups": ["addon.open-cluster-management.io"], "resources": ["managedclusteraddons/status"], "verbs": ["patch", "update"]}"#,
                    r#"{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}"#,
                ],
            ),
        ]),
        WriteGrant::objects(
            CLUSTER_ROLE.named("open-cluster-management:managedcluster:work"),
            &["rules"],
            "What work agents may do in the namespaces of their clusters.",
        )
        .of_values(&[
            (
                "rules",
                &[
                    r#"{"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]}"#,
                    r#"{"apiGroups": ["work.open-cluster-management.io"], "resources": ["manifestworks"], "verbs": ["get", "list", "watch", "update", "patch"]}"#,
                    r#"{"apiGroups": ["work.open-cluster-management.io"], "resources": ["manifestworks/status"], "verbs": ["patch", "update"]}"#,
                ],
            ),
        ]),
        WriteGrant::objects(
            OWN_ROLE,
            &["rules", LABEL],
            "What the agents of the cluster may do on the whole hub.",
        )
        .of_values(&[
            (LABEL, &[r#""{primary.name}""#]),
            (
                "rules",
                &[
                    r#"{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get", "list", "watch"]}"#,
                    r#"{"apiGroups": ["register.open-cluster-management.io"], "resources": ["managedclusters/clientcertificates"], "verbs": ["renew"]}"#,
                    r#"{"apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"], "resourceNames": ["{primary.name}"], "verbs": ["get", "list", "update", "watch"]}"#,
                    r#"{"apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"], "resourceNames": ["{primary.name}"], "verbs": ["get", "list", "watch"]}"#,
                    r#"{"apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters/status"], "resourceNames": ["{primary.name}"], "verbs": ["patch", "update"]}"#,
                ],
            ),
        ]),
        WriteGrant::objects(
            CLUSTER_ROLE_BINDING.named("open-cluster-management:managedcluster:{primary.name}"),
            &["roleRef", "subjects", LABEL],
            "Gives it to them.",
        )
        .of_values(&[
            (LABEL, &[r#""{primary.name}""#]),
            (
                "roleRef",
                &[
                    r#"{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "open-cluster-management:managedcluster:{primary.name}"}"#,
                ],
            ),
            ("subjects", AGENTS),
        ]),
        WriteGrant::objects(
            REGISTRATION_BINDING,
            &["roleRef", "subjects", LABEL],
            "Gives them the shared role in the namespace of the cluster.",
        )
        .of_values(&[
            (LABEL, &[r#""{primary.name}""#]),
            (
                "roleRef",
                &[
                    r#"{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "open-cluster-management:managedcluster:registration"}"#,
                ],
            ),
            ("subjects", AGENTS),
        ]),
        WriteGrant::objects(
            WORK_BINDING,
            &["roleRef", "subjects", LABEL],
            "Gives them the shared role in the namespace of the cluster.",
        )
        .bearing(&["cluster.open-cluster-management.io/manifest-work-cleanup"])
        .of_values(&[
            (LABEL, &[r#""{primary.name}""#]),
            (
                "roleRef",
                &[
                    r#"{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "open-cluster-management:managedcluster:work"}"#,
                ],
            ),
            ("subjects", AGENTS),
        ]),
    ],
    // The one that Open Cluster Management uses for this: clusters that have it are released as well.
    finalizer: Some("cluster.open-cluster-management.io/api-resource-cleanup"),
    ..Grant::NONE
};
