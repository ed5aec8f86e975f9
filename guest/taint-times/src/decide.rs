//! Decides which taints get a time. Pure functions.

use crate::{Settings, TaintTimes};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use transom_guest::objects::{Answer, Desired, Input, Objects};
use transom_guest::time::format_rfc3339;
use transom_guest::{Context, Failure, Primary};

/// The field of a taint that holds its time.
const TIME: &str = "timeAdded";
/// The forms of a taint.
pub(crate) const FORMS: &[&str] = &[
    r#"{"key": "*", "effect": "*"}"#,
    r#"{"key": "*", "effect": "*", "timeAdded": "*"}"#,
    r#"{"key": "*", "value": "*", "effect": "*"}"#,
    r#"{"key": "*", "value": "*", "effect": "*", "timeAdded": "*"}"#,
];

/// What is read of a ManagedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Vec<Map<String, Value>>,
}

impl Objects for TaintTimes {
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        _: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let Cluster { mut spec } = primary.read()?;
        let now = format_rfc3339(context.now_seconds);
        let mut found = false;
        for taint in spec.taints.iter_mut().filter(|_| !primary.deleting) {
            // An absent field, as some clients write it.
            taint.retain(|_, value| !value.is_null());
            if lacks_time(taint, &context.settings) {
                taint.insert(TIME.to_owned(), now.as_str().into());
                found = true;
            }
        }
        let apply = found.then(|| {
            let content = json!({"spec": {"taints": spec.taints}});
            Desired::fields(&primary.reference, &content)
        });
        Ok(Answer {
            apply: apply.into_iter().collect(),
            ..Answer::default()
        })
    }
}

fn lacks_time(taint: &Map<String, Value>, settings: &Settings) -> bool {
    let key = taint.get("key").and_then(Value::as_str);
    let is_excepted = settings.except.iter().any(|one| Some(one.as_str()) == key);
    !is_excepted && !taint.contains_key(TIME)
}
