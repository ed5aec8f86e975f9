//! The guest `cluster-acceptance`: accepts the ManagedClusters that a rule names, once each. A later denial stands.

mod decide;
mod settings;

pub use settings::{Rule, Settings};
use transom_guest::kinds::{CLUSTER_ROLE, MANAGED_CLUSTER};
use transom_guest::{About, Grant, Guest, Problem, ReadGrant, WriteGrant};

/// The guest `cluster-acceptance`.
pub struct ClusterAcceptance;

impl Guest for ClusterAcceptance {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "cluster-acceptance",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[
            MANAGED_CLUSTER.read(&[
                "metadata.labels",
                r#"metadata.annotations["open-cluster-management.io/automatically-accepted-on"]"#,
                r#"metadata.annotations["open-cluster-management/created-via"]"#,
                "spec.hubAcceptsClient",
                "status.conditions[HubAcceptedManagedCluster]",
            ]),
            CLUSTER_ROLE.read(&["metadata.deletionTimestamp"]),
        ],
        reasons: &[],
        settings_schema: include_str!("../settings.schema.json"),
        grant: Grant {
            read: &[ReadGrant::object(
                decide::ROLE,
                CLUSTER_ROLE.named("open-cluster-management:managedcluster:{primary.name}"),
                "Whether the cluster was accepted once.",
            )],
            write: &[WriteGrant::fields(
                &[
                    "spec.hubAcceptsClient",
                    r#"metadata.annotations["open-cluster-management.io/automatically-accepted-on"]"#,
                ],
                "Accepts the cluster, and notes when, so that it is done once.",
            )
            .of_values(&[("spec.hubAcceptsClient", &["true"])])],
            ..Grant::NONE
        },
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

transom_guest::register!(objects: ClusterAcceptance);
transom_guest::test_cases!(objects: ClusterAcceptance);
