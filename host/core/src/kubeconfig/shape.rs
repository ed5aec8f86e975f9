//! The type of each field of a kubeconfig, as clients expect it.

use super::{DocumentPlace, KubeconfigError};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use transom_api::KnownReason;

/// The type of a field. A field that is not named may hold anything.
enum Shape {
    Text,
    Flag,
    Anything,
    /// A list of these, without null.
    List(&'static Shape),
    /// A map whose keys the document chooses.
    Each(&'static Shape),
    /// A map with these fields.
    Fields(&'static [(&'static str, Shape)]),
    /// A list of maps that must have this field, and a name that no other one has; the field must not be null.
    Entries(&'static str, &'static Shape),
}

use Shape::{Anything, Each, Entries, Fields, Flag, List, Text};

const KUBECONFIG: &[(&str, Shape)] = &[
    ("clusters", Entries("cluster", &Fields(CLUSTER))),
    ("users", Entries("user", &Fields(USER))),
    ("contexts", Entries("context", &Fields(CONTEXT))),
    ("current-context", Text),
    (
        "preferences",
        Fields(&[("colors", Flag), ("extensions", EXTENSIONS)]),
    ),
    ("extensions", EXTENSIONS),
];

const CLUSTER: &[(&str, Shape)] = &[
    ("server", Text),
    ("tls-server-name", Text),
    ("insecure-skip-tls-verify", Flag),
    ("certificate-authority", Text),
    ("certificate-authority-data", Text),
    ("proxy-url", Text),
    ("disable-compression", Flag),
    ("extensions", EXTENSIONS),
];

const USER: &[(&str, Shape)] = &[
    ("client-certificate", Text),
    ("client-certificate-data", Text),
    ("client-key", Text),
    ("client-key-data", Text),
    ("token", Text),
    ("tokenFile", Text),
    ("as", Text),
    ("as-uid", Text),
    ("as-groups", List(&Text)),
    ("as-user-extra", Each(&List(&Text))),
    ("username", Text),
    ("password", Text),
    (
        "auth-provider",
        Fields(&[("name", Text), ("config", Each(&Text))]),
    ),
    ("exec", Fields(EXEC)),
    ("extensions", EXTENSIONS),
];

const EXEC: &[(&str, Shape)] = &[
    ("apiVersion", Text),
    ("command", Text),
    ("args", List(&Text)),
    ("env", List(&Fields(&[("name", Text), ("value", Text)]))),
    ("installHint", Text),
    ("interactiveMode", Text),
    ("provideClusterInfo", Flag),
];

const CONTEXT: &[(&str, Shape)] = &[
    ("cluster", Text),
    ("user", Text),
    ("namespace", Text),
    ("extensions", EXTENSIONS),
];

const EXTENSIONS: Shape = Entries("extension", &Anything);

const TWICE: &str = "a name that another entry already has";

/// Checks every known field.
///
/// # Errors
/// The first field of the wrong type.
pub(super) fn check(document: &Map<String, Value>) -> Result<(), KubeconfigError> {
    fields(document, KUBECONFIG, &DocumentPlace::ROOT)
}

/// Gives each user that has no fields, or null, an empty map of them: clients read all three alike.
pub(super) fn fill_users(document: &mut Map<String, Value>) {
    let users = document.get_mut("users").and_then(Value::as_array_mut);
    let users = users.into_iter().flatten();
    for user in users.filter_map(Value::as_object_mut) {
        let fields = user.entry("user").or_insert(Value::Null);
        if fields.is_null() {
            *fields = Value::Object(Map::new());
        }
    }
}

fn fields(
    map: &Map<String, Value>,
    known: &'static [(&'static str, Shape)],
    place: &DocumentPlace,
) -> Result<(), KubeconfigError> {
    known
        .iter()
        .try_for_each(|(name, shape)| match map.get(*name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) => fits(value, shape, &place.field(name)),
        })
}

fn fits(
    value: &Value,
    shape: &'static Shape,
    place: &DocumentPlace,
) -> Result<(), KubeconfigError> {
    match (shape, value) {
        (Anything, _) | (Text, Value::String(_)) | (Flag, Value::Bool(_)) => Ok(()),
        (List(inner), Value::Array(items)) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| fits(item, inner, &place.item(at))),
        (Each(inner), Value::Object(map)) => map
            .values()
            .filter(|item| !item.is_null())
            .try_for_each(|item| fits(item, inner, &place.field("?"))),
        (Fields(known), Value::Object(map)) => fields(map, known, place),
        (Entries(inner, shape), Value::Array(items)) => {
            let mut names = BTreeSet::new();
            items.iter().enumerate().try_for_each(|(at, item)| {
                let place = place.item(at);
                match names.insert(entry(item, inner, shape, &place)?) {
                    true => Ok(()),
                    false => Err(place
                        .field("name")
                        .error(KnownReason::DuplicateEntry, TWICE)),
                }
            })
        }
        (Text, _) => Err(place.error(KnownReason::KubeconfigInvalid, "not a string")),
        (Flag, _) => Err(place.error(KnownReason::KubeconfigInvalid, "neither true nor false")),
        (List(_) | Entries(..), _) => {
            Err(place.error(KnownReason::KubeconfigInvalid, "not a list"))
        }
        (Each(_) | Fields(_), _) => Err(place.error(KnownReason::KubeconfigInvalid, "not a map")),
    }
}

/// Checks an entry of a list; returns its name.
fn entry<'v>(
    item: &'v Value,
    inner: &'static str,
    shape: &'static Shape,
    place: &DocumentPlace,
) -> Result<&'v str, KubeconfigError> {
    let Value::Object(map) = item else {
        return Err(place.error(KnownReason::KubeconfigInvalid, "not a map"));
    };
    let name = map.get("name").unwrap_or(&Value::Null);
    fits(name, &Text, &place.field("name"))?;
    match map.get(inner) {
        None => Err(place
            .field(inner)
            .error(KnownReason::KubeconfigInvalid, "missing")),
        Some(value) => fits(value, shape, &place.field(inner)),
    }?;
    Ok(name.as_str().unwrap_or_default())
}
