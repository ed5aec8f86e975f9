//! Objects in a form that may be shown: of every credential only its kind, its size and a mark that is valid for one
//! run. In a kubeconfig everything that is not listed is hidden.

pub mod visible;

use crate::kubeconfig::{KubeconfigLimits, Source};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The annotation in which kubectl keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The prefix of our own annotations.
const OURS: &str = "transom.dev/";

/// The key of one run. Equal values have equal marks within it; without the key a mark says nothing about a value.
pub struct Marks {
    key: [u8; 32],
    names: bool,
}

impl Marks {
    /// From random bytes, which must not be used for anything else.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, names: false }
    }

    /// The same, but names of contexts, clusters and users in kubeconfigs are shown.
    pub fn showing_names(self) -> Self {
        Self {
            names: true,
            ..self
        }
    }

    /// Whether names are shown.
    pub(crate) fn show_names(&self) -> bool {
        self.names
    }

    /// The mark that is shown instead of a value.
    pub fn hide(&self, kind: &str, bytes: &[u8]) -> Value {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(bytes);
        let mark: String = hash
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Value::String(format!("<redacted {kind}, {} bytes, {mark}>", bytes.len()))
    }

    /// The mark for a JSON value: for base64 by its decoded bytes, for other text by its bytes, for anything else by
    /// its JSON; null stays null.
    pub(crate) fn hide_value(&self, kind: &str, value: &Value) -> Value {
        match value {
            Value::Null => Value::Null,
            Value::String(text) => match STANDARD.decode(text) {
                Ok(bytes) if !text.is_empty() => self.hide(kind, &bytes),
                _ => self.hide(kind, text.as_bytes()),
            },
            other => self.hide(kind, other.to_string().as_bytes()),
        }
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Marks(..)")
    }
}

/// An object in a form that may be shown. Hides the content of Secrets wherever they are (in a List, in a
/// ManifestWork), and kubectl's copies of whole objects.
pub fn redact(object: &Value, marks: &Marks) -> Value {
    match object {
        Value::Object(map) if map.get("kind").and_then(Value::as_str) == Some("Secret") => {
            secret(map, marks)
        }
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), field(key, value, marks)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| redact(item, marks)).collect(),
        other => other.clone(),
    }
}

fn field(key: &str, value: &Value, marks: &Marks) -> Value {
    if key == LAST_APPLIED {
        marks.hide_value("copy", value)
    } else {
        redact(value, marks)
    }
}

fn secret(map: &Map<String, Value>, marks: &Marks) -> Value {
    let field = |(key, value): (&String, &Value)| {
        let shown = match key.as_str() {
            "apiVersion" | "kind" | "type" | "immutable" => value.clone(),
            "metadata" => metadata(value, marks),
            "data" => data(value, marks, |text| STANDARD.decode(text).ok()),
            "stringData" => data(value, marks, |text| Some(text.as_bytes().to_vec())),
            _ => marks.hide_value("field", value),
        };
        (key.clone(), shown)
    };
    Value::Object(map.iter().map(field).collect())
}

/// Hides the annotations of a Secret except ours: others may hold a copy of its data.
fn metadata(value: &Value, marks: &Marks) -> Value {
    let mut shown = redact(value, marks);
    let annotations = shown.get_mut("annotations").and_then(Value::as_object_mut);
    for (name, value) in annotations.into_iter().flatten() {
        if !name.starts_with(OURS) && name != LAST_APPLIED {
            *value = marks.hide_value("annotation", value);
        }
    }
    shown
}

/// The values of a Secret; one that is a kubeconfig is shown as its structure.
fn data(value: &Value, marks: &Marks, bytes_of: impl Fn(&str) -> Option<Vec<u8>>) -> Value {
    let Value::Object(map) = value else {
        return marks.hide_value("data", value);
    };
    let one = |(key, value): (&String, &Value)| {
        let bytes = value.as_str().and_then(&bytes_of);
        let source = bytes
            .as_deref()
            .and_then(|bytes| Source::parse(bytes, &KubeconfigLimits::default()).ok());
        let shown = match (source, bytes) {
            (Some(source), _) => source.redacted(marks),
            (None, Some(bytes)) => marks.hide("data", &bytes),
            (None, None) => marks.hide_value("data", value),
        };
        (key.clone(), shown)
    };
    Value::Object(map.iter().map(one).collect())
}
