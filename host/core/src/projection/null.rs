//! Fields that are null. An API server drops most of them, but a manifest in a folder may say `labels:` with nothing
//! behind it: below maps null counts as absent. In a list it keeps its place.

use serde_json::Value;

/// A copy of a value without the fields that are null, at any depth.
pub(super) fn present(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(present).collect(),
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| (key.clone(), present(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Whether two values are the same without the fields that are null.
pub(super) fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut keys = old.keys().chain(new.keys());
            keys.all(|key| same_field(old.get(key), new.get(key)))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        }
        _ => old == new,
    }
}

/// Whether two fields are the same, where null is as good as absent.
pub(super) fn same_field(old: Option<&Value>, new: Option<&Value>) -> bool {
    let [old, new] = [old, new].map(|field| field.filter(|value| !value.is_null()));
    match (old, new) {
        (Some(old), Some(new)) => same(old, new),
        (old, new) => old.is_none() && new.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_is_null_is_absent_and_an_element_that_is_null_keeps_its_place() {
        for (has, present_as) in [
            (json!({"a": null}), json!({})),
            (json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
            (json!([null, {"a": null}]), json!([null, {}])),
            (json!({"a": [[null]]}), json!({"a": [[null]]})),
        ] {
            assert_eq!(present(&has), present_as, "{has}");
            assert!(same(&has, &present_as) && same(&present_as, &has), "{has}");
        }
        for (old, new) in [
            (json!([null]), json!([])),
            (json!([null]), json!([{}])),
            (json!({"a": null}), json!({"a": {}})),
            (json!({"a": [{"b": 1}]}), json!({"a": [{"b": null}]})),
        ] {
            assert!(!same(&old, &new) && !same(&new, &old), "{old} {new}");
        }
    }
}
