//! The guest `availability`: watches the heartbeats of managed clusters. It makes their leases, says `Unknown` when the
//! heartbeats stop, and tells whether a clock is right. That a cluster is available only its agent says.

mod decide;
mod grant;
mod reasons;
mod settings;

pub use settings::Settings;
use transom_guest::{About, Guest, Problem};

/// The guest `availability`.
pub struct Availability;

impl Guest for Availability {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "availability",
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

transom_guest::register!(objects: Availability);
transom_guest::test_cases!(objects: Availability);
