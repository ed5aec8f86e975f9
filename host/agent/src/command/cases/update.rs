//! `transom test --update`: writes results as expectations. Changes only what differs, and follows no link.

use super::compare::{self, Extent};
use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use transom_api::labels;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::document::{self, Limits};

/// Limits of one file of expectations.
const LIMITS: Limits = Limits {
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
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::write(&draft, after).and_then(|()| fs::rename(&draft, path));
    written
        .inspect_err(|_| drop(fs::remove_file(&draft)))
        .with_context(failed)
}

/// The text of the file with the result in it.
fn updated(before: &str, came: &Came) -> anyhow::Result<String> {
    let parts = match came {
        Came::Whole(value) => {
            return Ok(format!(
                "{}{}",
                head(before),
                to_yaml_in_order(value, &ORDER)
            ));
        }
        Came::Parts(parts) => parts,
    };
    let mut all = match before.trim().is_empty() {
        true => Map::new(),
        false => match document::parse_one(before.as_bytes(), LIMITS)? {
            Value::Object(map) => map,
            _ => bail!("not a mapping"),
        },
    };
    all.extend(parts.clone());
    let all = Value::Object(all);
    let spliced = parts.iter().fold(before.to_owned(), |text, (key, value)| {
        spliced(&text, key, value)
    });
    // A file in another style than one line for each key is written anew.
    match document::parse_one(spliced.as_bytes(), LIMITS) {
        Ok(read) if read == all => Ok(spliced),
        _ => Ok(format!(
            "{}{}",
            head(before),
            to_yaml_in_order(&all, &ORDER)
        )),
    }
}

/// The comments that a file begins with.
fn head(text: &str) -> String {
    text.lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The text with another value of a top-level key, at its place or at the end.
fn spliced(text: &str, key: &str, value: &Value) -> String {
    let written = to_yaml_in_order(
        &Value::Object(Map::from_iter([(key.to_owned(), value.clone())])),
        &[],
    );
    let lines: Vec<&str> = text.lines().collect();
    let is_key = |line: &&str| line.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let Some(start) = lines.iter().position(|line| {
        line.strip_prefix(key)
            .is_some_and(|rest| rest.starts_with(':'))
    }) else {
        let end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return format!("{text}{end}{written}");
    };
    let next = lines
        .iter()
        .skip(start + 1)
        .position(is_key)
        .map_or(lines.len(), |next| start + 1 + next);
    // Comments before a key belong to it.
    let is_apart = |line: &&&str| line.is_empty() || line.starts_with('#');
    let apart = lines.get(start + 1..next).map_or(0, |between| {
        between.iter().rev().take_while(is_apart).count()
    });
    let line = |line: &&str| format!("{line}\n");
    let before = lines.iter().take(start).map(line);
    before
        .chain([written])
        .chain(lines.iter().skip(next - apart).map(line))
        .collect()
}

/// The expectations, whole and partial, after these objects were written. Those that are met stay as they are.
pub(super) fn objects(
    expected: &[Value],
    partial: &[Value],
    found: &[Value],
) -> (Vec<Value>, Vec<Value>) {
    let of = |wanted: &Value| {
        found
            .iter()
            .find(|object| compare::name(object) == compare::name(wanted))
    };
    let right =
        |wanted: &Value, object: &Value, extent| compare::one(wanted, object, extent).is_empty();
    let parts = partial.iter().filter_map(|wanted| {
        let object = of(wanted)?;
        Some(if right(wanted, object, Extent::Named) {
            wanted.clone()
        } else {
            named(wanted, &written(object))
        })
    });
    let whole = expected.iter().filter_map(|wanted| {
        let object = of(wanted)?;
        Some(if right(wanted, object, Extent::Whole) {
            wanted.clone()
        } else {
            written(object)
        })
    });
    let is_new = |object: &&Value| {
        !expected
            .iter()
            .chain(partial)
            .any(|wanted| compare::name(wanted) == compare::name(object))
    };
    (
        whole
            .chain(found.iter().filter(is_new).map(written))
            .collect(),
        parts.collect(),
    )
}

/// An object as a case has it: without what every build changes, and the data of a Secret as text.
fn written(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
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
        match compare::bytes(&value).and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(text) => drop(texts.insert(key, Value::String(text))),
            None => drop(others.insert(key, value)),
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
                (
                    key.clone(),
                    found
                        .get(key)
                        .map_or(Value::Null, |found| named(wanted, found)),
                )
            };
            Value::Object(wanted.iter().map(below).collect())
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => wanted
            .iter()
            .zip(found)
            .map(|(wanted, found)| named(wanted, found))
            .collect(),
        (_, found) => found.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parts(value: Value) -> Came {
        let Value::Object(map) = value else {
            panic!("want a mapping")
        };
        Came::Parts(map)
    }

    #[test]
    fn writes_only_what_changed_and_keeps_comments() {
        let before = "# Row T08.\nobjects:\n- kind: A\n  text: |\n    states:\n# About states.\nstates: # today\n- one\n\n# Last.\nwoken: []\n";
        for (came, after) in [
            (
                json!({"states": ["two"]}),
                before.replace("states: # today\n- one", "states:\n- two"),
            ),
            (
                json!({"objects": []}),
                before.replace(
                    "objects:\n- kind: A\n  text: |\n    states:\n",
                    "objects: []\n",
                ),
            ),
            (
                json!({"woken": [1], "states": []}),
                before
                    .replace("states: # today\n- one", "states: []")
                    .replace("woken: []", "woken:\n- 1"),
            ),
            (
                json!({"reconciled": true}),
                format!("{before}reconciled: true\n"),
            ),
        ] {
            assert_eq!(
                updated(before, &parts(came.clone())).unwrap(),
                after,
                "{came}"
            );
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
        for (wanted, expected) in [
            (
                json!({"spec": {"taints": [{"key": "b"}]}}),
                json!({"spec": {"taints": [{"key": "a"}]}}),
            ),
            (
                json!({"spec": {"taints": []}}),
                json!({"spec": {"taints": [{"key": "a", "time": 1}]}}),
            ),
            (
                json!({"spec": {"gone": 1}}),
                json!({"spec": {"gone": null}}),
            ),
        ] {
            assert_eq!(named(&wanted, &found), expected);
        }
    }
}
