//! Decodes the text of an API server into objects that are small to keep.
//! An object that cannot be read becomes a fault and does not affect others; faults contain no value of it.

mod labels;

use super::store::{Item, KeptContent, ObjectFault, StoreKey, key};
pub(super) use labels::{labels, stamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use transom_api::KnownReason;
use transom_api::labels::{MANAGED_BY, MANAGER};
use transom_core::object::Object;
use transom_core::projection::{Paths, read};
use transom_core::reference::ObjectRef;
use transom_core::share::room;
use transom_core::watches::{Keep, Scope};

/// The largest object, in bytes as the API server sends it.
const OBJECT_BYTES: usize = 1_572_864;
/// The most memory that an object may take when decoded whole: a map takes a hundred times the bytes of its text.
const DECODED_BYTES: usize = 24 << 20;

/// The answer does not come from an API server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct WatchLine<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// The object of the event, or a Status.
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    /// Version and the token of the next page.
    pub(super) metadata: PageMeta,
    /// Its objects.
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

/// Version of a list and the token of the next page.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    /// Version of the list.
    #[serde(default)]
    pub(super) resource_version: String,
    /// Token of the next page, empty at the last one.
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}

/// Name, namespace and version of an object.
#[derive(Deserialize)]
pub(super) struct Identity<'a> {
    #[serde(borrow)]
    metadata: IdentityMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

impl<'a> Identity<'a> {
    /// Decodes only the metadata.
    pub(super) fn of(text: &'a str) -> Result<Self, Malformed> {
        serde_json::from_str(text).map_err(|_| Malformed)
    }

    /// Its version.
    pub(super) fn version(&self) -> Result<&str, Malformed> {
        Some(&*self.metadata.resource_version)
            .filter(|version| !version.is_empty())
            .ok_or(Malformed)
    }

    /// Its key.
    pub(super) fn key(&self) -> Result<StoreKey, Malformed> {
        let (namespace, name) = self.named()?;
        Ok(key(namespace, name))
    }

    /// Its reference, made of its namespace and name.
    fn object(
        &self,
        reference: impl FnOnce(Option<String>, String) -> ObjectRef,
    ) -> Result<ObjectRef, Malformed> {
        let (namespace, name) = self.named()?;
        Ok(reference(namespace.map(str::to_owned), name.to_owned()))
    }

    /// Its namespace and name.
    fn named(&self) -> Result<(Option<&str>, &str), Malformed> {
        let IdentityMeta {
            name, namespace, ..
        } = &self.metadata;
        match &**name {
            "" => Err(Malformed),
            name => Ok((namespace.as_deref(), name)),
        }
    }
}

/// An object that a watch delivered.
pub(super) struct DecodedObject {
    /// Its version.
    pub(super) version: Box<str>,
    /// The object; `None` if the watch does not keep it.
    pub(super) item: Option<Item>,
}

/// Decodes an object of a scope and keeps its declared fields.
pub(super) fn object(
    text: &str,
    cluster: &str,
    scope: &Scope,
    keep: &Keep,
) -> Result<DecodedObject, Malformed> {
    let reference = |namespace, name| ObjectRef {
        cluster: cluster.to_owned(),
        api_version: scope.api_version.clone(),
        kind: scope.kind.clone(),
        namespace,
        name,
    };
    if keep.names_only {
        let identity = Identity::of(text)?;
        let (version, object) = (Box::from(identity.version()?), identity.object(reference)?);
        let item = keep.admits(&object).then(|| name(&object, &version));
        return Ok(DecodedObject { version, item });
    }
    let body = match body(text, keep.decoded()) {
        Ok(body) => body,
        Err(fault) => {
            let identity = Identity::of(text)?;
            let version = Box::<str>::from(identity.version()?);
            let object = identity.object(reference)?;
            let item = keep.admits(&object).then(|| Item {
                content: KeptContent::Fault(fault.into()),
                ..name(&object, &version)
            });
            return Ok(DecodedObject { version, item });
        }
    };
    let object = named(body, reference)?;
    let version = object.version.clone().into();
    Ok(DecodedObject {
        version,
        item: keep.admits(&object.reference).then(|| kept(object, keep)),
    })
}

