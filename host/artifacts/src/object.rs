//! The bytes of a component that lies in ConfigMaps. Sends no request: the objects were read before.

use crate::FetchError;
use crate::location::MAX_BYTES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::policy::component::Part;
use transom_core::reference::ObjectRef;

/// What reading each object that holds a part of a component gave; `None` when the object does not exist.
pub type Objects = BTreeMap<ObjectRef, Result<Option<Object>, Unread>>;

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unread {
    /// Why, in one word.
    pub reason: KnownReason,
    /// What was attempted on which object, and why it failed.
    pub message: String,
}

/// Drops the values of all other keys: they may be as large as a component.
pub fn keep(object: &mut Object, keys: &BTreeSet<&str>) {
    for field in ["binaryData", "data"] {
        let values = object.body.get_mut(field).and_then(Value::as_object_mut);
        let others = values.into_iter().flatten();
        let others = others.filter(|(key, _)| !keys.contains(key.as_str()));
        others.for_each(|(_, value)| *value = Value::Null);
    }
}

/// The bytes of all parts in order. `place` is the component as the policy names it.
pub(crate) fn bytes(
    place: &dyn Display,
    parts: &[Part],
    objects: &Objects,
) -> Result<Vec<u8>, FetchError> {
    let mut all = Vec::new();
    for part in parts {
        let read = objects.get(&part.object);
        let read = read.ok_or_else(|| FetchError::NoCluster(place.to_string()))?;
        let object = read
            .as_ref()
            .map_err(|unread| FetchError::Unread(place.to_string(), unread.clone()))?;
        let absent = |what: String| FetchError::Absent(place.to_string(), what);
        let object = object
            .as_ref()
            .ok_or_else(|| absent(format!("{} does not exist", part.object)))?;
        let found = value(object, &part.key);
        let found = found.ok_or_else(|| absent(keys(object, &part.key)))?;
        all.extend(found.map_err(|()| absent(format!("{} is not valid", part.object)))?);
        if all.len() as u64 > MAX_BYTES {
            return Err(FetchError::TooLarge(place.to_string()));
        }
    }
    Ok(all)
}

/// The bytes of a key. `kubectl` puts a file into `data` if it happens to be text.
fn value(object: &Object, key: &str) -> Option<Result<Vec<u8>, ()>> {
    let of = |field: &str| object.body.get(field)?.get(key)?.as_str();
    let binary = of("binaryData").map(|text| STANDARD.decode(text).map_err(drop));
    binary.or_else(|| of("data").map(|text| Ok(text.as_bytes().to_vec())))
}

/// That a key is missing, and which ones there are.
fn keys(object: &Object, key: &str) -> String {
    let of = |field: &str| object.body.get(field).and_then(|field| field.as_object());
    let known = ["binaryData", "data"].into_iter().filter_map(of).flatten();
    let known: Vec<_> = known.take(10).map(|(key, _)| format!("`{key}`")).collect();
    let reference = &object.reference;
    match known.is_empty() {
        true => format!("{reference} has no key `{key}`, and no other key"),
        false => format!(
            "{reference} has no key `{key}`; its keys are {}",
            known.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Base, Location};
    use serde_json::json;

    fn read(name: &str, content: Value) -> (ObjectRef, Result<Option<Object>, Unread>) {
        let reference = ObjectRef::local("v1", "ConfigMap", Some("transom"), name);
        let object = Object {
            reference: reference.clone(),
            version: "1".to_owned(),
            body: content,
        };
        (reference, Ok(Some(object)))
    }

    fn fetched(component: &str, objects: &Objects) -> Result<Vec<u8>, (KnownReason, String)> {
        let location = Location::parse(component, &Base::Nowhere).unwrap();
        let fetched = location.fetch(None, objects);
        let bytes = fetched.map(|artifact| artifact.bytes.into_owned());
        bytes.map_err(|error| (error.reason(), error.to_string()))
    }

    #[test]
    fn joins_the_keys_of_a_component_in_order() {
        let first = read(
            "a",
            json!({"binaryData": {"k": "AGFzbQ=="}, "data": {"k": "x"}}),
        );
        let second = read("b", json!({"data": {"k": "-end"}}));
        let objects = Objects::from([first, second]);
        assert_eq!(
            fetched("configmap:transom/a/k+b/k", &objects).unwrap(),
            b"\0asm-end"
        );
        assert_eq!(fetched("configmap:transom/b/k", &objects).unwrap(), b"-end");
    }

    #[test]
    fn keeps_only_the_values_of_named_keys() {
        let data = json!({"binaryData": {"k": "AGFzbQ==", "large": "AAAA"}, "data": {"text": "t"}});
        let (reference, read) = read("a", data);
        let mut object = read.unwrap().unwrap();
        keep(&mut object, &BTreeSet::from(["k"]));
        let kept = json!({"binaryData": {"k": "AGFzbQ==", "large": null}, "data": {"text": null}});
        assert_eq!(object.body, kept);
        let objects = Objects::from([(reference, Ok(Some(object)))]);
        assert_eq!(
            fetched("configmap:transom/a/k", &objects).unwrap(),
            b"\0asm"
        );
        let (_, message) = fetched("configmap:transom/a/no", &objects).unwrap_err();
        assert!(message.contains("`k`, `large`, `text`"), "{message}");
    }

    #[test]
    fn names_what_is_missing() {
        let unread = Unread {
            reason: KnownReason::ReadForbidden,
            message: "failed to read ConfigMap transom/closed: forbidden".to_owned(),
        };
        let at = |name: &str| ObjectRef::local("v1", "ConfigMap", Some("transom"), name);
        let objects = Objects::from([
            read("a", json!({"binaryData": {"k": "AGFzbQ==", "broken": "?"}})),
            read("empty", json!({})),
            (at("gone"), Ok(None)),
            (at("closed"), Err(unread)),
        ]);
        for (component, reason, part) in [
            (
                "a/no",
                KnownReason::ComponentNotFound,
                "its keys are `broken`, `k`",
            ),
            (
                "a/broken",
                KnownReason::ComponentNotFound,
                "ConfigMap transom/a is not valid",
            ),
            ("empty/k", KnownReason::ComponentNotFound, "no other key"),
            (
                "gone/k",
                KnownReason::ComponentNotFound,
                "ConfigMap transom/gone does not exist",
            ),
            ("closed/k", KnownReason::ReadForbidden, "forbidden"),
            (
                "other/k",
                KnownReason::ComponentNotFound,
                "this command reads no cluster",
            ),
        ] {
            let component = format!("configmap:transom/{component}");
            let (found, message) = fetched(&component, &objects).unwrap_err();
            assert!(
                found == reason && message.contains(part),
                "{component}: {message}"
            );
            assert!(message.contains(&component), "{message}");
        }
    }

    #[test]
    fn refuses_more_bytes_than_a_component_may_have() {
        let half = STANDARD.encode(vec![0; 5 << 20]);
        let objects = Objects::from([read("a", json!({"binaryData": {"k": half}}))]);
        let (reason, _) = fetched("configmap:transom/a/k+a/k", &objects).unwrap_err();
        assert_eq!(reason, KnownReason::ComponentTooLarge);
        assert!(fetched("configmap:transom/a/k", &objects).is_ok());
    }
}
