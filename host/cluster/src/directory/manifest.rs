//! Bytes of a manifest file to objects, and an object to bytes. Never shows a value of a document in an error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;
use transom_api::Word;
use transom_core::reference::ObjectRef;

/// How deep Lists may lie in Lists.
const LIST_DEPTH: usize = 4;

/// One object of a file: its name, and the whole of it as compact JSON.
#[derive(Clone, PartialEq)]
pub(super) struct Found {
    /// Which object.
    pub(super) reference: ObjectRef,
    /// Compact JSON.
    pub(super) text: Arc<str>,
}

/// Why a file cannot be used; it holds no value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The reason in one word.
    pub(super) reason: Word,
    /// Document, line, column or field, and what is wrong there.
    pub(super) message: String,
    /// The object concerned, when it is known.
    pub(super) objects: Vec<ObjectRef>,
}

impl Fault {
    /// A file that is no manifest.
    pub(super) fn invalid(message: String) -> Self {
        Self { reason: Word::ManifestInvalid, message, objects: Vec::new() }
    }

    /// A file that cannot be read from the disk.
    pub(super) fn unread(cause: &std::io::Error) -> Self {
        Self { reason: Word::ReadFailed, message: format!("failed to read it: {cause}"), objects: Vec::new() }
    }
}

/// Every object of a file, in its order; Lists are flattened, `stringData` is part of `data`.
/// The first fault refuses the whole file, so that a half-written file is never half believed.
pub(super) fn objects(path: &Path, bytes: &[u8], cluster: &str, object_bytes: usize) -> Result<Vec<Found>, Fault> {
    let mut found = Vec::new();
    documents(path, bytes, &mut |number, document| {
        let place = format!("document {number}");
        flatten(document, &place, LIST_DEPTH, &mut |object, place| {
            found.push(one(object, place, cluster, object_bytes)?);
            Ok(())
        })
    })?;
    Ok(found)
}

/// Calls `each` with the number, from one, and the value of every document that is not empty.
pub(super) fn documents(
    path: &Path,
    bytes: &[u8],
    each: &mut dyn FnMut(usize, Value) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if path.extension().is_some_and(|extension| extension == "json") {
        for (index, document) in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>().enumerate() {
            let at = |error: serde_json::Error| unparsable(index + 1, error.line(), error.column());
            each(index + 1, document.map_err(at)?)?;
        }
        return Ok(());
    }
    for (index, document) in serde_yaml::Deserializer::from_slice(bytes).enumerate() {
        let value = Value::deserialize(document).map_err(|error| {
            let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
            unparsable(index + 1, line, column)
        })?;
        if !value.is_null() {
            each(index + 1, value)?;
        }
    }
    Ok(())
}

/// What a parser's error comes to: its text may quote the document, so only the place is kept.
fn unparsable(number: usize, line: usize, column: usize) -> Fault {
    Fault::invalid(format!("document {number}, line {line}, column {column}: it does not parse"))
}

/// An object as a document of YAML.
pub(super) fn emit(body: &Value) -> Result<String, String> {
    serde_yaml::to_string(body).map_err(|_| "it cannot be written as YAML".to_owned())
}

/// The reference of an object that was parsed; nothing when it has none.
pub(super) fn reference(document: &Value, cluster: &str) -> Option<ObjectRef> {
    name(document.as_object()?, cluster).ok()
}

/// What is called with an object and its place in the file.
type EachObject<'a> = &'a mut dyn FnMut(Map<String, Value>, &str) -> Result<(), Fault>;

/// Calls `each` with every object of a document that may be a List.
fn flatten(document: Value, place: &str, depth: usize, each: EachObject<'_>) -> Result<(), Fault> {
    let Value::Object(mut object) = document else {
        return Err(Fault::invalid(format!("{place}: it is not a mapping")));
    };
    let is_list = text(&object, "kind") == Some("List") && text(&object, "apiVersion") == Some("v1");
    if !is_list {
        return each(object, place);
    }
    if depth == 0 {
        return Err(Fault::invalid(format!("{place}: Lists lie too deep in Lists")));
    }
    match object.remove("items") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .try_for_each(|(index, item)| flatten(item, &format!("{place}, items[{index}]"), depth - 1, each)),
        Some(_) => Err(Fault::invalid(format!("{place}: items is not a list"))),
    }
}

/// One object, checked for what every object must have.
fn one(mut object: Map<String, Value>, place: &str, cluster: &str, limit: usize) -> Result<Found, Fault> {
    let reference = name(&object, cluster).map_err(|field| Fault::invalid(format!("{place}: {field}")))?;
    if reference.kind == "Secret" && reference.api_version == "v1" {
        fold_string_data(&mut object).map_err(|field| Fault::invalid(format!("{place}: {field}")))?;
    }
    let text = Value::Object(object).to_string();
    if text.len() > limit {
        return Err(Fault {
            reason: Word::ObjectTooLarge,
            message: format!("{place}: {reference} has {} bytes, the limit is {limit}", text.len()),
            objects: vec![reference],
        });
    }
    Ok(Found { reference, text: text.into() })
}

