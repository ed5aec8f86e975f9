//! The guest `auto-import`: the ManagedCluster of a HostedCluster, and its KlusterletAddonConfig. Imports once: what a
//! person detached stays detached.

mod cluster;
mod decide;
mod grant;
mod reasons;
mod settings;

pub use settings::{Addons, Settings};
use transom_guest::objects::{Answer, Input, Requirement};
use transom_guest::{About, Context, Failure, Guest, Primary, Problem};

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

impl transom_guest::Objects for AutoImport {
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        found: &[Input],
    ) -> Result<Requirement, Failure> {
        decide::require(context, primary, found).map_err(Failure::Invalid)
    }

    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        decide::reconcile(context, primary, &inputs).map_err(Failure::Invalid)
    }
}

transom_guest::register!(objects: AutoImport);
