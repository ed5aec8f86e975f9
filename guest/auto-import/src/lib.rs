//! The guest `auto-import`: the ManagedCluster of a HostedCluster, and its KlusterletAddonConfig. Imports once: what a
//! person detached stays detached.

mod cluster;
mod decide;
mod grant;
mod reasons;
mod settings;

pub use settings::{Addons, Settings};
use transom_guest::{About, Guest, Problem};

/// The guest `auto-import`.
pub struct AutoImport;

impl Guest for AutoImport {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "auto-import",
        version: env!("CARGO_PKG_VERSION"),
        reads: &cluster::READS,
        reasons: &reasons::ALL,
        settings_schema: include_str!("../settings.schema.json"),
        grant: grant::GRANT,
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

transom_guest::register!(objects: AutoImport);
transom_guest::test_cases!(objects: AutoImport);
