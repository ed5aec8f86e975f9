//! `transom test --update`: writes results as expectations. Changes only what differs, and follows no link.

use super::compare::{self, Extent};
use crate::command::replace_file;
use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use transom_api::labels;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::document::{self, ParseLimits};

/// Limits of one file of expectations.
pub(super) const LIMITS: ParseLimits = ParseLimits {
    bytes: 16 << 20,
    nodes: 1_000_000,
    depth: 100,
};
/// The order of the keys in a file that is written as a whole.
const ORDER: [&str; 9] = [
    "objects",
    "partialObjects",
    "removed",
    "states",
    "woken",
    "reconciled",
    "reasons",
    "ok",
    "err",
];

/// The result of a case that is not as expected.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Came {
    /// Everything.
    Whole(Value),
    /// The parts of the mapping that are not as expected.
    Parts(Map<String, Value>),
}

/// Writes a result into a file of expectations; what stays the same keeps its text and comments.
///
/// # Errors
/// When the path is no regular file, when the file cannot be read or written, or when it holds no mapping that parts
/// can be written into.
pub(super) fn write(path: &Path, came: &Came) -> anyhow::Result<()> {
    let failed = || format!("failed to update `{}`", path.display());
    let before = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => bail!("{}: it is not a regular file", failed()),
        Ok(_) => fs::read_to_string(path).with_context(failed)?,
        Err(_) => String::new(),
    };
    let after = updated(&before, came).with_context(failed)?;
    replace_file(path, after).with_context(failed)
}

/// The text of the file with the result in it.
fn updated(before: &str, came: &Came) -> anyhow::Result<String> {
    let anew = |value| head(before) + &to_yaml_in_order(value, &ORDER);
    let parts = match came {
        Came::Whole(value) => return Ok(anew(value)),
        Came::Parts(parts) => parts,
    };
    let mut all = match document::parse_one(before.as_bytes(), LIMITS)? {
        Value::Null => Map::new(),
        Value::Object(map) => map,
        _ => bail!("not a mapping"),
    };
    all.extend(parts.clone());
    let all = Value::Object(all);
    let splice = |text: String, (key, value): (&String, &Value)| spliced(&text, key, value);
    let spliced = parts.iter().fold(before.to_owned(), splice);
    // A file in another style than one line for each key is written anew.
    match document::parse_one(spliced.as_bytes(), LIMITS) {
        Ok(read) if read == all => Ok(spliced),
        _ => Ok(anew(&all)),
    }
}

/// The comments that a file begins with.
fn head(text: &str) -> String {
    let comments = text.lines().take_while(|line| line.starts_with('#'));
    comments.map(|line| format!("{line}\n")).collect()
}

/// The text with another value of a top-level key, at its place or at the end.
fn spliced(text: &str, key: &str, value: &Value) -> String {
    let written = to_yaml_in_order(&json!({ key: value }), &[]);
    let lines: Vec<&str> = text.lines().collect();
    let is_it = |line: &&str| {
        line.strip_prefix(key)
            .is_some_and(|rest| rest.starts_with(':'))
    };
    let Some(start) = lines.iter().position(is_it) else {
        let end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return format!("{text}{end}{written}");
    };
    let (before, rest) = lines.split_at(start);
    let is_key = |line: &&str| line.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let mut next = 1 + rest.iter().skip(1).take_while(|line| !is_key(line)).count();
    // Comments before a key belong to it.
    let is_apart = |line: &&str| line.is_empty() || line.starts_with('#');
    next -= rest
        .iter()
        .take(next)
        .skip(1)
        .rev()
        .take_while(|line| is_apart(line))
        .count();
    let line = |line: &&str| format!("{line}\n");
    let after = rest.iter().skip(next).map(line);
    before
        .iter()
        .map(line)
        .chain([written])
        .chain(after)
        .collect()
}

/// The expectations, whole and partial, after these objects were written. Those that are met stay as they are.
pub(super) fn objects(
    expected: &[Value],
    partial: &[Value],
    found: &[Value],
) -> (Vec<Value>, Vec<Value>) {
    let after = |expected: &[Value], extent| -> Vec<Value> {
        let one = |wanted: &Value| {
            let mut found = found.iter();
            let object = found.find(|object| compare::name(object) == compare::name(wanted))?;
            Some(match extent {
                _ if compare::one(wanted, object, extent).is_empty() => wanted.clone(),
                Extent::Whole => written(object),
                Extent::Named => named(wanted, &written(object)),
            })
        };
        expected.iter().filter_map(one).collect()
    };
    let known: Vec<_> = expected.iter().chain(partial).map(compare::name).collect();
    let new = found
        .iter()
        .filter(|object| !known.contains(&compare::name(object)));
    let mut whole = after(expected, Extent::Whole);
    whole.extend(new.map(written));
    (whole, after(partial, Extent::Named))
}

