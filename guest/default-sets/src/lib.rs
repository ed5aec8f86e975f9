//! The guest `default-sets`: the ManagedClusterSets `default` and `global`, which every hub has. For a Namespace that
//! always exists it makes them; for a ManagedClusterSet it keeps their selector right.

mod decide;

use transom_guest::kinds::CLUSTER_SET;
use transom_guest::{About, Grant, Guest, NoSettings, WriteGrant};

/// The guest `default-sets`.
pub struct DefaultSets;

impl Guest for DefaultSets {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: "default-sets",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[CLUSTER_SET.read(&[decide::AUTO_UPDATE_PATH, decide::SELECTOR])],
        grant: Grant {
            write: &[WriteGrant::fields(
                &[decide::SELECTOR],
                "The selectors of the sets `default` and `global`.",
            )],
            ..Grant::NONE
        },
        ..About::EMPTY
    };
}

transom_guest::register!(objects: DefaultSets);
transom_guest::test_cases!(objects: DefaultSets);
