//! The stamp on what the agent creates or adopts: policy, source, digests. Not for other objects of users.

use crate::object::Object;
use crate::reference::ObjectRef;
use crate::work::Key;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use transom_api::labels;

/// The namespace whose uid is that of its cluster: each API server makes it once.
pub const CLUSTER_NAMESPACE: &str = "kube-system";

/// The primary that an object was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StampedSource")]
pub struct SourceRef {
    /// Which primary.
    #[serde(flatten)]
    pub reference: ObjectRef,
    /// Its uid, empty where the cluster gives none.
    pub uid: String,
    /// The uid of its cluster, on an object that lies on another connection: agents of several clusters may write
    /// there, and each has policies and primaries of the same names. Empty on other objects, and where the cluster has
    /// none.
    #[serde(rename = "clusterUid", skip_serializing_if = "String::is_empty")]
    pub cluster_uid: String,
}

/// A source as it is read: each reconcile reads the stamps of all its targets, and what is flattened takes serde twice
/// as long.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StampedSource {
    cluster: String,
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    cluster_uid: String,
}

impl From<StampedSource> for SourceRef {
    fn from(read: StampedSource) -> Self {
        Self {
            reference: ObjectRef {
                cluster: read.cluster,
                api_version: read.api_version,
                kind: read.kind,
                namespace: read.namespace,
                name: read.name,
            },
            uid: read.uid,
            cluster_uid: read.cluster_uid,
        }
    }
}

impl SourceRef {
    /// A primary as it is, on the cluster with this uid.
    pub fn of(primary: &Object, cluster_uid: &str) -> Self {
        Self {
            reference: primary.reference.clone(),
            uid: primary.uid().to_owned(),
            cluster_uid: cluster_uid.to_owned(),
        }
    }

    /// A primary that is gone.
    pub fn gone(primary: &ObjectRef, cluster_uid: &str) -> Self {
        Self {
            reference: primary.clone(),
            uid: String::new(),
            cluster_uid: cluster_uid.to_owned(),
        }
    }

    /// The uid of the cluster that the stamp of an object names: none on the connection of the primary.
    fn uid_on(&self, object: &ObjectRef) -> &str {
        match object.cluster == self.reference.cluster {
            true => "",
            false => &self.cluster_uid,
        }
    }

    /// Whether the stamp of an object is from the cluster of this source, whichever primary it names. A stamp of an
    /// earlier agent names no cluster: then this is known only if the stamp is of this very primary.
    pub fn is_cluster_of(&self, object: &ObjectRef, stamp: &Stamp) -> bool {
        let stamped = &stamp.source;
        let same = !self.uid.is_empty() && self.uid == stamped.uid;
        stamped.cluster_uid == self.uid_on(object) || stamped.cluster_uid.is_empty() && same
    }
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
    pub fn of(key: &Key, source: SourceRef, inputs: &str, component: &str) -> Self {
        Self {
            policy: key.policy.to_string(),
            source,
            inputs: inputs.to_owned(),
            component: component.to_owned(),
        }
    }

    /// The stamp of an object; `None` when it has another manager, or policy or source cannot be read.
    pub fn read(object: &Object) -> Option<Self> {
        Self::of_metadata(|key| object.label(key), |key| object.annotation(key))
    }

    /// The stamp in the labels and annotations of an object, as [`Self::read`].
    pub fn of_metadata<'a>(
        label: impl Fn(&str) -> Option<&'a str>,
        annotation: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Self> {
        if label(labels::MANAGED_BY) != Some(labels::MANAGER) {
            return None;
        }
        let text = |key| annotation(key).unwrap_or_default().to_owned();
        Some(Self {
            policy: label(labels::POLICY)?.to_owned(),
            source: serde_json::from_str(annotation(labels::SOURCE)?).ok()?,
            inputs: text(labels::INPUTS),
            component: text(labels::COMPONENT),
        })
    }

    /// Whether an object bears the stamp of a policy. Whether that policy may have made it is said by
    /// [`Policy::has_made`](crate::policy::Policy::has_made).
    pub fn is_of(object: &Object, policy: &str) -> bool {
        Self::read(object).is_some_and(|stamp| stamp.policy == policy)
    }

    /// Whether both were made by the same policy for the same primary.
    pub fn same_owner(&self, other: &Self) -> bool {
        self.policy == other.policy && self.source == other.source
    }

    /// Whether the stamp of an object is of this stamp's policy, and of its cluster.
    pub fn is_policy_of(&self, object: &ObjectRef, there: &Self) -> bool {
        self.policy == there.policy && self.source.is_cluster_of(object, there)
    }

    /// The policy and primary that it names; the uid may be one of an earlier primary of that name.
    pub fn key(&self) -> Key {
        Key::new(&self.policy.as_str().into(), &self.source.reference)
    }

    /// Whether it names this policy and primary, whatever the uid.
    pub fn names(&self, key: &Key) -> bool {
        *self.policy == *key.policy && self.source.reference == *key.primary
    }

    /// The stamp as it is put on an object.
    pub fn on(&self, object: &ObjectRef) -> Self {
        let mut stamp = self.clone();
        stamp.source.cluster_uid = self.source.uid_on(object).to_owned();
        stamp
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
                cluster_uid: String::new(),
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
        assert!(stamp().same_owner(&Stamp::read(&object).unwrap()));
        assert!(Stamp::is_of(&object, "p") && !Stamp::is_of(&object, "q"));
    }

    #[test]
    fn on_another_connection_the_stamp_names_the_cluster_and_another_cluster_is_another_owner() {
        let at = |uid: &str, cluster: &str| {
            let mut stamp = stamp();
            (stamp.source.uid, stamp.source.cluster_uid) = (uid.to_owned(), cluster.to_owned());
            stamp
        };
        let mut there = ObjectRef::local("v1", "Secret", Some("n"), "s");
        let here = there.clone();
        there.cluster = "hub".to_owned();
        let ours = at("u1", "here");
        let made = |stamp: &Stamp, place: &ObjectRef| {
            let mut object = object(json!({}));
            object.reference = place.clone();
            stamp.on(place).put(&mut object.body);
            object
        };
        let named = |place| Stamp::read(&made(&ours, place)).unwrap().source.cluster_uid;
        assert_eq!(
            (named(&there), named(&here)),
            ("here".to_owned(), String::new())
        );
        let is_on = |object: &Object| {
            let there = Stamp::read(object).unwrap();
            there.same_owner(&ours.on(&object.reference))
        };
        assert!(is_on(&made(&ours, &there)) && is_on(&made(&ours, &here)));
        // Whether it is of this cluster, and whether it needs no other stamp.
        for (stamp, of_cluster, is_right) in [
            (at("u1", "here"), true, true),
            (at("u2", "here"), true, false),
            (at("u1", "other"), false, false),
            // As earlier agents put it.
            (at("u1", ""), true, false),
            (at("u2", ""), false, false),
        ] {
            assert_eq!(ours.is_policy_of(&there, &stamp), of_cluster, "{stamp:?}");
            assert_eq!(is_on(&made(&stamp, &there)), is_right, "{stamp:?}");
        }
        // An agent of another cluster writes to this one.
        assert!(!ours.is_policy_of(&here, &at("u1", "other")));
        assert!(ours.is_policy_of(&here, &at("u2", "")));
        // A folder may have no uid.
        let folder = at("u1", "");
        assert!(folder.is_policy_of(&there, &at("u2", "")));
        assert!(!folder.is_policy_of(&there, &at("u2", "other")));
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
