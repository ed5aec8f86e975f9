//! The guest `cluster-sets`: puts each ManagedCluster into a ManagedClusterSet by the first rule that fits its labels
//! and cluster claims.

mod decide;
mod settings;

pub use settings::{Rule, Settings};
use transom_guest::kinds::MANAGED_CLUSTER;
use transom_guest::{About, Grant, Guest, Problem, WriteGrant};

/// The guest `cluster-sets`.
pub struct ClusterSets;

impl Guest for ClusterSets {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "cluster-sets",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[MANAGED_CLUSTER.read(&["metadata.labels", "status.clusterClaims"])],
        reasons: &[],
        settings_schema: include_str!("../settings.schema.json"),
        grant: Grant {
            write: &[WriteGrant::fields(
                &[r#"metadata.labels["cluster.open-cluster-management.io/clusterset"]"#],
                "The label that puts the cluster into a set.",
            )],
            ..Grant::NONE
        },
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

transom_guest::register!(objects: ClusterSets);
transom_guest::test_cases!(objects: ClusterSets);
