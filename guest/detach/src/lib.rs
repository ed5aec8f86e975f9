//! The guest `detach`: the ManagedCluster of a HostedCluster that is being deleted is removed from the hub, and what
//! holds that up is told.

mod decide;
mod grant;
mod reasons;
mod settings;

pub use settings::Settings;
use transom_guest::{About, Guest, Problem};

/// The guest `detach`.
pub struct Detach;

impl Guest for Detach {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "detach",
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

transom_guest::register!(objects: Detach);
transom_guest::test_cases!(objects: Detach);
