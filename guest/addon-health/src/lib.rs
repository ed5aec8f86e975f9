//! The guest `addon-health`: of a cluster that is unreachable no add-on is known to be available, and labels of the
//! cluster tell how each of its add-ons is.

mod decide;
mod grant;

use serde::Deserialize;
use transom_guest::objects::{Answer, Input, Requirement};
use transom_guest::{About, Context, Failure, Guest, Primary};

/// The guest `addon-health`.
pub struct AddonHealth;

/// The settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether the cluster gets a label for each add-on.
    pub labels: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { labels: true }
    }
}

impl Guest for AddonHealth {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "addon-health",
        version: env!("CARGO_PKG_VERSION"),
        reads: &grant::READS,
        settings_schema: include_str!("../settings.schema.json"),
        grant: grant::GRANT,
        ..About::EMPTY
    };
}

impl transom_guest::Objects for AddonHealth {
    fn require(
        _: &Context<Settings>,
        primary: &Primary,
        found: &[Input],
    ) -> Result<Requirement, Failure> {
        decide::require(primary, found).map_err(Failure::Invalid)
    }

    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        decide::reconcile(context, primary, &inputs).map_err(Failure::Invalid)
    }
}

transom_guest::register!(objects: AddonHealth);
transom_guest::test_cases!(objects: AddonHealth);
