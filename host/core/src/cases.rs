//! The cases that travel with a component: questions to it, each with the answer that its author expects. How they are
//! written and read, and how an answer is compared with the expected one.

use crate::document::{self, ParseLimits};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The custom section of a component that holds its cases.
pub const SECTION: &str = "transom:cases";
/// Maximum number of cases of a component.
pub const MAX_CASES: usize = 512;
/// Maximum length of a case's name in bytes.
const MAX_NAME: usize = 128;
/// Maximum number of lists, and of values, in what a case gives: reading it takes time for their product.
const MAX_LISTS: usize = 200;
const MAX_VALUES: usize = 8_192;
/// Limits of the section.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 512 << 10,
    nodes: 65_536,
    depth: 64,
};
/// The version of the encoding.
const VERSION: u64 = 1;
/// The fields of a case in the section.
const FIELDS: [&str; 3] = ["name", "given", "expected"];

/// The fields that may be left out although the answer has them: the wording of sentences may change.
const SENTENCES: [&str; 1] = ["message"];

/// One question to a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestCase {
    /// Its folder below `cases`, with `/` between folders.
    pub name: String,
    /// What the guest is given, in the names of `wit/`.
    pub given: Value,
    /// What it should answer; what it leaves out must be empty.
    pub expected: Value,
}

/// The section with these cases, in order of name: JSON, the same bytes for the same cases.
///
/// # Errors
/// When the section could not be read again: a name is bad or occurs twice, or a limit is exceeded.
pub fn encode(mut cases: Vec<GuestCase>) -> Result<Vec<u8>, String> {
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    let written: Vec<_> = cases
        .iter()
        .map(|case| json!({"name": case.name, "given": case.given, "expected": case.expected}))
        .collect();
    let section = json!({"version": VERSION, "cases": written}).to_string();
    if section.len() > LIMITS.bytes {
        return Err(too_large(section.len(), &written));
    }
    match decode(section.as_bytes())? {
        read if read == cases => Ok(section.into_bytes()),
        _ => Err("the cases hold a value that their encoding changes".to_owned()),
    }
}

fn too_large(bytes: usize, written: &[Value]) -> String {
    let sizes = written.iter().map(|case| (case.to_string().len(), case));
    let largest = sizes.max_by_key(|(size, _)| *size);
    let largest = largest.map_or_else(String::new, |(size, case)| {
        format!("; the largest is {} with {size} bytes", case["name"])
    });
    let most = LIMITS.bytes;
    format!("the cases have {bytes} bytes as JSON, and the limit is {most}{largest}")
}

/// Reads a section.
///
/// # Errors
/// What is wrong with it. Says nothing that is in it but names of cases.
pub fn decode(section: &[u8]) -> Result<Vec<GuestCase>, String> {
    let read = document::parse_one(section, LIMITS).map_err(|error| error.to_string())?;
    if read.get("version").and_then(Value::as_u64) != Some(VERSION) {
        return Err(format!("its version is not {VERSION}"));
    }
    let Some(Value::Array(written)) = read.get("cases") else {
        return Err("`cases` is not a list".to_owned());
    };
    if written.len() > MAX_CASES {
        let count = written.len();
        return Err(format!("there are {count} cases; the limit is {MAX_CASES}"));
    }
    let mut names = BTreeSet::new();
    let read_one = |(index, written): (usize, &Value)| {
        let case = one(written).map_err(|why| {
            let name = written.get("name").and_then(Value::as_str);
            match name.filter(|name| is_name(name)) {
                Some(name) => format!("the case `{name}`: {why}"),
                None => format!("`cases[{index}]`: {why}"),
            }
        })?;
        match names.insert(case.name.clone()) {
            true => Ok(case),
            false => Err(format!("the case `{}` occurs twice", case.name)),
        }
    };
    written.iter().enumerate().map(read_one).collect()
}

fn one(written: &Value) -> Result<GuestCase, String> {
    let fields = written.as_object().ok_or("not a map")?;
    if let Some(missing) = FIELDS.iter().find(|field| !fields.contains_key(**field)) {
        return Err(format!("`{missing}` is missing"));
    }
    if fields.len() > FIELDS.len() {
        return Err("it has an unknown field".to_owned());
    }
    let name = written["name"].as_str().unwrap_or_default();
    if !is_name(name) {
        let shown = name.chars().take(MAX_NAME / 2);
        let shown: String = shown.flat_map(char::escape_debug).collect();
        return Err(format!(
            "its name `{shown}` must have 1 to {MAX_NAME} printable characters of ASCII and no space"
        ));
    }
    let (lists, values) = count(&written["given"]);
    for (what, found, most) in [("lists", lists, MAX_LISTS), ("values", values, MAX_VALUES)] {
        if found > most {
            return Err(format!("it gives {found} {what}; the limit is {most}"));
        }
    }
    Ok(GuestCase {
        name: name.to_owned(),
        given: written["given"].clone(),
        expected: written["expected"].clone(),
    })
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic())
}

