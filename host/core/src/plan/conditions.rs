//! The conditions of a status that a policy sets among those of others, and the subresource that has a field. A time
//! moves only with the status, and is no reason for a write: the schema of a kind may not keep it.

use crate::digest::Digest;
use crate::inputs::request::is_request;
use crate::time;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The longest text of a condition, in bytes: no API server takes more.
const MAX_TEXT: usize = 32_768;

/// What the place of a condition begins with; its type follows, and a bracket.
const PLACE: &str = "status.conditions[";

/// The field of a condition that says when its status moved.
const TIME: &str = "lastTransitionTime";

/// The conditions that a policy wants, each type once. One without a status is to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions(Vec<Map<String, Value>>);

impl Conditions {
    /// Reads the value that a guest wants `status.conditions` to have.
    ///
    /// # Errors
    /// What is wrong with it, as a predicate: `is not a list`.
    pub fn parse(value: Value) -> Result<Self, String> {
        let Value::Array(list) = value else {
            return Err("is not a list".to_owned());
        };
        let (mut seen, mut conditions) = (BTreeSet::new(), Vec::new());
        for (at, one) in list.into_iter().enumerate() {
            let Value::Object(condition) = one else {
                return Err(format!("has an element {at} that is not a map"));
            };
            if let Some(why) = wrong(&condition) {
                return Err(format!("has an element {at} {why}"));
            }
            if !seen.insert(of(&condition, "type").to_owned()) {
                return Err(format!("has the type of its element {at} twice"));
            }
            conditions.push(condition);
        }
        Ok(Self(conditions))
    }

    /// The types that are set, or removed.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|condition| of(condition, "type"))
    }

    /// The list with these conditions as wanted: each in the place that it has, new ones at the end.
    pub(super) fn merged(&self, there: &[Value], now_seconds: i64) -> Vec<Value> {
        let (mut placed, mut merged) = (BTreeSet::new(), Vec::new());
        for element in there {
            let kind = text(element, "type");
            let Some(wanted) = self.wanted(kind) else {
                merged.push(element.clone());
                continue;
            };
            if placed.insert(kind) && !removes(wanted) {
                merged.push(set(element.clone(), wanted, now_seconds));
            }
        }
        let new = self.0.iter();
        let new = new.filter(|one| !removes(one) && !placed.contains(of(one, "type")));
        merged.extend(new.map(|wanted| set(json!({}), wanted, now_seconds)));
        merged
    }

    /// A fingerprint of what each of these conditions says in a list, without times.
    pub(super) fn fingerprints<'a>(
        &'a self,
        list: &'a [Value],
    ) -> impl Iterator<Item = (Box<str>, Digest)> + 'a {
        let places = self.places().zip(self.types());
        places.map(|(place, kind)| (place.into(), fingerprint(list, kind)))
    }

    /// The places of these conditions, as [`Self::fingerprints`] names them.
    pub(super) fn places(&self) -> impl Iterator<Item = String> {
        self.types().map(|kind| [PLACE, kind, "]"].concat())
    }

    fn wanted(&self, kind: &str) -> Option<&Map<String, Value>> {
        self.0
            .iter()
            .find(|condition| of(condition, "type") == kind)
    }
}

/// The condition that a place is, if it is one.
pub(super) fn of_place(place: &str) -> Option<&str> {
    place.strip_prefix(PLACE)?.strip_suffix(']')
}

/// A fingerprint of what the condition of a type says in a list, without times.
pub(super) fn fingerprint(list: &[Value], kind: &str) -> Digest {
    let ours = list.iter().filter(|element| text(element, "type") == kind);
    Digest::of(&ours.map(said).collect())
}

/// What a condition says, without its time: type, status, reason and message.
pub fn said(condition: &Value) -> Value {
    let fields = ["type", "status", "reason", "message"];
    let said = fields.map(|field| text(condition, field));
    json!([said, condition.get("observedGeneration")])
}

