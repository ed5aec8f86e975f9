//! What the guest asks a policy to grant when its settings are the defaults, and the agent works for the hub's own
//! cluster.

use crate::decide::{KUBECONFIG, NAMESPACE, PASSWORD};
use transom_guest::kinds::{self, SECRET};
use transom_guest::{Grant, HoleGrant, ObjectPattern, ReadGrant, WriteGrant};

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
    SECRET.within("{primary.namespace}", name)
}

const fn copy(name: &'static str) -> ObjectPattern {
    SECRET.within(HOSTING, name)
}

/// Both secrets, the namespace of their copies, and the copies.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::object(
            NAMESPACE,
            kinds::NAMESPACE.named(HOSTING),
            "The copies lie in it.",
        ),
        ReadGrant::secret(
            KUBECONFIG.role,
            source("{primary.name}-admin-kubeconfig"),
            &["kubeconfig"],
            "It is copied.",
        ),
        ReadGrant::secret(
            PASSWORD.role,
            source("{primary.name}-kubeadmin-password"),
            &["password"],
            "It is copied.",
        ),
    ],
    write: &[
        WriteGrant::secrets(
            copy(
                r#"{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | primary.name}-admin-kubeconfig"#,
            ),
            FIELDS,
            &[HoleGrant::bytes("data.kubeconfig", &[KUBECONFIG.role])],
            "The copy of the admin kubeconfig.",
        ),
        WriteGrant::secrets(
            copy(
                r#"{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | primary.name}-kubeadmin-password"#,
            ),
            FIELDS,
            &[HoleGrant::bytes("data.password", &[PASSWORD.role])],
            "The copy of the password of kubeadmin.",
        ),
    ],
    ..Grant::NONE
};
