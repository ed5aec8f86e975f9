//! The guest `hub-copies`: copies of the admin kubeconfig and of the kubeadmin password of a HostedCluster, on the hub.
//! It sees neither: both cross by reference.

mod decide;
mod grant;
mod reasons;
mod settings;

pub use settings::Settings;
use transom_guest::objects::{Answer, Input, Requirement};
use transom_guest::{About, Context, Failure, Guest, Primary, Problem};

/// The guest `hub-copies`.
pub struct HubCopies;

impl Guest for HubCopies {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "hub-copies",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[decide::READ],
        reasons: &reasons::ALL,
        settings_schema: include_str!("../settings.schema.json"),
        grant: grant::GRANT,
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

impl transom_guest::Objects for HubCopies {
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        decide::require(context, primary).map_err(Failure::Invalid)
    }

    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        decide::reconcile(context, primary, &inputs)
    }
}

transom_guest::register!(objects: HubCopies);
transom_guest::test_cases!(objects: HubCopies);
