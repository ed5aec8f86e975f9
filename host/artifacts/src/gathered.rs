//! What requests gave for components that lie in a cluster or a registry, and the bytes of one in ConfigMaps. Sends no
//! request itself.

use crate::location::MAX_BYTES;
use crate::signature::Evidence;
use crate::{FetchError, Location};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::policy::component::{ComponentPart, Image};
use transom_core::reference::ObjectRef;
use transom_core::watches;

/// How many keys a message lists.
const SHOWN: usize = 10;

/// What requests gave for components that lie in a cluster or a registry.
#[derive(Clone, Debug, Default)]
pub struct GatheredComponents {
    /// What reading each object that holds a part of a component gave; `None` when the object does not exist.
    pub objects: BTreeMap<ObjectRef, Result<Option<Contents>, Unread>>,
    /// What pulling each artifact gave.
    pub images: BTreeMap<Image, Result<Pulled, Unread>>,
    /// Components that need no request, because an earlier load kept them.
    pub kept: BTreeMap<Location, HeldComponent>,
}

/// A component from a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The component.
    pub bytes: Vec<u8>,
    /// `sha256:<hex>` of the manifest that names it.
    pub manifest: String,
    /// What lies beside it for verifying it, if that was asked for.
    pub evidence: Option<Evidence>,
}

/// A component that an earlier load kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldComponent {
    /// The component.
    pub bytes: Vec<u8>,
    /// `sha256:<hex>` of the manifest by which it was pulled from a registry, where that is known.
    pub manifest: Option<String>,
    /// What was kept for verifying it.
    pub evidence: Option<Evidence>,
}

impl GatheredComponents {
    /// Whether something could not be read, so that reading it again may help.
    pub fn is_incomplete(&self) -> bool {
        self.objects.values().any(Result::is_err) || self.images.values().any(Result::is_err)
    }

    /// Whether a tag was resolved: it may point elsewhere soon.
    pub fn has_tags(&self) -> bool {
        self.images.keys().any(|image| image.digest.is_none())
    }

    /// How many bytes of components it holds.
    pub fn bytes(&self) -> usize {
        let contents = self
            .objects
            .values()
            .filter_map(|one| one.as_ref().ok()?.as_ref());
        let values = contents.flat_map(|one| one.values.values());
        values.map(|value| value.as_ref().map_or(0, Vec::len)).sum()
    }
}

/// What an object holds of components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The digest of the whole content, by which a change is recognized.
    pub version: String,
    /// The bytes of each wanted key that exists.
    values: BTreeMap<String, Result<Vec<u8>, Unusable>>,
    /// The first keys of the object, for messages.
    keys: Vec<String>,
}

/// Why the value of a key cannot be a part of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    NotText,
    NotBase64,
    TooLarge,
}

impl Contents {
    /// The values of the wanted keys, as long as they are no more than `most` bytes together.
    pub fn of(object: &Object, wanted: &BTreeSet<&str>, most: u64) -> Self {
        let fields = ["binaryData", "data"];
        let of = |field: &&str| object.body.get(*field).and_then(Value::as_object);
        let keys = fields
            .iter()
            .filter_map(of)
            .flatten()
            .map(|(key, _)| key.clone());
        let mut left = most;
        let values = wanted.iter().filter_map(|key| {
            let value = value(object, key, left)?;
            left -= value.as_ref().map_or(0, Vec::len) as u64;
            Some(((*key).to_owned(), value))
        });
        Self {
            version: watches::content(object),
            values: values.collect(),
            keys: keys.take(SHOWN).collect(),
        }
    }

    /// That a key is missing, and which ones there are.
    fn without(&self, reference: &ObjectRef, key: &str) -> String {
        let known: Vec<_> = self.keys.iter().map(|key| format!("`{key}`")).collect();
        match known.is_empty() {
            true => format!("{reference} has no key `{key}`, and no other key"),
            false => format!(
                "{reference} has no key `{key}`; its keys are {}",
                known.join(", ")
            ),
        }
    }
}