/// The reference of an object, or which field is wrong.
fn name(object: &Map<String, Value>, cluster: &str) -> Result<ObjectRef, String> {
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => return Err("metadata is missing".to_owned()),
        Some(_) => return Err("metadata is not a mapping".to_owned()),
    };
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(namespace)) if namespace.is_empty() => None,
        Some(Value::String(namespace)) => Some(namespace.clone()),
        Some(_) => return Err("metadata.namespace is not text".to_owned()),
    };
    Ok(ObjectRef {
        cluster: cluster.to_owned(),
        api_version: required(object, "apiVersion", "apiVersion")?,
        kind: required(object, "kind", "kind")?,
        namespace,
        name: required(metadata, "name", "metadata.name")?,
    })
}

/// A text that must be there and not empty; `path` is how the error names it.
fn required(map: &Map<String, Value>, key: &str, path: &str) -> Result<String, String> {
    match map.get(key) {
        None | Some(Value::Null) => Err(format!("{path} is missing")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("{path} is empty")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{path} is not text")),
    }
}

/// A field's text.
fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// Moves `stringData` into `data`, where it wins, as an API server does.
fn fold_string_data(object: &mut Map<String, Value>) -> Result<(), String> {
    let plain = match object.remove("stringData") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(plain)) => plain,
        Some(_) => return Err("stringData is not a mapping".to_owned()),
    };
    let data = object.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Value::Object(data) = data else {
        return Err("data is not a mapping".to_owned());
    };
    for (key, value) in plain {
        let Value::String(value) = value else {
            return Err(format!("stringData.{key} is not text"));
        };
        data.insert(key, Value::String(STANDARD.encode(value)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1_572_864;

    fn read(text: &str) -> Result<Vec<Found>, Fault> {
        objects(Path::new("a.yaml"), text.as_bytes(), "local", LIMIT)
    }

    fn names(text: &str) -> Vec<String> {
        read(text).unwrap().iter().map(|found| found.reference.to_string()).collect()
    }

    fn message(text: &str) -> String {
        read(text).err().unwrap().message
    }

    #[test]
    fn documents_lists_and_empty_ones() {
        let item = |name: &str| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
        assert_eq!(names(""), Vec::<String>::new());
        assert_eq!(names("# nothing\n---\n---\n"), Vec::<String>::new());
        assert_eq!(names(&format!("---\n{}\n---\n\n---\n{}\n", item("a"), item("b"))), ["Namespace a", "Namespace b"]);
        let list = format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}\n- {{apiVersion: v1, kind: List, items: [{}]}}\n",
            item("a"),
            item("b")
        );
        assert_eq!(names(&list), ["Namespace a", "Namespace b"]);
        assert_eq!(names("apiVersion: v1\nkind: List\n"), Vec::<String>::new());
        let json = br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
        assert_eq!(objects(Path::new("a.json"), json, "hub", LIMIT).unwrap()[0].reference.cluster, "hub");
    }

    #[test]
    fn marks_and_line_ends_of_other_systems() {
        let text = "\u{feff}apiVersion: v1\r\nkind: Secret\r\nmetadata:\r\n  name: a\r\n  namespace: n\r\n";
        assert_eq!(names(text), ["Secret n/a"]);
    }

    #[test]
    fn string_data_is_data_and_wins() {
        let text =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {x: b2xk, y: a2VwdA==}\nstringData: {x: new}\n";
        let found = read(text).unwrap();
        let body: Value = serde_json::from_str(&found[0].text).unwrap();
        assert_eq!(body["data"], serde_json::json!({"x": "bmV3", "y": "a2VwdA=="}));
        assert!(body.get("stringData").is_none());
        let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nstringData: {x: new}\n";
        assert!(read(other).unwrap()[0].text.contains("stringData"), "only Secrets have it");
    }

    #[test]
    fn errors_name_the_field_and_no_value() {
        let good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n";
        for (text, expected) in [
            ("kind: A\nmetadata: {name: a}\n", "document 2: apiVersion is missing"),
            ("apiVersion: v1\nmetadata: {name: a}\n", "document 2: kind is missing"),
            ("apiVersion: v1\nkind: A\n", "document 2: metadata is missing"),
            ("apiVersion: v1\nkind: A\nmetadata: {}\n", "document 2: metadata.name is missing"),
            ("apiVersion: v1\nkind: A\nmetadata: {name: 12}\n", "document 2: metadata.name is not text"),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: [canary]}\n",
                "document 2: metadata.namespace is not text",
            ),
            ("- canary\n", "document 2: it is not a mapping"),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {p: 12}\n",
                "document 2: stringData.p is not text",
            ),
            ("apiVersion: v1\nkind: List\nitems: [{kind: A}]\n", "document 2, items[0]: metadata is missing"),
        ] {
            assert_eq!(message(&format!("{good}{text}")), expected);
        }
    }

    #[test]
    fn what_does_not_parse_is_placed_and_not_quoted() {
        let message =
            message("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  x: \"canary\n  y: canary: canary\n");
        assert!(message.starts_with("document 1, line "), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }

    #[test]
    fn an_object_over_the_limit_is_refused() {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{x: {}}}\n", "y".repeat(100));
        let fault = objects(Path::new("a.yaml"), text.as_bytes(), "local", 100).err().unwrap();
        assert_eq!((fault.reason, fault.objects.len()), (Word::ObjectTooLarge, 1));
        assert!(objects(Path::new("a.yaml"), text.as_bytes(), "local", 300).is_ok());
    }
}
