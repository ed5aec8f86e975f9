//! What the guest asks a policy to grant when its settings are the defaults.

use crate::require::{HOME, SERVICE, SOURCE};
use transom_guest::kinds::{Kind, NAMESPACE, SECRET};
use transom_guest::{Grant, ReadGrant, WriteGrant};

/// The namespace of the target, by the rules of `require`.
const TARGET: &str = r#"klusterlet-{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | agent.remoteCluster "-" primary.name | primary.name}"#;

const SERVICES: Kind = Kind::new("v1", "Service");

/// The inputs of the kubeconfig, and the Secret that holds it.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::secret(
            SOURCE,
            SECRET.within("{primary.namespace}", "{primary.name}-admin-kubeconfig"),
            &["kubeconfig"],
            "The admin kubeconfig of the hosted cluster, whose credentials are used.",
        ),
        ReadGrant::object(
            SERVICE,
            SERVICES.within(
                "{primary.namespace}-{dashed(primary.name)}",
                "kube-apiserver",
            ),
            "The Service in front of the API server, at which the kubeconfig points.",
        ),
        ReadGrant::object(
            HOME,
            NAMESPACE.named(TARGET),
            "The namespace of the Secret; it is waited for.",
        ),
    ],
    write: &[WriteGrant::kubeconfig(
        SECRET.within(TARGET, "external-managed-kubeconfig"),
        &[SERVICE],
        &[SOURCE],
        "The kubeconfig with which the klusterlet works on the hosted cluster.",
    )],
    ..Grant::NONE
};