/// The bytes of a key. `kubectl` puts a file into `data` if it happens to be text.
fn value(object: &Object, key: &str, most: u64) -> Option<Result<Vec<u8>, Unusable>> {
    let of = |field: &str| object.body.get(field)?.get(key);
    let fits = |bytes: Vec<u8>| match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(Unusable::TooLarge),
    };
    let decoded = |text: &str| match text.len() as u64 / 4 * 3 > most + 2 {
        true => Err(Unusable::TooLarge),
        false => STANDARD.decode(text).map_err(|_| Unusable::NotBase64),
    };
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(Unusable::NotText);
    let binary = of("binaryData").map(|value| decoded(&text(value)?).and_then(fits));
    binary.or_else(|| of("data").map(|value| fits(text(value)?.into_bytes())))
}

/// Why an object or an artifact cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unread {
    /// Why, in one word.
    pub reason: KnownReason,
    /// What was attempted on what, and why it failed.
    pub message: String,
    /// Whether its registry failed as a whole, so that a request for another artifact there would fail, too.
    pub silent: bool,
}

impl Unread {
    /// What one object or one artifact gave: it says nothing of others at the same place.
    pub fn new(reason: KnownReason, message: String) -> Self {
        Self {
            reason,
            message,
            silent: false,
        }
    }

    /// The failure of a whole registry.
    pub fn silent(reason: KnownReason, message: String) -> Self {
        Self {
            silent: true,
            ..Self::new(reason, message)
        }
    }
}

