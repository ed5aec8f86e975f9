//! What the guest asks a policy to grant when its settings are the defaults.

use crate::decide::CLUSTER;
use transom_guest::kinds::MANAGED_CLUSTER;
use transom_guest::naming::IMPORTED_PATH;
use transom_guest::{Grant, ObjectPattern, ReadGrant, Verb, WriteGrant};

/// The ManagedCluster, by the default naming.
const NAMED: ObjectPattern = MANAGED_CLUSTER.named("{managedCluster}");
/// Its name, as a value.
const NAME_AS_JSON: &str = r#""{managedCluster}""#;

/// The ManagedCluster, and the note on the HostedCluster.
pub(crate) const GRANT: Grant = Grant {
    names: &[(
        "managedCluster",
        r#"primary.annotations["cluster.open-cluster-management.io/managedcluster-name"] | agent.remoteCluster "-" primary.name | primary.name"#,
    )],
    read: &[ReadGrant::object(CLUSTER, NAMED, "The ManagedCluster as it is: what people and the hub changed stays.")],
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
            "The ManagedCluster of the hosted cluster. It stays when the hosted cluster goes.",
        )
        .doing(&[Verb::Create, Verb::Update])
        .of_values(&[
            ("metadata.labels.name", &[NAME_AS_JSON]),
            (
                r#"metadata.labels["cluster.open-cluster-management.io/clusterset"]"#,
                &[],
            ),
            (r#"metadata.labels["local-cluster"]"#, &[]),
            (
                r#"metadata.annotations["import.open-cluster-management.io/klusterlet-deploy-mode"]"#,
                &[r#""Hosted""#],
            ),
            (
                r#"metadata.annotations["open-cluster-management/created-via"]"#,
                &[r#""hypershift""#],
            ),
        ]),
        WriteGrant::fields(
            &[IMPORTED_PATH],
            "Notes that the hosted cluster was imported, so that it is done once.",
        )
        .of_values(&[(IMPORTED_PATH, &[NAME_AS_JSON])]),
    ],
    ..Grant::NONE
};
