//! Compares objects as a reader would: data decoded, kubeconfigs parsed, digests of components left out.
//! Never shows a value of a Secret: differences name paths.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use transom_api::labels;
use transom_core::document::{self, Limits};

/// What one value in a Secret may cost.
const LIMITS: Limits = Limits { bytes: 2 << 20, nodes: 100_000, depth: 64 };

/// The differences between two lists of objects, whatever their order.
pub(super) fn objects(expected: &[Value], found: &[Value]) -> Vec<String> {
    let mut differences = Vec::new();
    for wanted in expected {
        match found.iter().find(|object| name(object) == name(wanted)) {
            None => differences.push(format!("{}: want it written, it was not", name(wanted))),
            Some(object) => {
                let mut paths = BTreeSet::new();
                let hidden = wanted.get("kind").and_then(Value::as_str) == Some("Secret");
                differ(&normal(wanted), &normal(object), "", &mut |path, want, have| {
                    let difference = match hidden {
                        true => format!("`{path}` differs"),
                        false => format!("`{path}`: want {want}, have {have}"),
                    };
                    paths.insert(difference);
                });
                let of = format!("{}: ", name(wanted));
                differences.extend(paths.into_iter().map(|difference| format!("{of}{difference}")));
            }
        }
    }
    let unwanted = found.iter().filter(|object| !expected.iter().any(|wanted| name(wanted) == name(object)));
    differences.extend(unwanted.map(|object| format!("{}: want it not written, it was", name(object))));
    differences
}

fn name(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// An object in the form in which all that say the same are equal.
fn normal(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(labels::COMPONENT);
        annotations.remove(labels::INPUTS);
        if let Some(source) = annotations.get_mut(labels::SOURCE) {
            *source = source.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        }
    }
    if object.get("kind").and_then(Value::as_str) == Some("Secret") {
        data(&mut object);
    }
    object
}

/// `data` and `stringData` as what they say.
fn data(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let mut said = Map::new();
    if let Some(Value::Object(data)) = map.remove("data") {
        said.extend(data.into_iter().map(|(key, value)| (key, decoded(&value))));
    }
    if let Some(Value::Object(texts)) = map.remove("stringData") {
        said.extend(texts.into_iter().map(|(key, value)| (key, parsed(value.as_str().unwrap_or_default().as_bytes()))));
    }
    map.insert("data".to_owned(), Value::Object(said));
}

fn decoded(value: &Value) -> Value {
    use base64::Engine as _;
    let bytes = value.as_str().and_then(|text| base64::engine::general_purpose::STANDARD.decode(text.trim()).ok());
    bytes.map_or(Value::Null, |bytes| parsed(&bytes))
}

/// A YAML document as its value, anything else as text.
fn parsed(bytes: &[u8]) -> Value {
    document::parse_one(bytes, LIMITS).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(bytes).into_owned()))
}

/// The deepest paths at which two values differ.
fn differ(expected: &Value, found: &Value, path: &str, tell: &mut impl FnMut(&str, &Value, &Value)) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for key in expected.keys().chain(found.keys()) {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differ(expected.get(key).unwrap_or(&Value::Null), found.get(key).unwrap_or(&Value::Null), &below, tell);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                differ(expected, found, &format!("{path}[{at}]"), tell);
            }
        }
        _ if expected == found => {}
        _ => tell(path, expected, found),
    }
}
