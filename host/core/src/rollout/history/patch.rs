//! Patches: what makes one JSON value from another.

use serde_json::{Map, Value};

/// The merge patch (RFC 7386) that turns one value into another; null when they are equal.
pub fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return if from == to { Value::Null } else { to.clone() };
    };
    let removed = from.keys().filter(|key| !to.contains_key(*key));
    let mut patch: Map<String, Value> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in to {
        match from.get(key) {
            Some(before) if before == value => {}
            Some(before) => drop(patch.insert(key.clone(), merge_patch(before, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    if patch.is_empty() {
        Value::Null
    } else {
        patch.into()
    }
}
