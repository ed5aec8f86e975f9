//! What the guest asks a policy to grant when its settings are the defaults.

use crate::require::{HOME, SERVICE, SOURCE};
use transom_guest::{Grant, ObjectPattern, ReadGrant, WriteGrant};

/// The namespace of the target, by the rules of `require`.
const TARGET: &str = r#"klusterlet-{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | agent.remoteCluster "-" primary.name | primary.name}"#;

/// The inputs of the kubeconfig, and the Secret that holds it.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::secret(
            SOURCE,
            ObjectPattern {
                api_version: "v1",
                kind: "Secret",
                namespace: Some("{primary.namespace}"),
                name: "{primary.name}-admin-kubeconfig",
            },
            &["kubeconfig"],
            "The admin kubeconfig of the hosted cluster, whose credentials are used.",
        ),
        ReadGrant::object(
            SERVICE,
            ObjectPattern {
                api_version: "v1",
                kind: "Service",
                namespace: Some("{primary.namespace}-{dashed(primary.name)}"),
                name: "kube-apiserver",
            },
            "The Service in front of the API server, at which the kubeconfig points.",
        ),
        ReadGrant::object(
            HOME,
            ObjectPattern {
                api_version: "v1",
                kind: "Namespace",
                namespace: None,
                name: TARGET,
            },
            "The namespace of the Secret; it is waited for.",
        ),
    ],
    write: &[WriteGrant::kubeconfig(
        ObjectPattern {
            api_version: "v1",
            kind: "Secret",
            namespace: Some(TARGET),
            name: "external-managed-kubeconfig",
        },
        &[SERVICE],
        &[SOURCE],
        "The kubeconfig with which the klusterlet works on the hosted cluster.",
    )],
    ..Grant::NONE
};
