//! What this guest reads, and what it asks a policy to grant when its settings are the defaults: the finalizers that
//! may be taken off a Klusterlet have to be added to that.

use crate::decide::{CLUSTER, KLUSTERLET, OTHERS};
use transom_guest::kinds::{HOSTED_CLUSTER, Kind, MANAGED_CLUSTER, SOURCE_PATH};
use transom_guest::naming::{ANNOTATION_PATH, IMPORTED_PATH};
use transom_guest::objects::Operator;
use transom_guest::{Grant, LabelGrant, ObjectPattern, Read, ReadGrant, WriteGrant};

/// Klusterlets.
pub(crate) const KLUSTERLETS: Kind =
    Kind::new("operator.open-cluster-management.io/v1", "Klusterlet");
/// The deploy mode of a ManagedCluster.
pub(crate) const DEPLOY_MODE: &str = "import.open-cluster-management.io/klusterlet-deploy-mode";
/// The cluster that hosts the control plane of a ManagedCluster.
pub(crate) const HOSTED_BY: &str = "import.open-cluster-management.io/hosting-cluster-name";
/// What a ManagedCluster was made by.
pub(crate) const CREATED_VIA: &str = "open-cluster-management/created-via";

/// What it reads, the kind of the primary first.
pub(crate) const READS: [Read; 3] = [
    HOSTED_CLUSTER.read(&[ANNOTATION_PATH, IMPORTED_PATH]),
    MANAGED_CLUSTER.read(&[
        r#"metadata.annotations["import.open-cluster-management.io/klusterlet-deploy-mode"]"#,
        r#"metadata.annotations["import.open-cluster-management.io/hosting-cluster-name"]"#,
        r#"metadata.annotations["open-cluster-management/created-via"]"#,
        SOURCE_PATH,
        "metadata.deletionTimestamp",
    ]),
    KLUSTERLETS.read(&["metadata.deletionTimestamp"]),
];

/// The ManagedCluster, by the default naming.
const ITS_CLUSTER: ObjectPattern = MANAGED_CLUSTER.named(
    r#"{primary.annotations["import.open-cluster-management.io/auto-imported-as"] | primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | agent.remoteCluster "-" primary.name | primary.name}"#,
);

/// What it asks for.
pub(crate) const GRANT: Grant = Grant {
    read: &[
        ReadGrant::object(
            CLUSTER,
            ITS_CLUSTER,
            "Whether the hub has the cluster, and whether it is hosted here.",
        ),
        ReadGrant::object(
            KLUSTERLET,
            KLUSTERLETS.named("klusterlet-*"),
            "Whether its agents are gone.",
        ),
        ReadGrant {
            every: Some((10_000, 4 << 20)),
            ..ReadGrant::every(
                OTHERS,
                HOSTED_CLUSTER.within("*", "*"),
                "Whether one that stays has the same ManagedCluster.",
            )
        },
    ],
    write: &[
        WriteGrant::removal(ITS_CLUSTER, "Removes it from the hub."),
        WriteGrant::removal(
            ITS_CLUSTER,
            "Removes it from the hub where the policy `auto-import` made it.",
        )
        .labelled(&[LabelGrant {
            key: "transom.dev/policy",
            operator: Operator::In,
            values: &["auto-import"],
        }]),
    ],
    finalizer: Some("transom.dev/detach"),
    ..Grant::NONE
};