/// The number of lists in a value, and of all values.
fn count(value: &Value) -> (usize, usize) {
    let both = |(lists, values): (usize, usize), value: &Value| {
        let (more_lists, more_values) = count(value);
        (lists + more_lists, values + more_values)
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 1), both),
        Value::Object(map) => map.values().fold((0, 1), both),
        _ => (0, 1),
    }
}

/// How an answer differs from the expected one.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The first place that differs; empty for the whole answer.
    pub place: String,
    /// What is expected there and what was answered. Has values of both.
    pub what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.what),
            place => write!(f, "`{place}`: {}", self.what),
        }
    }
}

/// The first place at which an answer is not what is expected; a field that is left out must be empty.
pub fn difference(expected: &Value, found: &Value) -> Option<Difference> {
    at("", expected, found).err()
}

fn at(place: &str, expected: &Value, found: &Value) -> Result<(), Difference> {
    let differs = |place: String, what: String| Err(Difference { place, what });
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            // A map with one entry is a variant, because every record has more fields. A variant cannot be left out.
            let chosen = found.len() == 1;
            for (key, value) in found {
                let place = child(place, key);
                match expected.get(key) {
                    Some(wanted) => at(&place, wanted, value)?,
                    None if !chosen && may_be_left_out((key, value)) => {}
                    None => return differs(place, format!("expected nothing, got {value}")),
                }
            }
            match expected.keys().find(|key| !found.contains_key(*key)) {
                Some(key) => differs(
                    child(place, key),
                    "expected, but an answer has no such field".to_owned(),
                ),
                None => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(given)) if wanted.len() == given.len() => {
            for (index, (wanted, given)) in wanted.iter().zip(given).enumerate() {
                at(&format!("{place}[{index}]"), wanted, given)?;
            }
            Ok(())
        }
        _ if expected == found => Ok(()),
        _ => differs(
            place.to_owned(),
            format!("expected {expected}, got {found}"),
        ),
    }
}