/// What is wrong with a condition of an answer, if anything.
fn wrong(condition: &Map<String, Value>) -> Option<String> {
    const FIELDS: [&str; 5] = ["type", "status", "reason", "message", "observedGeneration"];
    if let Some(key) = condition.keys().find(|key| !FIELDS.contains(&&***key)) {
        return Some(match &**key {
            TIME => "with `lastTransitionTime`, which the host sets".to_owned(),
            _ => "with a field that no condition of an answer has".to_owned(),
        });
    }
    let is_text = |field| of(condition, field).len() <= MAX_TEXT;
    if of(condition, "type").is_empty() || !is_text("type") {
        return Some("without a type".to_owned());
    }
    if removes(condition) {
        return None;
    }
    if !["True", "False", "Unknown"].contains(&of(condition, "status")) {
        return Some("whose status is not True, False, Unknown or null".to_owned());
    }
    if of(condition, "reason").is_empty() || !is_text("reason") {
        return Some("without a reason".to_owned());
    }
    let message = condition.get("message");
    if message.is_some_and(|message| !message.is_string()) || !is_text("message") {
        return Some(format!(
            "whose message is not a text of at most {MAX_TEXT} bytes"
        ));
    }
    let generation = condition.get("observedGeneration");
    generation
        .is_some_and(|generation| !generation.is_i64())
        .then(|| "whose observedGeneration is not a number".to_owned())
}

/// Whether two lists of conditions say something else, whatever their times.
pub(super) fn differ(one: &[Value], other: &[Value]) -> bool {
    let untimed = |element: &Value| {
        let mut element = element.clone();
        element.as_object_mut().map(|map| map.remove(TIME));
        element
    };
    one.iter().map(untimed).ne(other.iter().map(untimed))
}

/// An element as wanted. Fields that no answer has stay. One that is right and has no time gets one, which is written
/// with the next change.
fn set(mut element: Value, wanted: &Map<String, Value>, now_seconds: i64) -> Value {
    let moved = text(&element, "status") != of(wanted, "status");
    let untimed = text(&element, TIME).is_empty();
    // A server may leave out an empty text.
    let is_said = |(key, value): (&String, &Value)| match element.get(key) {
        Some(said) => said == value,
        None => *value == "",
    };
    let right = wanted.iter().all(is_said);
    if let Some(map) = element.as_object_mut() {
        if !right {
            map.extend(wanted.clone());
            map.entry("message").or_insert_with(|| "".into());
        }
        if moved || untimed {
            let now = time::format_rfc3339(now_seconds);
            map.insert(TIME.to_owned(), now.into());
        }
    }
    element
}

fn removes(condition: &Map<String, Value>) -> bool {
    condition.get("status").is_some_and(Value::is_null)
}

fn of<'a>(condition: &'a Map<String, Value>, field: &str) -> &'a str {
    let value = condition.get(field).and_then(Value::as_str);
    value.unwrap_or_default()
}

fn text<'a>(element: &'a Value, field: &str) -> &'a str {
    element.as_object().map_or("", |map| of(map, field))
}

