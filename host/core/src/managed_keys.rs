//! Labels and annotations that a policy puts on what it makes (`spec.own`), beside its stamp. An annotation of the
//! object lists the keys that the policy put there; other keys are left alone.

use crate::object::Object;
use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::labels;
use transom_api::policy::OwnSpec;

/// Keys that a policy put on an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Keys {
    #[serde(default)]
    labels: BTreeSet<String>,
    #[serde(default)]
    annotations: BTreeSet<String>,
}

impl Keys {
    /// The keys that a policy wants.
    fn wanted(own: &OwnSpec) -> Self {
        Self {
            labels: own.labels.keys().cloned().collect(),
            annotations: own.annotations.keys().cloned().collect(),
        }
    }

    /// The keys that a policy put on an object; none on an object without a stamp, whatever its annotation lists.
    fn of(object: &Object) -> Self {
        let said = object
            .annotation(labels::MANAGED_KEYS)
            .filter(|_| Stamp::read(object).is_some());
        let mut keys: Self = said
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        keys.labels.retain(|key| !labels::is_reserved(key));
        keys.annotations.retain(|key| !labels::is_reserved(key));
        keys
    }

    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// The paths at which an object lacks what the policy wants, or still carries what an earlier revision wanted.
pub(crate) fn changed(own: &OwnSpec, existing: &Object) -> Vec<String> {
    let had = Keys::of(existing);
    let mut changed = Vec::new();
    for (field, wanted, had) in fields(own, &had) {
        let wrong = wanted
            .iter()
            .filter(|(key, value)| at(existing, field, key) != Some(&Value::from(value.as_str())));
        let left = had
            .iter()
            .filter(|key| !wanted.contains_key(*key) && at(existing, field, key).is_some());
        changed.extend(
            wrong
                .map(|(key, _)| key)
                .chain(left)
                .map(|key| format!("metadata.{field}.{key}")),
        );
    }
    if had != Keys::wanted(own) {
        changed.push(format!("metadata.annotations.{}", labels::MANAGED_KEYS));
    }
    changed
}

/// Puts the wanted keys on a body, and removes those that an earlier revision put on the existing object.
pub(crate) fn put(own: &OwnSpec, existing: Option<&Object>, body: &mut Value) {
    let had = existing.map(Keys::of).unwrap_or_default();
    for (field, wanted, had) in fields(own, &had) {
        let mut map = body
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        map.retain(|key, _| !had.contains(key));
        map.extend(
            wanted
                .iter()
                .map(|(key, value)| (key.clone(), Value::from(value.as_str()))),
        );
        if field == "annotations" {
            note(&Keys::wanted(own), &mut map);
        }
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), map.into());
        }
    }
}

/// The keys and values that an object carries because of the policy, to compare by; null when there are none.
pub(crate) fn view(object: &Object) -> Value {
    let keys = Keys::of(object);
    if keys.is_empty() {
        return Value::Null;
    }
    let values = |field, keys: &BTreeSet<String>| {
        keys.iter()
            .map(|key| json!([key, at(object, field, key)]))
            .collect::<Vec<_>>()
    };
    json!([
        values("labels", &keys.labels),
        values("annotations", &keys.annotations)
    ])
}

fn fields<'a>(
    own: &'a OwnSpec,
    had: &'a Keys,
) -> [(
    &'static str,
    &'a BTreeMap<String, String>,
    &'a BTreeSet<String>,
); 2] {
    [
        ("labels", &own.labels, &had.labels),
        ("annotations", &own.annotations, &had.annotations),
    ]
}

fn at<'a>(object: &'a Object, field: &str, key: &str) -> Option<&'a Value> {
    object.body.get("metadata")?.get(field)?.get(key)
}

/// Lists the keys in the annotation, or removes the annotation when there are none.
fn note(keys: &Keys, annotations: &mut Map<String, Value>) {
    match serde_json::to_string(keys) {
        Ok(text) if !keys.is_empty() => {
            drop(annotations.insert(labels::MANAGED_KEYS.to_owned(), text.into()));
        }
        _ => drop(annotations.remove(labels::MANAGED_KEYS)),
    }
}
