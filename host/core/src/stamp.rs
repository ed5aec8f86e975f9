//! The stamp on what the agent creates or adopts: policy, source, digests. Not for other objects of users.

use crate::object::Object;
use crate::reference::ObjectRef;
use crate::work::Key;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use transom_api::labels;

/// The primary that an object was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRef {
    /// Which primary.
    #[serde(flatten)]
    pub reference: ObjectRef,
    /// Its uid, empty where the cluster gives none.
    #[serde(default)]
    pub uid: String,
}

/// Which policy made an object, and from what. The digests are those of the last write of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Name of the policy.
    pub policy: String,
    /// The primary that it was made for.
    pub source: SourceRef,
    /// Digest of the inputs, without credential bytes.
    pub inputs: String,
    /// Digest of the component that decided.
    pub component: String,
}

impl Stamp {
    /// The stamp for what a component decided for a primary from these inputs.
    pub fn of(key: &Key, primary: &Object, inputs: &str, component: &str) -> Self {
        Self {
            policy: key.policy.to_string(),
            source: SourceRef {
                reference: primary.reference.clone(),
                uid: primary.uid().to_owned(),
            },
            inputs: inputs.to_owned(),
            component: component.to_owned(),
        }
    }

    /// The stamp of an object; `None` when it has another manager, or policy or source cannot be read.
    pub fn read(object: &Object) -> Option<Self> {
        if object.label(labels::MANAGED_BY) != Some(labels::MANAGER) {
            return None;
        }
        let text = |key| object.annotation(key).unwrap_or_default().to_owned();
        Some(Self {
            policy: object.label(labels::POLICY)?.to_owned(),
            source: serde_json::from_str(object.annotation(labels::SOURCE)?).ok()?,
            inputs: text(labels::INPUTS),
            component: text(labels::COMPONENT),
        })
    }

    /// Whether an object bears the stamp of a policy. Such an object is never a primary of that policy.
    pub fn is_of(object: &Object, policy: &str) -> bool {
        Self::read(object).is_some_and(|stamp| stamp.policy == policy)
    }

    /// Whether both were made by the same policy for the same primary.
    pub fn same_owner(&self, other: &Self) -> bool {
        self.policy == other.policy && self.source == other.source
    }

    /// The policy and primary that it names; the uid may be one of an earlier primary of that name.
    pub fn key(&self) -> Key {
        Key::new(&self.policy.as_str().into(), &self.source.reference)
    }

    /// Whether it names this policy and primary, whatever the uid.
    pub fn names(&self, key: &Key) -> bool {
        *self.policy == *key.policy && self.source.reference == *key.primary
    }

    /// Puts the stamp on a body; every other label and annotation stays.
    pub fn put(&self, body: &mut Value) {
        let source = serde_json::to_string(&self.source).unwrap_or_default();
        let labels = [
            (labels::MANAGED_BY, labels::MANAGER),
            (labels::POLICY, &*self.policy),
        ];
        let annotations = [
            (labels::SOURCE, &*source),
            (labels::INPUTS, &*self.inputs),
            (labels::COMPONENT, &*self.component),
        ];
        let mut whole = map_of(Some(body.take()));
        let mut metadata = map_of(whole.remove("metadata"));
        for (field, entries) in [
            ("labels", labels.as_slice()),
            ("annotations", annotations.as_slice()),
        ] {
            let mut map = map_of(metadata.remove(field));
            map.extend(
                entries
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), Value::from(*value))),
            );
            metadata.insert(field.to_owned(), map.into());
        }
        whole.insert("metadata".to_owned(), metadata.into());
        *body = whole.into();
    }
}

/// Marks a stamped body as adopted: the object existed before. An object that is created again has no such mark.
pub fn put_adopted(body: &mut Value) {
    if let Some(map) = body
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        map.insert(labels::ADOPTED.to_owned(), Value::from("true"));
    }
}

/// The value as a map; anything else counts as an empty one.
fn map_of(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stamp() -> Stamp {
        let reference = ObjectRef::local(
            "hypershift.openshift.io/v1beta1",
            "HostedCluster",
            Some("clusters"),
            "demo",
        );
        Stamp {
            policy: "p".to_owned(),
            source: SourceRef {
                reference,
                uid: "u1".to_owned(),
            },
            inputs: "sha256:1".to_owned(),
            component: "sha256:2".to_owned(),
        }
    }

    fn object(body: Value) -> Object {
        Object {
            reference: ObjectRef::local("v1", "Secret", Some("n"), "s"),
            version: String::new(),
            body,
        }
    }

    #[test]
    fn ownership_labels_read_back() {
        let mut body = json!({"metadata": {"labels": {"mine": "stays"}, "annotations": null}});
        stamp().put(&mut body);
        assert_eq!(body["metadata"]["labels"]["mine"], "stays");
        assert_eq!(
            body["metadata"]["annotations"][labels::SOURCE],
            r#"{"cluster":"local","apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","namespace":"clusters","name":"demo","uid":"u1"}"#
        );
        let object = object(body);
        assert_eq!(Stamp::read(&object), Some(stamp()));
        assert!(Stamp::is_of(&object, "p") && !Stamp::is_of(&object, "q"));
    }

    #[test]
    fn incomplete_ownership_labels_do_not_count() {
        let mut whole = json!({});
        stamp().put(&mut whole);
        for pointer in [
            "/metadata/labels/app.kubernetes.io~1managed-by",
            "/metadata/labels/transom.dev~1policy",
            "/metadata/annotations/transom.dev~1source",
        ] {
            let mut body = whole.clone();
            *body.pointer_mut(pointer).unwrap() = json!("x");
            let read = Stamp::read(&object(body));
            assert!(
                read.is_none_or(|read| !read.same_owner(&stamp())),
                "{pointer}"
            );
        }
    }
}
