//! The guest `my-guest`: leaves a ManagedCluster alone while its label `example.com/my-guest` is `hold`.

use serde::Deserialize;
use std::collections::BTreeMap;
use transom_guest::trigger::{Change, ReadyAnswer, Verdict};
use transom_guest::{About, Context, Guest, NoSettings, Primary, Problem, Read, Reason, Trigger};

/// The label that counts.
const LABEL: &str = "example.com/my-guest";
/// The field on which the answer of the guest that decides depends.
const AVAILABLE: &str = "status.conditions[ManagedClusterConditionAvailable]";

const ON_HOLD: Reason = Reason {
    name: "OnHold",
    meaning: "A label says that the managed cluster is to be left alone.",
    remedy: "Remove the label `example.com/my-guest`.",
};

const HOLD_CHANGED: Reason = Reason {
    name: "HoldChanged",
    meaning: "The label that holds a managed cluster was set or removed.",
    remedy: "Nothing.",
};

const AVAILABILITY_CHANGED: Reason = Reason {
    name: "AvailabilityChanged",
    meaning: "The condition ManagedClusterConditionAvailable changed.",
    remedy: "Nothing.",
};

pub struct MyGuest;

impl Guest for MyGuest {
    type Settings = NoSettings;

    const ABOUT: About = About {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        // Only declared fields cross; of those under `changes`, only that they changed.
        reads: &[Read {
            api_version: "cluster.open-cluster-management.io/v1",
            kind: "ManagedCluster",
            fields: &[r#"metadata.labels["example.com/my-guest"]"#],
            changes: &[AVAILABLE],
        }],
        reasons: &[ON_HOLD, HOLD_CHANGED, AVAILABILITY_CHANGED],
        ..About::EMPTY
    };
}

impl Trigger for MyGuest {
    fn ready(_: &Context<NoSettings>, primary: &Primary) -> ReadyAnswer {
        match is_held(primary) {
            Ok(false) => ReadyAnswer::ready(),
            Ok(true) => ReadyAnswer::not_ready(ON_HOLD.problem("the label says `hold`")),
            Err(problem) => ReadyAnswer::not_ready(problem),
        }
    }

    fn evaluate(_: &Context<NoSettings>, change: &Change) -> Verdict {
        let mut reasons = Vec::new();
        // Fields that cannot be read differ from all that can; `ready` reports what is wrong with them.
        let [before, after] = [&change.before, &change.after].map(|one| is_held(one).ok());
        if before != after {
            reasons.push(HOLD_CHANGED.name.to_owned());
        }
        let mut changed = change.changed.iter();
        if changed.any(|path| path.starts_with(AVAILABLE)) {
            reasons.push(AVAILABILITY_CHANGED.name.to_owned());
        }
        match reasons.is_empty() {
            true => Verdict::Ignore,
            false => Verdict::Run(reasons),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagedCluster {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: BTreeMap<String, String>,
}

/// Whether the label says to leave the cluster alone.
fn is_held(primary: &Primary) -> Result<bool, Problem> {
    let cluster: ManagedCluster = primary.read()?;
    let label = cluster.metadata.labels.get(LABEL);
    Ok(label.is_some_and(|value| value == "hold"))
}

transom_guest::register!(trigger: MyGuest);
transom_guest::test_cases!(trigger: MyGuest);
