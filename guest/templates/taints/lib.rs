//! The guest `my-guest`: taints a ManagedCluster that has the label `example.com/my-guest`.

use serde::Deserialize;
use transom_guest::taints::{Answer, Decision, Effect, ManagedCluster, Wanted};
use transom_guest::{
    About, Context, Failure, Grant, Guest, Problem, Read, Reason, Taints, WriteGrant,
};

/// The label that counts, and the key of the taint. The policy grants the key.
const LABEL: &str = "example.com/my-guest";

const DELETING: Reason = Reason {
    name: "PrimaryDeleting",
    meaning: "The managed cluster is being deleted; its taints stay as they are.",
    remedy: "Nothing.",
};

/// No settings at all are the default; a misspelt one is refused.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The value of the label that counts.
    value: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            value: "yes".into(),
        }
    }
}

pub struct MyGuest;

impl Guest for MyGuest {
    type Settings = Settings;

    const ABOUT: About = About {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        // Only declared fields cross. Taints are declared so that a change of them is noticed.
        reads: &[Read {
            api_version: "cluster.open-cluster-management.io/v1",
            kind: "ManagedCluster",
            fields: &[r#"metadata.labels["example.com/my-guest"]"#, "spec.taints"],
            changes: &[],
        }],
        reasons: &[DELETING],
        settings_schema: r#"{
            "type": "object",
            "additionalProperties": false,
            "properties": {"value": {"type": "string", "minLength": 1, "default": "yes"}}
        }"#,
        // For `transom policy init`; a policy grants it, or it does not.
        grant: Grant {
            write: &[WriteGrant::taints(&[LABEL], "The taint of this guest.")],
            ..Grant::NONE
        },
    };

    fn check(settings: &Settings) -> Vec<Problem> {
        match settings.value.as_str() {
            "" => vec![Problem::in_settings(
                "value",
                "a label without value is not looked for",
            )],
            _ => Vec::new(),
        }
    }
}

impl Taints for MyGuest {
    fn compute(context: &Context<Settings>, cluster: &ManagedCluster) -> Result<Answer, Failure> {
        let decision = if cluster.deleting {
            Decision::Hold(DELETING.problem("the managed cluster is being deleted"))
        } else {
            Decision::Own(wanted(&context.settings, cluster))
        };
        Ok(Answer {
            decision,
            ask_again_at: None,
        })
    }
}

/// The taints that the cluster is to have, of the keys that the policy owns.
fn wanted(settings: &Settings, cluster: &ManagedCluster) -> Vec<Wanted> {
    let mut labels = cluster.labels.iter();
    let is_labelled = labels.any(|label| label.key == LABEL && label.value == settings.value);
    let taint = Wanted {
        key: LABEL.into(),
        value: String::new(),
        effect: Effect::NoSelect,
    };
    is_labelled.then_some(taint).into_iter().collect()
}

transom_guest::register!(taints: MyGuest);
transom_guest::test_cases!(taints: MyGuest);