/// The subresource that has a field of an object, by the keys of its path; `None` for the object itself.
pub fn subresource<K: AsRef<str>>(
    api_version: &str,
    kind: &str,
    keys: &[K],
) -> Option<&'static str> {
    let mut keys = keys.iter().map(AsRef::as_ref);
    match (keys.next(), keys.next()) {
        (Some("status"), Some("conditions")) if is_request(api_version, kind) => Some("approval"),
        (Some("status"), _) => Some("status"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "2026-01-01T00:00:00Z";

    fn condition(kind: &str, status: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "R", "message": message})
    }

    fn timed(mut condition: Value) -> Value {
        condition["lastTransitionTime"] = THEN.into();
        condition
    }

    fn merged(wanted: &Value, there: &[Value]) -> Vec<Value> {
        let wanted = Conditions::parse(wanted.clone()).unwrap();
        let merged = wanted.merged(there, 1_767_225_661);
        assert_eq!(
            wanted.merged(&merged, 9),
            merged,
            "a second merge changes nothing"
        );
        merged
    }

    #[test]
    fn a_condition_is_set_in_its_place_and_its_time_moves_with_its_status() {
        let theirs = timed(condition("Theirs", "True", "t"));
        let there = [
            timed(condition("Ours", "True", "a")),
            theirs.clone(),
            json!({"type": 1}),
        ];
        let same = merged(&json!([condition("Ours", "True", "b")]), &there);
        let mut expected = there.to_vec();
        expected[0]["message"] = "b".into();
        assert_eq!(same, expected, "only the message");

        let other = merged(&json!([condition("Ours", "False", "a")]), &there);
        expected[0] = condition("Ours", "False", "a");
        expected[0]["lastTransitionTime"] = "2026-01-01T00:01:01Z".into();
        assert_eq!(other, expected, "the status, and so the time");

        let new = merged(
            &json!([{"type": "New", "status": "Unknown", "reason": "R"}]),
            &there,
        );
        let mut added = condition("New", "Unknown", "");
        added["lastTransitionTime"] = "2026-01-01T00:01:01Z".into();
        assert_eq!((&new[..3], &new[3]), (&there[..], &added));
    }

    #[test]
    fn a_condition_goes_and_none_is_doubled() {
        let ours = timed(condition("Ours", "True", "a"));
        let twice = [
            ours.clone(),
            timed(condition("Theirs", "True", "t")),
            ours.clone(),
        ];
        assert_eq!(
            merged(&json!([condition("Ours", "True", "a")]), &twice),
            twice[..2]
        );
        assert_eq!(
            merged(&json!([{"type": "Ours", "status": null}]), &twice),
            twice[1..2]
        );
        assert_eq!(merged(&json!([]), &twice), twice);
    }

    #[test]
    fn a_time_alone_is_no_reason_for_a_write() {
        // As a kind keeps it whose schema has no time, and whose server leaves out an empty text.
        let untimed = json!({"type": "Ours", "status": "True", "reason": "R"});
        let there = [untimed, timed(condition("Theirs", "True", "t"))];
        let same = merged(&json!([condition("Ours", "True", "")]), &there);
        assert!(!differ(&same, &there));
        for wanted in [
            json!([condition("Ours", "True", "b")]),
            json!([condition("Ours", "False", "")]),
            json!([condition("New", "True", "")]),
            json!([{"type": "Theirs", "status": null}]),
        ] {
            let changed = merged(&wanted, &there);
            assert!(differ(&changed, &there), "{wanted}");
        }
        let changed = merged(&json!([condition("Ours", "True", "b")]), &there);
        assert_eq!(changed[0]["lastTransitionTime"], "2026-01-01T00:01:01Z");
    }

    #[test]
    fn what_others_add_to_a_condition_stays() {
        let mut there = timed(condition("Approved", "True", "a"));
        there["lastUpdateTime"] = THEN.into();
        let wanted = json!([condition("Approved", "True", "a")]);
        assert_eq!(
            merged(&wanted, std::slice::from_ref(&there)),
            [there.clone()]
        );
    }

    #[test]
    fn refuses_what_is_no_list_of_conditions() {
        let with = |field: &str, value: Value| {
            let mut one = condition("Ours", "True", "m");
            one[field] = value;
            json!([one])
        };
        let long = "m".repeat(MAX_TEXT + 1);
        for (value, why) in [
            (Value::Null, "is not a list"),
            (json!([1]), "element 0 that is not a map"),
            (with("lastTransitionTime", json!(THEN)), "the host sets"),
            (with("extra", json!(1)), "a field that no condition"),
            (with("type", json!("")), "without a type"),
            (with("status", json!("Yes")), "whose status"),
            (with("status", json!(true)), "whose status"),
            (with("reason", json!("")), "without a reason"),
            (with("reason", json!(long)), "without a reason"),
            (with("message", json!(long)), "whose message"),
            (with("message", json!(1)), "whose message"),
            (with("observedGeneration", json!("1")), "observedGeneration"),
            (
                json!([condition("A", "True", ""), condition("A", "False", "")]),
                "the type of its element 1 twice",
            ),
        ] {
            let refused = Conditions::parse(value).unwrap_err();
            assert!(refused.contains(why), "{refused}: {why}");
        }
    }
}
