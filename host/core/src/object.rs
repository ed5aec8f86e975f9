//! One object as a cluster gave it. Its debug form is only name and version, because a Secret holds credentials.

pub(crate) mod field;

use crate::reference::ObjectRef;
use crate::time;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::fmt;
use transom_api::labels;

/// An object with the version that its cluster gave it.
#[derive(Clone, PartialEq)]
pub struct Object {
    /// Which object.
    pub reference: ObjectRef,
    /// Opaque version, for preconditions; empty where the cluster has none.
    pub version: String,
    /// The whole object: `apiVersion`, `kind`, `metadata`, ...
    pub body: Value,
}

impl Object {
    /// `metadata.<name>` as text.
    pub fn meta(&self, name: &str) -> Option<&str> {
        self.body.get("metadata")?.get(name)?.as_str()
    }

    /// `metadata.uid`, empty when there is none.
    pub fn uid(&self) -> &str {
        self.meta("uid").unwrap_or_default()
    }

    /// `metadata.creationTimestamp` in seconds since 1970.
    pub fn created_seconds(&self) -> Option<i64> {
        self.meta("creationTimestamp").and_then(time::parse_rfc3339)
    }

    /// Whether it carries a deletion timestamp; of a namespace also, whether it is said to end.
    pub fn deleting(&self) -> bool {
        // `Value::pointer` would allocate: this is asked of each object, several times.
        let field = |part: &str, name| self.body.get(part)?.get(name);
        let ends = || field("status", "phase").and_then(Value::as_str) == Some("Terminating");
        field("metadata", "deletionTimestamp").is_some_and(|at| !at.is_null())
            || self.reference.kind == "Namespace" && ends()
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.body.get("metadata")?.get("labels")?.get(key)?.as_str()
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.body
            .get("metadata")?
            .get("annotations")?
            .get(key)?
            .as_str()
    }

    /// Whether a user paused it: it has the annotation [`labels::PAUSED`] with any value but `false`.
    pub fn paused(&self) -> bool {
        let value = self
            .body
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations")?.get(labels::PAUSED));
        !matches!(value, None | Some(Value::Null | Value::Bool(false)))
            && value != Some(&Value::from("false"))
    }

    /// The base64 text under a key of a Secret's `data`.
    pub fn data(&self, key: &str) -> Option<&Value> {
        self.body.get("data")?.get(key)
    }

    /// The bytes under a key of a Secret's data; `None` when there are none, or they are not base64.
    pub fn secret_bytes(&self, key: &str) -> Option<Vec<u8>> {
        STANDARD.decode(self.data(key)?.as_str()?.trim()).ok()
    }

    /// Whether it has an owner reference.
    pub fn has_owner(&self) -> bool {
        let metadata = self.body.get("metadata");
        let owners = metadata.and_then(|metadata| metadata.get("ownerReferences")?.as_array());
        owners.is_some_and(|owners| !owners.is_empty())
    }

    /// The body's top-level map; `None` when the body is not a map.
    pub fn fields(&self) -> Option<&Map<String, Value>> {
        self.body.as_object()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, version {:?})", self.reference, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_that_is_said_to_end_is_being_deleted() {
        let body = json!({"status": {"phase": "Terminating"}});
        for (kind, deleting) in [("Namespace", true), ("Pod", false)] {
            let object = Object {
                reference: ObjectRef::local("v1", kind, None, "x"),
                version: String::new(),
                body: body.clone(),
            };
            assert_eq!(object.deleting(), deleting, "{kind}");
        }
    }

    #[test]
    fn any_value_except_false_pauses() {
        for (annotations, paused) in [
            (json!({}), false),
            (json!(null), false),
            (json!("odd"), false),
            (json!({"transom.dev/paused": null}), false),
            (json!({"transom.dev/paused": "false"}), false),
            (json!({"transom.dev/paused": false}), false),
            (json!({"transom.dev/paused": ""}), true),
            (json!({"transom.dev/paused": "true"}), true),
            (json!({"transom.dev/paused": true}), true),
            (json!({"transom.dev/paused": "False"}), true),
            (json!({"transom.dev/paused": "until tomorrow"}), true),
        ] {
            let body = json!({"metadata": {"annotations": annotations}});
            let reference = ObjectRef::local("v1", "Node", None, "x");
            assert_eq!(
                Object {
                    reference,
                    version: String::new(),
                    body
                }
                .paused(),
                paused,
                "{annotations}"
            );
        }
    }
}