/// Decodes an object of which only the metadata was requested, of the kind and cluster of `like`.
pub(super) fn metadata(text: &str, like: &ObjectRef) -> Result<Object, Malformed> {
    let body = serde_json::from_str(text).map_err(|_| Malformed)?;
    named(body, |namespace, name| ObjectRef {
        namespace,
        name,
        ..like.clone()
    })
}

/// An object of which nothing but the name is kept.
fn name(object: &ObjectRef, version: &str) -> Item {
    Item {
        key: key(object.namespace.as_deref(), &object.name),
        version: version.into(),
        content: KeptContent::Name,
        ours: false,
    }
}

/// The object in the form that the cache keeps.
pub(super) fn kept(object: Object, keep: &Keep) -> Item {
    if keep.names_only {
        return name(&object.reference, &object.version);
    }
    let key = key(
        object.reference.namespace.as_deref(),
        &object.reference.name,
    );
    let ours = object.label(MANAGED_BY) == Some(MANAGER);
    let mut body = keep.project(object.body);
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    // Serializing a `Value` to memory cannot fail. If it did, [`restore`] would report the object as invalid.
    let bytes = serde_json::to_vec(&body).unwrap_or_default();
    Item {
        key,
        version: object.version.into(),
        content: KeptContent::Body(bytes.into()),
        ours,
    }
}

/// The object of which [`kept`] made these bytes.
pub(super) fn restore(
    reference: &ObjectRef,
    version: &str,
    bytes: &[u8],
) -> Result<Object, ObjectFault> {
    let mut body: Value = serde_json::from_slice(bytes).map_err(|_| unusable())?;
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    Ok(Object {
        reference: reference.clone(),
        version: version.to_owned(),
        body,
    })
}

/// The object in the answer to a GET, without `managedFields`. `Malformed` is no fault of the object: something other
/// than the API server may have answered.
pub(super) fn answer(
    text: &str,
    reference: &ObjectRef,
) -> Result<Result<Object, ObjectFault>, Malformed> {
    let identity = Identity::of(text)?;
    identity.version()?;
    if identity.metadata.name != reference.name {
        return Err(Malformed);
    }
    match body(text, None) {
        Ok(body) => named(body, |_, _| reference.clone()).map(Ok),
        Err(fault) => Ok(Err(fault)),
    }
}

fn body(text: &str, fields: Option<&Paths>) -> Result<Value, ObjectFault> {
    if text.len() > OBJECT_BYTES {
        return Err(too_large());
    }
    if fields.is_none() && room::exceeds(text.as_bytes(), DECODED_BYTES) {
        let message = format!(
            "it takes more than {} MiB after decoding",
            DECODED_BYTES >> 20
        );
        return Err(ObjectFault {
            reason: KnownReason::ObjectTooLarge,
            message,
        });
    }
    read::object(text, fields).map_err(|_| unusable())
}

/// The fault of an object that is larger than the limit.
pub(super) fn too_large() -> ObjectFault {
    ObjectFault {
        reason: KnownReason::ObjectTooLarge,
        message: format!("it is larger than the limit of {OBJECT_BYTES} bytes"),
    }
}

/// The fault of an object that cannot be parsed. A parser's error may quote the object, so it is left out.
fn unusable() -> ObjectFault {
    let message =
        "it is nested too deeply, or is not an object with a name and a resourceVersion".to_owned();
    ObjectFault {
        reason: KnownReason::InvalidObject,
        message,
    }
}