/// The bytes of all parts in order. `place` is the component as the policy names it.
pub(crate) fn bytes(
    place: &dyn Display,
    parts: &[ComponentPart],
    gathered: &GatheredComponents,
) -> Result<Vec<u8>, FetchError> {
    let mut all = Vec::new();
    for ComponentPart { object, key } in parts {
        let read = gathered.objects.get(object);
        let read = read.ok_or_else(|| FetchError::NoCluster(place.to_string()))?;
        let contents = read
            .as_ref()
            .map_err(|unread| FetchError::Unread(place.to_string(), unread.clone()))?;
        let absent = |what: String| FetchError::Absent(place.to_string(), what);
        let contents = contents
            .as_ref()
            .ok_or_else(|| absent(format!("{object} does not exist")))?;
        match contents.values.get(key) {
            Some(Ok(bytes)) => all.extend(bytes),
            Some(Err(Unusable::NotText)) => {
                return Err(absent(format!("key `{key}` of {object} is not a string")));
            }
            Some(Err(Unusable::NotBase64)) => {
                return Err(absent(format!(
                    "key `{key}` of {object} is not valid base64"
                )));
            }
            Some(Err(Unusable::TooLarge)) => return Err(FetchError::TooLarge(place.to_string())),
            None => return Err(absent(contents.without(object, key))),
        }
        if all.len() as u64 > MAX_BYTES {
            return Err(FetchError::TooLarge(place.to_string()));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Base, Location};
    use serde_json::json;

    /// A ConfigMap with everything that the components of a test name.
    fn read(name: &str, content: Value) -> (ObjectRef, Result<Option<Contents>, Unread>) {
        let reference = ObjectRef::local("v1", "ConfigMap", Some("transom"), name);
        let object = Object {
            reference: reference.clone(),
            version: "1".to_owned(),
            body: content,
        };
        let wanted = BTreeSet::from(["k", "broken"]);
        let contents = Contents::of(&object, &wanted, MAX_BYTES);
        (reference, Ok(Some(contents)))
    }

    fn fetched<const N: usize>(
        component: &str,
        objects: [(ObjectRef, Result<Option<Contents>, Unread>); N],
    ) -> Result<Vec<u8>, (KnownReason, String)> {
        let location = Location::parse(component, &Base::Nowhere).unwrap();
        let gathered = GatheredComponents {
            objects: objects.into(),
            ..GatheredComponents::default()
        };
        let fetched = location.fetch(None, &gathered);
        let bytes = fetched.map(|artifact| artifact.bytes.into_owned());
        bytes.map_err(|error| (error.reason(), error.to_string()))
    }

    #[test]
    fn joins_the_keys_of_a_component_in_order() {
        let objects = || {
            let data = json!({"binaryData": {"k": "AGFzbQ=="}, "data": {"k": "x"}});
            [read("a", data), read("b", json!({"data": {"k": "-end"}}))]
        };
        assert_eq!(
            fetched("configmap:transom/a/k+b/k", objects()).unwrap(),
            b"\0asm-end"
        );
        assert_eq!(
            fetched("configmap:transom/b/k", objects()).unwrap(),
            b"-end"
        );
    }

    #[test]
    fn keeps_only_the_values_of_wanted_keys() {
        let others = (0..20).map(|number| (format!("l{number:02}"), json!("AAAA")));
        let others: serde_json::Map<String, Value> = others.collect();
        let objects = || {
            [read(
                "a",
                json!({"binaryData": others, "data": {"k": "text"}}),
            )]
        };
        let [(_, Ok(Some(contents)))] = objects() else {
            panic!("it was read");
        };
        assert_eq!((contents.values.len(), contents.keys.len()), (1, SHOWN));
        assert_eq!(
            fetched("configmap:transom/a/k", objects()).unwrap(),
            b"text"
        );
        let (_, message) = fetched("configmap:transom/a/broken", objects()).unwrap_err();
        assert!(
            message.contains("`l00`, `l01`") && !message.contains("AAAA"),
            "{message}"
        );
    }

    #[test]
    fn names_what_is_missing() {
        let unread = Unread::new(
            KnownReason::ReadForbidden,
            "failed to read ConfigMap transom/closed: forbidden".to_owned(),
        );
        let at = |name: &str| ObjectRef::local("v1", "ConfigMap", Some("transom"), name);
        for (component, reason, part) in [
            (
                "a/no",
                KnownReason::ComponentNotFound,
                "its keys are `broken`, `k`",
            ),
            (
                "a/broken",
                KnownReason::ComponentNotFound,
                "key `broken` of ConfigMap transom/a is not valid base64",
            ),
            (
                "number/k",
                KnownReason::ComponentNotFound,
                "key `k` of ConfigMap transom/number is not a string",
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
                "this command reads from no cluster",
            ),
        ] {
            let objects = [
                read("a", json!({"binaryData": {"k": "AGFzbQ==", "broken": "?"}})),
                read("number", json!({"binaryData": {"k": 5}})),
                read("empty", json!({})),
                (at("gone"), Ok(None)),
                (at("closed"), Err(unread.clone())),
            ];
            let component = format!("configmap:transom/{component}");
            let (found, message) = fetched(&component, objects).unwrap_err();
            assert!(
                found == reason && message.contains(part),
                "{component}: {message}"
            );
            assert!(message.contains(&component), "{message}");
        }
    }

    #[test]
    fn refuses_more_bytes_than_a_component_may_have() {
        let half = || {
            read(
                "a",
                json!({"binaryData": {"k": STANDARD.encode(vec![0; 5 << 20])}}),
            )
        };
        let (reason, _) = fetched("configmap:transom/a/k+a/k", [half()]).unwrap_err();
        assert_eq!(reason, KnownReason::ComponentTooLarge);
        assert!(fetched("configmap:transom/a/k", [half()]).is_ok());
        let whole = read("a", json!({"data": {"k": "x".repeat((8 << 20) + 1)}}));
        let (reason, _) = fetched("configmap:transom/a/k", [whole]).unwrap_err();
        assert_eq!(reason, KnownReason::ComponentTooLarge);
    }
}
