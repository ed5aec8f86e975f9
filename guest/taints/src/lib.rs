//! The guest `taints`: decides which built-in taints a managed cluster carries, as Open Cluster Management does.
//! It changes only taints that it owns, and sets no time.

mod decide;
mod settings;

pub use settings::{Settings, TaintEffect, TaintSettings};
use transom_guest::kinds::MANAGED_CLUSTER;
use transom_guest::taints::{Answer, ManagedCluster};
use transom_guest::{About, Context, Failure, Grant, Guest, Problem, WriteGrant};

/// The guest `taints`.
pub struct Taints;

impl Guest for Taints {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "taints",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[MANAGED_CLUSTER.read(&[
            "status.conditions[ManagedClusterConditionAvailable]",
            "spec.taints",
        ])],
        reasons: &[decide::PRIMARY_DELETING],
        settings_schema: include_str!("../settings.schema.json"),
        grant: Grant {
            write: &[WriteGrant::taints(
                &[
                    "cluster.open-cluster-management.io/unavailable",
                    "cluster.open-cluster-management.io/unreachable",
                ],
                "The taints that tell whether a cluster is available and reachable.",
            )],
            ..Grant::NONE
        },
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

impl transom_guest::Taints for Taints {
    fn compute(context: &Context<Settings>, cluster: &ManagedCluster) -> Result<Answer, Failure> {
        Ok(decide::compute(
            &context.settings,
            context.now_seconds,
            cluster,
        ))
    }
}

transom_guest::register!(taints: Taints);
transom_guest::test_cases!(taints: Taints);
