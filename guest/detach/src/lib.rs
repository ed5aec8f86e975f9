//! The guest `detach`: the ManagedCluster of a HostedCluster that is being deleted is removed from the hub, and what holds
//! that up is told.

mod decide;
mod grant;
mod reasons;
mod settings;

pub use settings::Settings;
use transom_guest::objects::{Answer, Input, Requirement};
use transom_guest::{About, Context, Failure, Guest, Primary, Problem};

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

impl transom_guest::Objects for Detach {
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

transom_guest::register!(objects: Detach);
