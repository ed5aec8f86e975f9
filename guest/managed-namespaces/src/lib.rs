//! The guest `managed-namespaces`: says in the status of a ManagedCluster which namespaces its sets want on it. The
//! agent of the cluster makes them, and says there how that went.

mod decide;

use transom_guest::kinds::{CLUSTER_SET, MANAGED_CLUSTER};
use transom_guest::{About, Grant, Guest, NoSettings, ReadGrant, WriteGrant};

/// The guest `managed-namespaces`.
pub struct ManagedNamespaces;

impl Guest for ManagedNamespaces {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: "managed-namespaces",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[
            MANAGED_CLUSTER.read(&["metadata.labels", decide::FIELD]),
            CLUSTER_SET.read(&["spec.clusterSelector", "spec.managedNamespaces"]),
        ],
        grant: Grant {
            // A few large sets must not keep every cluster from its namespaces.
            read: &[ReadGrant {
                every: Some((10_000, 4 << 20)),
                ..ReadGrant::every(
                    decide::SETS,
                    CLUSTER_SET.named("*"),
                    "Which sets the cluster belongs to, and which namespaces they want.",
                )
            }],
            write: &[WriteGrant::fields(
                &[decide::FIELD],
                "The namespaces that the sets of the cluster want on it.",
            )],
            ..Grant::NONE
        },
        ..About::EMPTY
    };
}

transom_guest::register!(objects: ManagedNamespaces);
transom_guest::test_cases!(objects: ManagedNamespaces);
