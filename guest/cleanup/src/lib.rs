//! The guest `cleanup`: a ManagedCluster that is being deleted stays until its add-ons and works are gone. They go in
//! the order of their kinds and priorities. With the namespaces of clusters as primaries: so they do when the cluster
//! is gone.

mod decide;
mod gone;
mod grant;
mod reasons;
mod settings;

pub use settings::Settings;
use transom_guest::{About, Guest, Problem};

/// The guest `cleanup`.
pub struct Cleanup;

impl Guest for Cleanup {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "cleanup",
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

transom_guest::register!(objects: Cleanup);
transom_guest::test_cases!(objects: Cleanup);
