//! The guest `set-bindings`: says in the status of a ManagedClusterSetBinding whether its set is there.

mod decide;

use transom_guest::kinds::{CLUSTER_SET, CLUSTER_SET_BINDING};
use transom_guest::{About, Grant, Guest, NoSettings, ReadGrant, WriteGrant};

/// The guest `set-bindings`.
pub struct SetBindings;

impl Guest for SetBindings {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: "set-bindings",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[CLUSTER_SET_BINDING.read(&["spec.clusterSet"])],
        reasons: &decide::REASONS,
        grant: Grant {
            read: &[ReadGrant::object(
                decide::SET,
                CLUSTER_SET.named("*"),
                "Whether the set is there.",
            )],
            write: &[WriteGrant::conditions(
                &[decide::BOUND],
                "Says whether the set is there.",
            )],
            ..Grant::NONE
        },
        ..About::EMPTY
    };
}

transom_guest::register!(objects: SetBindings);
transom_guest::test_cases!(objects: SetBindings);
