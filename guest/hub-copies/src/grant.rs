//! What the guest asks a policy to grant when its settings are the defaults, and the agent works for the hub's own cluster.

use crate::decide::{KUBECONFIG, NAMESPACE, PASSWORD};
use transom_guest::{Grant, ObjectPattern, ReadGrant, WriteGrant};

/// Where the copies lie.
const HOSTING: &str = "local-cluster";
/// Labels and the annotation of a copy.
const FIELDS: &[&str] = &[
    r#"metadata.labels["synced-from-spoke"]"#,
    r#"metadata.labels["hypershiftdeployments.cluster.open-cluster-management.io/cluster-name"]"#,
    r#"metadata.labels["hypershiftdeployments.cluster.open-cluster-management.io/hosting-namespace"]"#,
    r#"metadata.annotations["cluster.open-cluster-management.io/managedcluster-name"]"#,
];

const fn source(name: &'static str) -> ObjectPattern {
    ObjectPattern {
        api_version: "v1",
        kind: "Secret",
        namespace: Some("{primary.namespace}"),
        name,
    }
}

const fn copy(name: &'static str) -> ObjectPattern {
    ObjectPattern {
        namespace: Some(HOSTING),
        ..source(name)
    }
}

/// Both secrets, the namespace of their copies, and the copies.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant {
            role: NAMESPACE,
            object: ObjectPattern {
                api_version: "v1",
                kind: "Namespace",
                namespace: None,
                name: HOSTING,
            },
            keys: &[],
            why: "The copies lie in it.",
        },
        ReadGrant {
            role: KUBECONFIG.role,
            object: source("{primary.name}-admin-kubeconfig"),
            keys: &["kubeconfig"],
            why: "It is copied.",
        },
        ReadGrant {
            role: PASSWORD.role,
            object: source("{primary.name}-kubeadmin-password"),
            keys: &["password"],
            why: "It is copied.",
        },
    ],
    write: &[
        WriteGrant::secrets(
            copy(
                r#"{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | primary.name}-admin-kubeconfig"#,
            ),
            FIELDS,
            &[("data.kubeconfig", &[KUBECONFIG.role])],
            "The copy of the admin kubeconfig.",
        ),
        WriteGrant::secrets(
            copy(
                r#"{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | primary.name}-kubeadmin-password"#,
            ),
            FIELDS,
            &[("data.password", &[PASSWORD.role])],
            "The copy of the password of kubeadmin.",
        ),
    ],
};