/// An object with its name and version. Sets kind and `apiVersion`, which the items of a list leave out, and which are
/// others where only metadata was requested.
fn named(
    mut body: Value,
    reference: impl FnOnce(Option<String>, String) -> ObjectRef,
) -> Result<Object, Malformed> {
    let text = |field: &str| {
        body.get("metadata")?
            .get(field)?
            .as_str()
            .map(str::to_owned)
    };
    let (namespace, name) = (text("namespace"), text("name").ok_or(Malformed)?);
    let version = text("resourceVersion").ok_or(Malformed)?;
    let reference = reference(namespace, name);
    if let Some(map) = body.as_object_mut() {
        let api_version = reference.api_version.as_str().into();
        map.insert("apiVersion".to_owned(), api_version);
        map.insert("kind".to_owned(), reference.kind.as_str().into());
    }
    Ok(Object {
        reference,
        version,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        Scope {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: None,
            name: None,
            fields: None,
            labels: None,
        }
    }

    fn read(text: &str, keep: &Keep) -> Result<DecodedObject, Malformed> {
        object(text, "local", &scope(), keep)
    }

    #[test]
    fn decodes_an_object_with_kind_and_version() {
        let text = json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "managedFields": [1],
            "labels": {"app.kubernetes.io/managed-by": "transom"}}, "data": {"k": "djE="}})
        .to_string();
        let item = read(&text, &Keep::default()).unwrap().item.unwrap();
        assert!(item.ours);
        let KeptContent::Body(bytes) = &item.content else {
            panic!("{item:?}")
        };
        assert!(!String::from_utf8_lossy(bytes).contains("resourceVersion"));
        let reference = ObjectRef::local("v1", "Secret", Some("n"), "a");
        let object = restore(&reference, &item.version, bytes).unwrap();
        let labels = json!({"app.kubernetes.io/managed-by": "transom"});
        assert_eq!(
            object.body,
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "djE="}, "metadata":
                {"name": "a", "namespace": "n", "resourceVersion": "7", "labels": labels}})
        );
        assert_eq!(answer(&text, &reference), Ok(Ok(object)));
        assert_eq!(answer("<html>canary</html>", &reference), Err(Malformed));
        assert_eq!(
            answer(
                &text,
                &ObjectRef {
                    name: "b".to_owned(),
                    ..reference
                }
            ),
            Err(Malformed)
        );
    }

    #[test]
    fn wanted_labels_are_found_and_no_others() {
        let text = r#"{"labels": {"a": "elsewhere"}, "metadata": {"a": {}, "labels": {"a": "b", "q\"": "c\\d", "e": "", "x": "y"}, "name": "n"}, "spec": {"a": 1}}"#;
        let there = labels(text.as_bytes(), |key| key != "x");
        let get = |key| there.get(key);
        assert_eq!((get("a"), get("e")), (Some("b"), Some("")));
        assert_eq!((get("q\""), get("x"), get("n")), (Some("c\\d"), None, None));
        for without in [
            r#"{"metadata": {}}"#,
            r#"{"metadata": {"labels": null}}"#,
            "{}",
        ] {
            let there = labels(without.as_bytes(), |_| true);
            assert_eq!(there.get("a"), None, "{without}");
        }
    }

    #[test]
    fn a_digest_shows_a_change_of_fields_that_are_not_kept() {
        let keep = Keep {
            fields: Some(Paths::default()),
            digest: true,
            ..Keep::default()
        };
        let content = |data: &str, version: u32| {
            let text = format!(
                r#"{{"metadata": {{"name": "a", "resourceVersion": "{version}"}}, "data": {{"k": "{data}"}}}}"#
            );
            let KeptContent::Body(bytes) = read(&text, &keep).unwrap().item.unwrap().content else {
                panic!("a fault")
            };
            bytes
        };
        let first = content("canary", 7);
        assert_eq!(content("canary", 8), first);
        assert_ne!(content("other", 9), first);
        assert!(!String::from_utf8_lossy(&first).contains("canary"));
    }

    #[test]
    fn an_unselected_object_still_has_a_version() {
        let keep = Keep {
            names: ["b*"].into(),
            ..Keep::default()
        };
        let read = read(
            r#"{"metadata": {"name": "a", "resourceVersion": "7"}}"#,
            &keep,
        )
        .unwrap();
        assert!(read.item.is_none() && &*read.version == "7");
    }

    #[test]
    fn names_an_unusable_object_and_shows_no_content() {
        let deep = format!("{}\"canary\"{}", "[".repeat(200), "]".repeat(200));
        let text =
            format!(r#"{{"metadata": {{"name": "a", "resourceVersion": "7"}}, "spec": {deep}}}"#);
        let item = read(&text, &Keep::default()).unwrap().item.unwrap();
        let KeptContent::Fault(fault) = &item.content else {
            panic!("{item:?}")
        };
        assert_eq!(
            (fault.reason, &*item.key),
            (KnownReason::InvalidObject, "/a")
        );
        assert!(!fault.message.contains("canary"));
        let others = Keep {
            names: ["b*"].into(),
            ..Keep::default()
        };
        assert!(read(&text, &others).unwrap().item.is_none());

        let large = "x".repeat(OBJECT_BYTES);
        let text = format!(
            r#"{{"metadata": {{"name": "a", "resourceVersion": "7"}}, "data": "{large}"}}"#
        );
        let item = read(&text, &Keep::default()).unwrap().item.unwrap();
        assert!(
            matches!(&item.content, KeptContent::Fault(fault) if fault.reason == KnownReason::ObjectTooLarge)
        );
    }

    #[test]
    fn what_decodes_too_large_is_refused_unless_projected_away() {
        let maps = vec![json!({"canary": {}}); 30_000];
        let text =
            json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": maps}).to_string();
        let item = read(&text, &Keep::default()).unwrap().item.unwrap();
        let KeptContent::Fault(fault) = &item.content else {
            panic!("{:?}", item.key)
        };
        assert!(
            fault.reason == KnownReason::ObjectTooLarge && fault.message.contains("after decoding"),
            "{fault:?}"
        );
        let reference = ObjectRef::local("v1", "Secret", None, "a");
        assert!(
            matches!(answer(&text, &reference), Ok(Err(fault)) if fault.reason == KnownReason::ObjectTooLarge)
        );
        let keep = Keep {
            fields: Some(Paths::parse(&["status"]).unwrap()),
            ..Keep::default()
        };
        let item = read(&text, &keep).unwrap().item.unwrap();
        assert!(matches!(&item.content, KeptContent::Body(bytes) if bytes.len() < 100));
    }

    #[test]
    fn what_is_not_an_object_is_malformed() {
        for text in [
            "{}",
            "[]",
            r#"{"metadata": {"name": "a"}}"#,
            r#"{"metadata": {"resourceVersion": "1"}}"#,
        ] {
            assert!(read(text, &Keep::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bookmark_has_little_more_than_a_version() {
        let bookmark = r#"{"kind": "Secret", "metadata": {"resourceVersion": "9", "creationTimestamp": null}}"#;
        assert_eq!(Identity::of(bookmark).unwrap().version(), Ok("9"));
        let line = r#"{"type":"ADDED","object":{"metadata":{}}}"#;
        assert_eq!(
            serde_json::from_str::<WatchLine<'_>>(line).unwrap().kind,
            "ADDED"
        );
    }

    #[test]
    fn where_only_metadata_was_requested_it_is_an_object_of_the_kind() {
        let text = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "labels": {"x": "y"}}})
        .to_string();
        let keep = |names_only| Keep {
            fields: Some(Paths::default()),
            names_only,
            ..Keep::default()
        };
        let KeptContent::Body(bytes) = read(&text, &keep(false)).unwrap().item.unwrap().content
        else {
            panic!()
        };
        let reference = ObjectRef::local("v1", "Secret", Some("n"), "a");
        let body = restore(&reference, "7", &bytes).unwrap().body;
        assert_eq!(
            (&body["apiVersion"], &body["kind"]),
            (&json!("v1"), &json!("Secret"))
        );
        let named = read(&text, &keep(true)).unwrap().item.unwrap();
        assert_eq!(
            (&*named.key, &*named.version, named.content),
            ("n/a", "7", KeptContent::Name)
        );
        assert!(read("{}", &keep(true)).is_err());
    }
}