/// The shortest expectation that an answer meets: without what may be left out.
pub fn least(found: &Value) -> Value {
    match found {
        Value::Object(map) => {
            let chosen = map.len() == 1;
            let said = map
                .iter()
                .filter(|field| chosen || !may_be_left_out(*field));
            said.map(|(key, value)| (key.clone(), least(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.iter().map(least).collect(),
        other => other.clone(),
    }
}

fn child(place: &str, key: &str) -> String {
    match place {
        "" => key.to_owned(),
        place => format!("{place}.{key}"),
    }
}

fn may_be_left_out((key, value): (&String, &Value)) -> bool {
    SENTENCES.contains(&key.as_str()) || is_default(value)
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
    use crate::contract::decide::Requirement;

    fn case(name: &str) -> GuestCase {
        GuestCase {
            name: name.to_owned(),
            given: json!({"validate": {"text": "ü\u{7f}\u{2028}\n\"", "number": -1.5}}),
            expected: json!([]),
        }
    }

    #[test]
    fn the_same_cases_give_the_same_bytes_in_any_order_and_are_read_again() {
        let (one, other) = (case("a/one"), case("b"));
        let section = encode(vec![other.clone(), one.clone()]).unwrap();
        assert_eq!(section, encode(vec![one.clone(), other.clone()]).unwrap());
        assert_eq!(decode(&section).unwrap(), [one, other]);
        assert_eq!(decode(&encode(Vec::new()).unwrap()).unwrap(), []);
    }

    #[test]
    fn what_cannot_travel_is_named_with_the_case_and_the_limit() {
        let large = |name: &str, bytes: usize| GuestCase {
            expected: json!("x".repeat(bytes)),
            ..case(name)
        };
        let listed = GuestCase {
            given: vec![json!([]); MAX_LISTS].into(),
            ..case("listed")
        };
        let together = vec![large("small", 200 << 10), large("big", 400 << 10)];
        for (cases, told) in [
            (vec![case("sp ace")], &["`sp ace`", "no space"][..]),
            (vec![case("ü")], &["`ü`", "of ASCII"]),
            (vec![listed], &["`listed`", "limit is 200"]),
            (together, &["limit is 524288", "largest is \"big\""]),
        ] {
            let error = encode(cases).unwrap_err();
            assert!(told.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn a_hostile_section_is_refused_with_what_is_wrong() {
        let many: Vec<_> = (0..=MAX_CASES).map(|n| case(&n.to_string())).collect();
        assert!(encode(many).unwrap_err().contains("513 cases"));
        assert!(
            encode(vec![case("a"), case("a")])
                .unwrap_err()
                .contains("`a` occurs twice")
        );
        let mut listed = case("a");
        listed.given = vec![json!([]); MAX_LISTS].into();
        assert!(
            encode(vec![listed.clone()])
                .unwrap_err()
                .contains("201 lists")
        );
        listed.given = vec![json!(1); MAX_VALUES].into();
        assert!(encode(vec![listed]).unwrap_err().contains("8193 values"));
        let good = encode(vec![case("a")]).unwrap();
        let written = |one: Value| json!({"version": 1, "cases": [one]}).to_string();
        let deep = "[".repeat(100_000);
        let huge = "x".repeat(LIMITS.bytes);
        let wide = format!("[{}0]", "[],".repeat(LIMITS.nodes));
        for (section, why) in [
            (good[..good.len() - 2].to_vec(), ""),
            (Vec::new(), "version"),
            (deep.into_bytes(), ""),
            (written(json!(huge)).into_bytes(), ""),
            (wide.into_bytes(), ""),
            (vec![0xff; 64], ""),
            (vec![0; 64], ""),
            (b"version: 1\ncases: &a [*a]".to_vec(), ""),
            (
                b"{\"version\": 2, \"cases\": []}".to_vec(),
                "its version is not 1",
            ),
            (
                b"{\"version\": 1, \"cases\": {}}".to_vec(),
                "`cases` is not a list",
            ),
            (written(json!(7)).into_bytes(), "`cases[0]`: not a map"),
            (
                written(json!({"name": "a", "given": 1})).into_bytes(),
                "`expected` is missing",
            ),
            (
                written(json!({"name": "a", "given": 1, "expected": 1, "more": 1})).into_bytes(),
                "unknown field",
            ),
            (
                written(json!({"name": "a\u{1b}[2J", "given": 1, "expected": 1})).into_bytes(),
                "printable",
            ),
            (
                written(json!({"name": "", "given": 1, "expected": 1})).into_bytes(),
                "1 to 128",
            ),
        ] {
            let error = decode(&section).unwrap_err();
            assert!(error.contains(why) && error.len() < 200, "{why}: {error}");
        }
    }

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
            let difference = difference(&expected, &found).unwrap().to_string();
            assert!(difference.starts_with(place), "{expected}: {difference}");
        }
    }

    #[test]
    fn a_choice_must_not_be_omitted() {
        let nested = json!({"ok": {"decision": {"own": []}, "ask-again-at": null}});
        for found in [json!({"own": []}), nested] {
            assert_eq!(difference(&found, &found), None);
            let partial = json!({"ok": {"ask-again-at": null}});
            for expected in [json!({}), json!({"ok": {}}), partial] {
                assert!(
                    difference(&expected, &found).is_some(),
                    "{expected}: {found}"
                );
            }
        }
    }

    #[test]
    fn a_requirement_of_nothing_may_be_omitted() {
        let nothing = Requirement {
            target: None,
            targets: Vec::new(),
            needs: Vec::new(),
        };
        let found = json!({ "ok": nothing });
        assert_eq!(difference(&json!({"ok": {}}), &found), None);
        assert_eq!(least(&found), json!({"ok": {}}));
    }

    #[test]
    fn the_minimal_expectation_omits_defaults_and_messages() {
        let fields = json!({"a": 1, "b": null, "c": [], "message": "text"});
        let decision = json!({"ok": {"decision": {"own": []}, "ask-again-at": null}});
        let problems = json!([{"reason": "R", "message": "m", "field": ""}]);
        for (found, expected) in [
            (fields, json!({"a": 1})),
            (decision, json!({"ok": {"decision": {"own": []}}})),
            (problems, json!([{"reason": "R"}])),
            (json!("ignore"), json!("ignore")),
        ] {
            assert_eq!(difference(&expected, &found), None);
            assert_eq!(least(&found), expected);
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
