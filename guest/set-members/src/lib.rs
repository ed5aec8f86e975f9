//! The guest `set-members`: says in the status of a ManagedClusterSet how many ManagedClusters it has. The host counts
//! them; only a cluster that joins or leaves calls for another reconcile.

mod decide;

use transom_guest::kinds::{CLUSTER_SET, MANAGED_CLUSTER};
use transom_guest::{About, Grant, Guest, NoSettings, ReadGrant, WriteGrant};

/// The guest `set-members`.
pub struct SetMembers;

impl Guest for SetMembers {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: "set-members",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[
            CLUSTER_SET.read(&["spec.clusterSelector"]),
            MANAGED_CLUSTER.read(&["metadata.labels"]),
        ],
        reasons: &decide::REASONS,
        grant: Grant {
            read: &[ReadGrant::every(
                decide::CLUSTERS,
                MANAGED_CLUSTER.named("*"),
                "How many clusters the set has.",
            )],
            write: &[WriteGrant::conditions(
                &[decide::EMPTY],
                "Says how many clusters the set has.",
            )],
            ..Grant::NONE
        },
        ..About::EMPTY
    };
}

transom_guest::register!(objects: SetMembers);
transom_guest::test_cases!(objects: SetMembers);
