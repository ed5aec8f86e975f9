//! Compares an answer with what a case of a guest expects, by the rules of the guest's own tests (`guest/sdk`,
//! `testing`): a field that is left out must be empty.

use serde_json::Value;

/// The fields that may be left out although the answer has them: the wording of sentences may change.
const SENTENCES: [&str; 1] = ["message"];

/// The first place at which an answer is not what is expected.
pub(super) fn difference(expected: &Value, found: &Value) -> Option<String> {
    at("", expected, found).err()
}

fn at(place: &str, expected: &Value, found: &Value) -> Result<(), String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            // A map with one entry is a variant, because every record has more fields. A variant cannot be left out.
            let chosen = found.len() == 1;
            for (key, value) in found {
                match expected.get(key) {
                    Some(wanted) => at(&child(place, key), wanted, value)?,
                    None if !chosen && (SENTENCES.contains(&key.as_str()) || is_default(value)) => {
                    }
                    None => {
                        return Err(format!(
                            "`{}`: expected nothing, got {value}",
                            child(place, key)
                        ));
                    }
                }
            }
            match expected.keys().find(|key| !found.contains_key(*key)) {
                Some(key) => Err(format!(
                    "`{}`: expected, but an answer has no such field",
                    child(place, key)
                )),
                None => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(given)) if wanted.len() == given.len() => wanted
            .iter()
            .zip(given)
            .enumerate()
            .try_for_each(|(index, (wanted, given))| {
                at(&format!("{place}[{index}]"), wanted, given)
            }),
        _ if expected == found => Ok(()),
        _ if place.is_empty() => Err(format!("expected {expected}, got {found}")),
        _ => Err(format!("`{place}`: expected {expected}, got {found}")),
    }
}

/// The shortest expectation that an answer meets: without what may be left out.
pub(super) fn least(found: &Value) -> Value {
    match found {
        Value::Object(map) => {
            let chosen = map.len() == 1;
            let said = |(key, value): &(&String, &Value)| {
                chosen || !(SENTENCES.contains(&key.as_str()) || is_default(value))
            };
            map.iter()
                .filter(said)
                .map(|(key, value)| (key.clone(), least(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(least).collect(),
        other => other.clone(),
    }
}

fn child(place: &str, key: &str) -> String {
    if place.is_empty() {
        key.to_owned()
    } else {
        format!("{place}.{key}")
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.len() != 1 && map.values().all(is_default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn omitted_fields_must_be_empty_except_messages() {
        let found = json!({"a": 1, "b": null, "c": [], "d": false, "message": "text", "e": {"f": 0, "g": ""}});
        assert_eq!(difference(&json!({"a": 1}), &found), None);
        for (expected, place) in [
            (json!({}), "`a`: expected nothing"),
            (json!({"a": 1, "message": "other"}), "`message`"),
            (json!({"a": 1, "g": null}), "`g`"),
            (json!({"a": 2}), "`a`: expected 2, got 1"),
            (json!({"a": 1, "e": {"f": 3}}), "`e.f`"),
        ] {
            let told = difference(&expected, &found);
            assert!(
                told.as_ref().is_some_and(|told| told.starts_with(place)),
                "{expected}: {told:?}"
            );
        }
    }

    #[test]
    fn a_choice_must_not_be_omitted() {
        for found in [
            json!({"own": []}),
            json!({"ok": {"decision": {"own": []}, "ask-again-at": null}}),
        ] {
            assert_eq!(difference(&found, &found), None);
            for expected in [
                json!({}),
                json!({"ok": {}}),
                json!({"ok": {"ask-again-at": null}}),
            ] {
                assert!(
                    difference(&expected, &found).is_some(),
                    "{expected}: {found}"
                );
            }
        }
    }

    #[test]
    fn the_minimal_expectation_omits_defaults_and_messages() {
        for (found, expected) in [
            (
                json!({"a": 1, "b": null, "c": [], "message": "text"}),
                json!({"a": 1}),
            ),
            (
                json!({"ok": {"decision": {"own": []}, "ask-again-at": null}}),
                json!({"ok": {"decision": {"own": []}}}),
            ),
            (
                json!([{"reason": "R", "message": "m", "field": ""}]),
                json!([{"reason": "R"}]),
            ),
            (json!("ignore"), json!("ignore")),
        ] {
            assert_eq!(
                (least(&found), difference(&expected, &found)),
                (expected, None)
            );
        }
    }

    #[test]
    fn lists_are_compared_whole_and_in_order() {
        assert_eq!(
            difference(&json!([1, {"a": "b"}]), &json!([1, {"a": "b", "c": ""}])),
            None
        );
        assert!(difference(&json!([1]), &json!([1, 2])).is_some());
        assert!(difference(&json!([2, 1]), &json!([1, 2])).is_some());
        assert!(difference(&json!("ignore"), &json!({"run": ["BecameAvailable"]})).is_some());
    }
}