/// An object as a case has it: without what every build changes, and the data of a Secret as text.
fn written(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(labels::COMPONENT);
            annotations.remove(labels::INPUTS);
        }
    }
    if object.get("kind").and_then(Value::as_str) == Some("Secret") {
        texts(&mut object);
    }
    object
}

/// Turns data that is text into `stringData`.
fn texts(secret: &mut Value) {
    let Some(map) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(data)) = map.remove("data") else {
        return;
    };
    let (mut texts, mut others) = (Map::new(), Map::new());
    for (key, value) in data {
        match compare::bytes(&value).map(String::from_utf8) {
            Some(Ok(text)) => drop(texts.insert(key, text.into())),
            _ => drop(others.insert(key, value)),
        }
    }
    for (key, part) in [("stringData", texts), ("data", others)] {
        if !part.is_empty() {
            map.insert(key.to_owned(), Value::Object(part));
        }
    }
}

/// The fields of `found` that `wanted` names; a list of another length is taken whole.
fn named(wanted: &Value, found: &Value) -> Value {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let below = |(key, wanted): (&String, &Value)| {
                let found = found.get(key).unwrap_or(&Value::Null);
                (key.clone(), named(wanted, found))
            };
            wanted.iter().map(below).collect()
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let pairs = wanted.iter().zip(found);
            pairs.map(|(wanted, found)| named(wanted, found)).collect()
        }
        (_, found) => found.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(value: Value) -> Came {
        let Value::Object(map) = value else {
            panic!("want a mapping")
        };
        Came::Parts(map)
    }

    #[test]
    fn writes_only_what_changed_and_keeps_comments() {
        let before = "# Row T08.\nobjects:\n- kind: A\n  text: |\n    states:\n# About states.\nstates: # today\n- one\n\n# Last.\nwoken: []\n";
        let states = "states: # today\n- one";
        let objects = "objects:\n- kind: A\n  text: |\n    states:\n";
        let two = before.replace(states, "states:\n- two");
        let none = before.replace(objects, "objects: []\n");
        let both = before.replace(states, "states: []");
        let both = both.replace("woken: []", "woken:\n- 1");
        for (came, after) in [
            (json!({"states": ["two"]}), two),
            (json!({"objects": []}), none),
            (json!({"woken": [1], "states": []}), both),
            (
                json!({"reconciled": true}),
                format!("{before}reconciled: true\n"),
            ),
        ] {
            assert_eq!(updated(before, &parts(came)).unwrap(), after);
        }
    }

    #[test]
    fn rewrites_a_file_in_another_style() {
        for before in [
            "{objects: [], states: [1]}",
            "# Row.\n{objects: [], states: [1]}\n",
            "\"objects\": []\n\"states\": [1]\n",
        ] {
            let after = updated(before, &parts(json!({"states": [2]}))).unwrap();
            let read = document::parse_one(after.as_bytes(), LIMITS).unwrap();
            assert_eq!(read, json!({"objects": [], "states": [2]}), "{after}");
            assert_eq!(after.contains("# Row."), before.contains("# Row."));
        }
        assert_eq!(
            updated("", &parts(json!({"states": []}))).unwrap(),
            "states: []\n"
        );
        assert!(updated("- a list\n", &parts(json!({"states": []}))).is_err());
        assert_eq!(
            updated("# Row.\nrun: []\n", &Came::Whole(json!("ignore"))).unwrap(),
            "# Row.\nignore\n"
        );
    }

    #[test]
    fn keeps_named_fields() {
        let found =
            json!({"spec": {"taints": [{"key": "a", "time": 1}], "other": 2}, "status": {}});
        let spec = |fields: Value| json!({"spec": fields});
        for (wanted, expected) in [
            (
                json!({"taints": [{"key": "b"}]}),
                json!({"taints": [{"key": "a"}]}),
            ),
            (
                json!({"taints": []}),
                json!({"taints": [{"key": "a", "time": 1}]}),
            ),
            (json!({"gone": 1}), json!({"gone": null})),
        ] {
            assert_eq!(named(&spec(wanted), &found), spec(expected));
        }
    }
}
