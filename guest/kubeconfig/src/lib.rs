//! The guest `kubeconfig`: decides where `external-managed-kubeconfig` is written, and its content.
//! It gets no byte of a credential, only numbers that are valid for one call.

mod grant;
mod port;
mod reasons;
mod require;
mod settings;
mod transform;

pub use settings::{
    Entry, Insecure, Keep, Naming, Permission, Port, PortChoice, Precedence, Settings,
};
use transom_guest::kinds::HOSTED_CLUSTER;
use transom_guest::kubeconfig::{Answer, Input, Requirement};
use transom_guest::naming::ANNOTATION_PATH;
use transom_guest::{About, Context, Failure, Guest, Primary, Problem};

/// The guest `kubeconfig`.
pub struct Kubeconfig;

impl Guest for Kubeconfig {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "kubeconfig",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[HOSTED_CLUSTER.read(&[ANNOTATION_PATH])],
        reasons: &reasons::ALL,
        settings_schema: include_str!("../settings.schema.json"),
        grant: grant::GRANT,
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

impl transom_guest::Kubeconfig for Kubeconfig {
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        require::require(context, primary).map_err(Failure::Invalid)
    }

    fn transform(
        context: &Context<Settings>,
        _: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let kubeconfig = transform::transform(&context.settings, inputs)?;
        Ok(Answer {
            kubeconfig,
            ask_again_at: None,
        })
    }
}

transom_guest::register!(kubeconfig: Kubeconfig);
transom_guest::test_cases!(kubeconfig: Kubeconfig);
