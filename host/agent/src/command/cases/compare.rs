//! Compares objects by meaning: data decoded, kubeconfigs parsed, digests of components left out. Of a Secret,
//! differences show only what `transom render` shows.

use crate::command::render::marks;
use serde_json::value::Index;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use transom_api::labels;
use transom_core::document::{self, ParseLimits};
use transom_core::redact::redact;

/// Limits of one value in a Secret.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 2 << 20,
    nodes: 100_000,
    depth: 64,
};

/// How much of an object is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Whole,
    /// The fields that are named; lists have as many elements as are named.
    Named,
}

/// The differences between the expected objects and those that were written, in any order.
pub(super) fn objects(expected: &[Value], partial: &[Value], found: &[Value]) -> Vec<String> {
    let whole = expected.iter().map(|wanted| (wanted, Extent::Whole));
    let named = partial.iter().map(|wanted| (wanted, Extent::Named));
    let wanted: Vec<_> = whole.chain(named).collect();
    let mut differences = Vec::new();
    for (wanted, extent) in &wanted {
        let name = name(wanted);
        match found.iter().find(|object| self::name(object) == name) {
            None => differences.push(format!("{name}: expected it to be written, it was not")),
            Some(object) => differences.extend(one(wanted, object, *extent)),
        }
    }
    for name in found.iter().map(name) {
        if !wanted.iter().any(|(wanted, _)| self::name(wanted) == name) {
            differences.push(format!("{name}: expected it not to be written, it was"));
        }
    }
    differences
}

/// The differences of one object.
pub(super) fn one(wanted: &Value, found: &Value, extent: Extent) -> Vec<String> {
    let marks = marks();
    let forms = |object: &Value| {
        let shown = redact(object.clone(), &marks);
        // Redaction has decoded the data of a Secret.
        (
            normal(object.clone(), decoded),
            normal(shown, |_, data| data),
        )
    };
    let (wanted, found) = (forms(wanted), forms(found));
    let (mut differences, name) = (BTreeSet::new(), name(&wanted.0));
    let mut report = |path: &str, want: Side<'_>, have: Side<'_>| {
        differences.insert(match (want.shown(), have.shown()) {
            // A hidden value may look the same on both sides, or not be shown at all.
            (Some(want), Some(have)) if want != have => {
                format!("{name}: `{path}`: expected {want}, got {have}")
            }
            _ => format!("{name}: `{path}` differs"),
        });
    };
    differ(Side::of(&wanted), Side::of(&found), "", extent, &mut report);
    differences.into_iter().collect()
}

/// What identifies an object in a case: kind, namespace and name.
pub(super) fn name(object: &Value) -> String {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("-")
    };
    format!(
        "{} {}/{}",
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

/// An object in a normal form: objects with the same meaning are equal in it. `read` reads a value of a Secret, under
/// `data` or `stringData`.
fn normal(mut object: Value, read: fn(&str, Value) -> Value) -> Value {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(labels::COMPONENT);
        annotations.remove(labels::INPUTS);
        if let Some(source) = annotations.get_mut(labels::SOURCE) {
            let parsed = source.as_str().map(serde_json::from_str);
            *source = parsed.and_then(Result::ok).unwrap_or_default();
        }
    }
    let is_secret = object.get("kind").and_then(Value::as_str) == Some("Secret");
    if let Some(map) = object.as_object_mut().filter(|_| is_secret) {
        let mut data = Map::new();
        for part in ["data", "stringData"] {
            if let Some(Value::Object(values)) = map.remove(part) {
                data.extend(
                    values
                        .into_iter()
                        .map(|(key, value)| (key, read(part, value))),
                );
            }
        }
        map.insert("data".to_owned(), Value::Object(data));
    }
    object
}

/// The content of a value of a Secret.
fn decoded(part: &str, value: Value) -> Value {
    match part {
        "data" => bytes(&value).map_or(Value::Null, |bytes| parsed(&bytes)),
        _ => parsed(value.as_str().unwrap_or_default().as_bytes()),
    }
}

/// The bytes that a value under `data` of a Secret encodes.
pub(super) fn bytes(value: &Value) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let text = value.as_str()?.trim();
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

/// A YAML document as its value, anything else as text.
fn parsed(bytes: &[u8]) -> Value {
    document::parse_one(bytes, LIMITS)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(bytes).into_owned()))
}

/// A value, and its redacted form; `None` where the value is absent, or its place is not shown.
#[derive(Clone, Copy)]
struct Side<'a> {
    said: Option<&'a Value>,
    shown: Option<&'a Value>,
}

