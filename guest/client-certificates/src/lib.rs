//! The guest `client-certificates`: approves the requests of registration agents for the certificates of their own
//! cluster. It never denies: what it does not approve is left to a person.

mod decide;
mod grant;
mod reasons;
mod request;
mod settings;

pub use settings::{Bootstrap, Settings};
use transom_guest::{About, Guest, Problem};

/// The guest `client-certificates`.
pub struct ClientCertificates;

impl Guest for ClientCertificates {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "client-certificates",
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

transom_guest::register!(objects: ClientCertificates);
transom_guest::test_cases!(objects: ClientCertificates);
