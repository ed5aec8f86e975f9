//! The guest `cluster-sets`: puts each ManagedCluster into a ManagedClusterSet by the first rule that fits its labels and
//! cluster claims.

mod decide;
mod settings;

pub use settings::{Rule, Settings};
use transom_guest::objects::{Answer, Input};
use transom_guest::{About, Context, Failure, Grant, Guest, Primary, Problem, Read, WriteGrant};

/// The guest `cluster-sets`.
pub struct ClusterSets;

impl Guest for ClusterSets {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "cluster-sets",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[Read {
            api_version: "cluster.open-cluster-management.io/v1",
            kind: "ManagedCluster",
            fields: &["metadata.labels", "status.clusterClaims"],
            changes: &[],
        }],
        reasons: &[],
        settings_schema: include_str!("../settings.schema.json"),
        grant: Grant {
            read: &[],
            write: &[WriteGrant::fields(
                &[r#"metadata.labels["cluster.open-cluster-management.io/clusterset"]"#],
                "The label that puts the cluster into a set.",
            )],
        },
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

impl transom_guest::Objects for ClusterSets {
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        _: Vec<Input>,
    ) -> Result<Answer, Failure> {
        decide::reconcile(&context.settings, primary).map_err(Failure::Invalid)
    }
}

transom_guest::register!(objects: ClusterSets);