impl<'a> Side<'a> {
    fn of((said, shown): &'a (Value, Value)) -> Self {
        Self {
            said: Some(said),
            shown: Some(shown),
        }
    }

    fn below(self, place: impl Index + Copy) -> Self {
        let below = |value: &'a Value| value.get(place);
        Self {
            said: self.said.and_then(below),
            shown: self.shown.and_then(below),
        }
    }

    fn value(self) -> &'a Value {
        self.said.unwrap_or(&Value::Null)
    }

    /// The redacted form; an absent value is null.
    fn shown(self) -> Option<&'a Value> {
        if self.value().is_null() {
            Some(&Value::Null)
        } else {
            self.shown
        }
    }
}

/// Reports the deepest paths at which two values differ.
fn differ(
    expected: Side<'_>,
    found: Side<'_>,
    path: &str,
    extent: Extent,
    report: &mut impl FnMut(&str, Side<'_>, Side<'_>),
) {
    match (expected.value(), found.value()) {
        (Value::Object(wanted), Value::Object(there)) => {
            let counts = |key: &&String| extent == Extent::Whole && !wanted.contains_key(*key);
            for key in wanted.keys().chain(there.keys().filter(counts)) {
                let below = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                let (expected, found) = (expected.below(key.as_str()), found.below(key.as_str()));
                differ(expected, found, &below, extent, report);
            }
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            for at in 0..wanted.len() {
                let (expected, found) = (expected.below(at), found.below(at));
                differ(expected, found, &format!("{path}[{at}]"), extent, report);
            }
        }
        (wanted, there) if wanted == there => {}
        _ => report(path, expected, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster(spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ManagedCluster", "metadata": {"name": "c", "labels": {"a": "b"}}, "spec": spec})
    }

    #[test]
    fn compares_only_the_named_fields_of_a_partial_object() {
        let found = [cluster(
            json!({"taints": [{"key": "k", "effect": "NoSelect", "timeAdded": "t"}], "accepted": true}),
        )];
        let named = |spec: Value| json!({"kind": "ManagedCluster", "metadata": {"name": "c"}, "spec": spec});
        for (spec, told) in [
            (json!({"taints": [{"key": "k"}]}), None),
            (json!({}), None),
            (
                json!({"taints": [{"key": "k", "value": null}], "other": null}),
                None,
            ),
            (
                json!({"taints": [{"key": "other"}]}),
                Some("`spec.taints[0].key`: expected \"other\", got \"k\""),
            ),
            (
                json!({"taints": []}),
                Some("`spec.taints`: expected [], got [{"),
            ),
            (
                json!({"accepted": null}),
                Some("`spec.accepted`: expected null, got true"),
            ),
            (
                json!({"missing": 1}),
                Some("`spec.missing`: expected 1, got null"),
            ),
        ] {
            let differences = objects(&[], &[named(spec.clone())], &found);
            let is_told =
                told.is_none_or(|told| differences.len() == 1 && differences[0].contains(told));
            assert!(
                is_told && differences.is_empty() == told.is_none(),
                "{spec}: {differences:?}"
            );
            // With the whole extent the other fields count, too.
            assert!(!objects(&[named(spec)], &[], &found).is_empty());
        }
        assert!(objects(&[], &[], &found)[0].contains("expected it not to be written"));
        assert!(
            objects(
                &[],
                &[json!({"kind": "Secret", "metadata": {"name": "c"}})],
                &found
            )[0]
            .contains("expected it to be written")
        );
    }

    #[test]
    fn compares_secrets_as_render_shows_them() {
        let secret = |server: &str, token: &str| {
            let config = format!(
                "kind: Config\nclusters: [{{name: c, cluster: {{server: 'https://{server}'}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\ncontexts: []\n"
            );
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {"other": token}}, "stringData": {"kubeconfig": config, "password": token}})
        };
        let told = objects(
            &[secret("one.example.com", "Canary1")],
            &[],
            &[secret("two.example.com", "Canary2")],
        )
        .join("\n");
        assert!(told.contains("`data.kubeconfig.clusters[0].cluster.server`: expected \"https://one.example.com\", got \"https://two.example.com\""), "{told}");
        assert!(
            told.contains(
                "`data.kubeconfig.users[0].user.token`: expected \"<redacted token, 7 bytes, "
            ),
            "{told}"
        );
        assert!(
            told.contains("`data.password`") && told.contains("`metadata.annotations.other`"),
            "{told}"
        );
        assert!(!told.contains("Canary"), "{told}");
    }
}
