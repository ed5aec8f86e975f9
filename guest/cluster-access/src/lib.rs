//! The guest `cluster-access`: what the agents of a ManagedCluster may do on the hub once it is accepted, and what is
//! left of that after a denial.

mod decide;
mod grant;
mod known;
mod objects;
mod reasons;
mod rules;
mod settings;

pub use settings::Settings;
use transom_guest::{About, Guest, Problem};

/// The guest `cluster-access`.
pub struct ClusterAccess;

impl Guest for ClusterAccess {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "cluster-access",
        version: env!("CARGO_PKG_VERSION"),
        reads: &grant::READS,
        reasons: &reasons::ALL,
        settings_schema: include_str!("../settings.schema.json"),
        grant: grant::GRANT,
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

transom_guest::register!(objects: ClusterAccess);
transom_guest::test_cases!(objects: ClusterAccess);
