//! Compares an answer with what a case expects. A field that is left out must have its default.

use crate::About;
use crate::about::OWN_REASONS;
use serde_json::Value;

/// The fields that a case may leave out although the answer has them, because sentences may change.
const SENTENCES: [&str; 1] = ["message"];

/// Whether `found` is as expected; the error names the first difference.
pub(super) fn equal(expected: &Value, found: &Value) -> Result<(), String> {
    at("", expected, found)
}

fn at(place: &str, expected: &Value, found: &Value) -> Result<(), String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            // A map with one entry is a variant, because every record has more fields. A variant must always be given.
            let chosen = found.len() == 1;
            for (key, value) in found {
                match expected.get(key) {
                    Some(wanted) => at(&child(place, key), wanted, value)?,
                    None if !chosen && (SENTENCES.contains(&key.as_str()) || is_default(value)) => {
                    }
                    None => {
                        return Err(format!(
                            "expected nothing at `{}`, found {value}",
                            child(place, key)
                        ));
                    }
                }
            }
            match expected.keys().find(|key| !found.contains_key(*key)) {
                Some(key) => Err(format!("an answer has no field `{}`", child(place, key))),
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
        _ => Err(format!("expected {expected} at `{place}`, found {found}")),
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

/// Refuses an answer with a reason that the guest did not declare. A condition of an object may pass on one that the
/// case gives.
pub(super) fn declared(about: &About, given: &Value, found: &Value) -> Result<(), String> {
    let mut words = Vec::new();
    collect(found, &mut words);
    let mut passed_on = Vec::new();
    contents(found, &mut passed_on);
    let mut read = Vec::new();
    collect(given, &mut read);
    passed_on.retain(|word| read.contains(word));
    let known = |word: &&str| {
        about
            .reasons
            .iter()
            .chain(&OWN_REASONS)
            .any(|reason| reason.name == *word)
            || passed_on.contains(word)
    };
    match words.into_iter().find(|word| !known(word)) {
        Some(word) => Err(format!(
            "the guest answers with `{word}`, which its description does not declare"
        )),
        None => Ok(()),
    }
}

/// Collects every reason in the contents of objects.
fn contents<'a>(value: &'a Value, words: &mut Vec<&'a str>) {
    let apply = value.pointer("/ok/apply").and_then(Value::as_array);
    let contents = apply.into_iter().flatten();
    contents
        .filter_map(|desired| desired.get("content"))
        .for_each(|content| collect(content, words));
}

/// Collects every reason in an answer: of problems, of a verdict, and of absences.
fn collect<'a>(value: &'a Value, words: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            if map.contains_key("message") {
                words.extend(map.get("reason").and_then(Value::as_str));
            }
            if let Some(run) = map.get("run").and_then(Value::as_array) {
                words.extend(run.iter().filter_map(Value::as_str));
            }
            if let Some(absence) = map.get("absence") {
                words.extend(
                    ["wait", "fail"]
                        .iter()
                        .filter_map(|kind| absence.get(kind)?.as_str()),
                );
            }
            map.values().for_each(|value| collect(value, words));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;
    use serde_json::json;

    #[test]
    fn omitted_fields_must_be_empty_except_messages() {
        let found = json!({"a": 1, "b": null, "c": [], "d": false, "message": "text", "e": {"f": 0, "g": ""}});
        assert_eq!(equal(&json!({"a": 1}), &found), Ok(()));
        assert!(equal(&json!({}), &found).is_err());
        assert!(equal(&json!({"a": 1, "message": "other"}), &found).is_err());
        assert!(equal(&json!({"a": 1, "g": null}), &found).is_err());
        assert!(equal(&json!({"a": 2}), &found).is_err());
    }

    #[test]
    fn a_choice_must_not_be_omitted() {
        for found in [
            json!({"own": []}),
            json!({"ok": {"decision": {"own": []}, "ask-again-at": null}}),
        ] {
            assert_eq!(equal(&found, &found), Ok(()));
            assert!(equal(&json!({}), &found).is_err(), "{found}");
            assert!(equal(&json!({"ok": {}}), &found).is_err(), "{found}");
        }
        assert!(
            equal(
                &json!({"ok": {"ask-again-at": null}}),
                &json!({"ok": {"decision": {"own": []}, "ask-again-at": null}})
            )
            .is_err()
        );
    }

    #[test]
    fn lists_are_compared_whole() {
        assert_eq!(
            equal(&json!([1, {"a": "b"}]), &json!([1, {"a": "b", "c": ""}])),
            Ok(())
        );
        assert!(equal(&json!([1]), &json!([1, 2])).is_err());
        assert!(equal(&json!([2, 1]), &json!([1, 2])).is_err());
    }

    #[test]
    fn finds_an_undeclared_reason_anywhere() {
        let about = About {
            reasons: &[Reason {
                name: "Known",
                meaning: "",
                remedy: "",
            }],
            ..About::EMPTY
        };
        for reason in ["Known", "InvalidSettings"] {
            let answers = [
                json!({"err": {"invalid": {"reason": reason, "message": ""}}}),
                json!({"run": [reason]}),
                json!({"ok": {"needs": [{"absence": {"wait": reason}}]}}),
            ];
            assert!(
                answers
                    .iter()
                    .all(|answer| declared(&about, &Value::Null, answer).is_ok())
            );
        }
        for answer in [
            json!({"readiness": {"not-ready": {"reason": "Other", "message": ""}}}),
            json!({"run": ["Known", "Other"]}),
            json!({"ok": {"needs": [{"absence": {"fail": "Other"}}]}}),
        ] {
            assert!(declared(&about, &Value::Null, &answer).is_err(), "{answer}");
        }
        // A condition may pass on a reason that was read; a problem may not.
        let given = json!({"inputs": [{"value": {"reason": "Read", "message": ""}}]});
        let problem = json!({"reason": "Read", "message": ""});
        let content = json!({"status": {"conditions": [problem]}});
        let passed_on = json!({"ok": {"apply": [{"content": content}]}});
        assert!(declared(&about, &given, &passed_on).is_ok());
        assert!(declared(&about, &Value::Null, &passed_on).is_err());
        assert!(declared(&about, &given, &json!({"err": {"invalid": problem}})).is_err());
    }
}
