//! What the guest asks a policy to grant when its settings are the defaults.

use crate::cluster::IMPORTED_PATH;
use crate::decide::CLUSTER;
use transom_guest::kinds::MANAGED_CLUSTER;
use transom_guest::{Grant, ObjectPattern, ReadGrant, WriteGrant};

/// The ManagedCluster, by the default naming.
const NAMED: ObjectPattern = MANAGED_CLUSTER.named(
    r#"{primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | agent.remoteCluster "-" primary.name | primary.name}"#,
);

/// The ManagedCluster, and the note on the HostedCluster.
pub(crate) const GRANT: Grant = Grant {
    read: &[ReadGrant {
        role: CLUSTER,
        object: NAMED,
        keys: &[],
        why: "The ManagedCluster as it is: what people and the hub changed stays.",
    }],
    write: &[
        WriteGrant::objects(
            NAMED,
            &[
                "metadata.labels",
                r#"metadata.annotations["import.open-cluster-management.io/klusterlet-deploy-mode"]"#,
                r#"metadata.annotations["import.open-cluster-management.io/hosting-cluster-name"]"#,
                r#"metadata.annotations["open-cluster-management/created-via"]"#,
                "spec.hubAcceptsClient",
                "spec.leaseDurationSeconds",
            ],
            "The ManagedCluster of the hosted cluster.",
        ),
        WriteGrant::fields(
            &[IMPORTED_PATH],
            "Notes that the hosted cluster was imported, so that it is done once.",
        ),
    ],
};
