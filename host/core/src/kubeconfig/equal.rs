//! Whether two kubeconfigs say the same: compares parsed values, data by bytes, entries by name. Ignores formatting.

use super::{Assembled, KubeconfigLimits, NODES, SourceKubeconfig, certificate};
use crate::document::{self, ParseLimits};
use serde_json::{Map, Value};

/// The fields of a credential; two users that agree in these hold the same credential.
const CREDENTIALS: [&str; 7] = [
    "client-certificate-data",
    "client-key-data",
    "token",
    "username",
    "password",
    "exec",
    "auth-provider",
];

impl Assembled {
    /// Whether these bytes say the same as this result. Ignores the order of keys and entries, line breaks in base64,
    /// and whether a field is empty or absent.
    pub fn says_the_same(&self, bytes: &[u8]) -> bool {
        if bytes == self.text.as_bytes() {
            return true;
        }
        let limits = ParseLimits {
            bytes: bytes.len().max(self.text.len()).saturating_mul(2),
            nodes: NODES,
            depth: 64,
        };
        document::parse_one(bytes, limits)
            .is_ok_and(|other| normal(&other) == normal(&self.document))
    }
}

impl SourceKubeconfig {
    /// Whether a user of the kubeconfig in these bytes holds the credential of a user of this source.
    pub fn shares_credential(&self, bytes: &[u8], limits: &KubeconfigLimits) -> bool {
        let Ok(other) = Self::parse(bytes, limits) else {
            return false;
        };
        let ours = credentials(&self.document);
        credentials(&other.document)
            .iter()
            .any(|theirs| ours.contains(theirs))
    }
}

/// The credentials of all users that have one.
fn credentials(document: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let users = document.get("users").and_then(Value::as_array);
    users
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("user")?.as_object())
        .map(|user| {
            let held = user
                .iter()
                .filter(|(key, _)| CREDENTIALS.contains(&key.as_str()));
            fields(held)
        })
        .filter(|held| !held.is_empty())
        .collect()
}

/// A kubeconfig in normal form: the same for all that say the same.
fn normal(document: &Value) -> Option<Map<String, Value>> {
    let mut all = fields(document.as_object()?.iter());
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        all.entry(key).or_insert_with(|| value.into());
    }
    for (list, inner) in [
        ("clusters", "cluster"),
        ("users", "user"),
        ("contexts", "context"),
    ] {
        let Some(Value::Array(items)) = all.get_mut(list) else {
            continue;
        };
        for entry in items.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(Value::Object(map)) = entry.get(inner) {
                let map = fields(map.iter());
                entry.insert(inner.to_owned(), Value::Object(map));
            }
        }
        items.sort_by(|left, right| name(left).cmp(&name(right)));
    }
    Some(all)
}

/// Fields without empty ones, with data as base64 without line breaks.
fn fields<'d>(all: impl Iterator<Item = (&'d String, &'d Value)>) -> Map<String, Value> {
    all.filter(|(_, value)| !is_empty(value))
        .map(|(key, value)| (key.clone(), dense(key, value)))
        .collect()
}

/// Clients treat these like an absent field.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn dense(key: &str, value: &Value) -> Value {
    let bytes = value
        .as_str()
        .filter(|_| key.ends_with("-data"))
        .and_then(certificate::field);
    bytes.map_or_else(
        || value.clone(),
        |bytes| certificate::to_field(&bytes).into(),
    )
}

fn name(entry: &Value) -> Option<&str> {
    entry.get("name").and_then(Value::as_str)
}
