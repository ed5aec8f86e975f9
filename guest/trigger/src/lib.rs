//! The guest `trigger`: decides whether a HostedCluster may be reconciled, and which of its changes call for it.

mod decide;
mod pause;
mod reasons;
mod settings;

pub use settings::{Changes, Settings};
use transom_guest::trigger::{Change, ReadyAnswer, Verdict};
use transom_guest::{About, Context, Grant, Guest, Primary, Problem, Read};

/// The guest `trigger`.
pub struct Trigger;

impl Guest for Trigger {
    type Settings = Settings;

    const ABOUT: About = About {
        name: "trigger",
        version: env!("CARGO_PKG_VERSION"),
        reads: &[Read {
            api_version: "hypershift.openshift.io/v1beta1",
            kind: "HostedCluster",
            fields: &[
                "spec.pausedUntil",
                "status.conditions[Available].status",
                "status.conditions[Available].reason",
            ],
            changes: &decide::CHANGES,
        }],
        reasons: &reasons::ALL,
        settings_schema: include_str!("../settings.schema.json"),
        grant: Grant::NONE,
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.check()
    }
}

impl transom_guest::Trigger for Trigger {
    fn ready(context: &Context<Settings>, primary: &Primary) -> ReadyAnswer {
        decide::ready(context, primary)
    }

    fn evaluate(context: &Context<Settings>, change: &Change) -> Verdict {
        decide::evaluate(&context.settings, change)
    }
}

transom_guest::register!(trigger: Trigger);
transom_guest::test_cases!(trigger: Trigger);
