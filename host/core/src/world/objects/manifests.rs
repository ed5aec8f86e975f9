//! Texts of objects, written by the host: of kinds that the policy grants, each once, and bytes only in the data of
//! Secrets.

use super::fill::{Filler, HolePlace};
use super::holes::{self, OF_RIGHTS};
use crate::contract::objects::{FilledWithin, MAX_OBJECTS, MAX_TEXT, ObjectManifest};
use crate::document::emit;
use crate::failure::Failure;
use crate::pattern::TemplateData;
use crate::plan::desired::HoleContent as _;
use crate::policy::rbac;
use crate::policy::values::ValueRule;
use crate::projection::path;
use crate::reference::{ObjectRef, is_secret};
use crate::requirements;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use transom_api::{KnownReason, labels};

/// The text of objects, and when the first client certificate in it ends.
///
/// # Errors
/// `ContractBroken`, `InvalidTargetName`; `WriteNotGranted` for an object, and `CredentialNotGranted` for a hole that
/// is not granted; the errors of a credential.
pub(super) fn text(
    filler: &mut Filler<'_>,
    all: &[ObjectManifest],
    place: HolePlace<'_>,
) -> Result<(String, Option<i64>), Failure> {
    let name = place.name;
    if all.is_empty() || all.len() > MAX_OBJECTS {
        let count = all.len();
        return broken(format!(
            "the guest puts {count} objects into {name}; it must be 1 to {MAX_OBJECTS}"
        ));
    }
    let too_large = || {
        broken(format!(
            "the objects for {name} are more than 1 MiB of text"
        ))
    };
    let (mut seen, mut text, mut least, mut first) = (BTreeSet::new(), String::new(), 0, None);
    for manifest in all {
        let (object, content, ends) = one(filler, manifest, place)?;
        if let Some(twice) = seen.replace(object) {
            return broken(format!("the guest puts {twice} into {name} twice"));
        }
        first = first.into_iter().chain(ends).min();
        least += size(&content, 0);
        if least > MAX_TEXT {
            return too_large();
        }
        if !text.is_empty() {
            text.push_str("---\n");
        }
        let first_keys = ["apiVersion", "kind", "metadata"];
        text.push_str(&emit::to_yaml_in_order(&content, &first_keys));
        if text.len() > MAX_TEXT {
            return too_large();
        }
    }
    filler.take(text.len())?;
    Ok((text, first))
}

/// One object with its holes filled, and when the first client certificate in it ends.
fn one(
    filler: &mut Filler<'_>,
    manifest: &ObjectManifest,
    place: HolePlace<'_>,
) -> Result<(ObjectRef, Value, Option<i64>), Failure> {
    let name = place.name;
    let Ok(Value::Object(mut content)) = serde_json::from_str(&manifest.content) else {
        return broken(format!("an object for {name} is not one JSON object"));
    };
    let object = reference(&content, place)?;
    filler.templates().agent.records.spare(&object)?;
    allowed(&object, &content, place)?;
    if rbac::gives_rights(&object.api_version) {
        let of_kind = (object.api_version.clone(), object.kind.clone());
        let rules = place.rule.manifests.get(&of_kind);
        let (rules, data) = (rules.map_or(&[][..], Vec::as_slice), filler.templates());
        listed(&object, &content, (rules, &data), place)?;
    }
    let (at, mut held, mut first) = (format!("{object} in {name}"), 0, None);
    for filled in &manifest.holes {
        let of_secret = is_secret(&object.api_version, &object.kind);
        let (key, bytes, ends) = filled_with(filler, filled, (&at, of_secret), place)?;
        held += bytes.len();
        if held > MAX_TEXT {
            return broken(format!("what the guest fills {at} with is more than 1 MiB"));
        }
        first = first.into_iter().chain(ends).min();
        put(&mut content, key, &bytes, &at)?;
    }
    Ok((object, Value::Object(content), first))
}

fn broken<T>(message: String) -> Result<T, Failure> {
    Err(Failure::known(KnownReason::ContractBroken, message))
}

/// Which object a content is.
fn reference(content: &Map<String, Value>, place: HolePlace<'_>) -> Result<ObjectRef, Failure> {
    let metadata = content.get("metadata");
    let top = |field: &str| content.get(field).and_then(Value::as_str);
    let below = |field: &str| metadata.and_then(|metadata| metadata.get(field)?.as_str());
    let (Some(api_version), Some(kind), Some(name)) =
        (top("apiVersion"), top("kind"), below("name"))
    else {
        return broken(format!(
            "an object for {} lacks `apiVersion`, `kind` or `metadata.name`",
            place.name
        ));
    };
    let of_kind = (api_version.to_owned(), kind.to_owned());
    if !place.rule.manifests.contains_key(&of_kind) {
        let kinds = place.rule.manifests.keys();
        let kinds: Vec<String> = kinds
            .map(|(version, kind)| format!("{kind} of {version}"))
            .collect();
        // The guest's texts may be long.
        let shown: String = format!("{kind} of {api_version}")
            .chars()
            .take(160)
            .collect();
        let message = format!(
            "the policy does not grant {shown} in {}; granted: {}",
            place.name,
            kinds.join(", ")
        );
        return Err(Failure::known(KnownReason::WriteNotGranted, message));
    }
    let object = ObjectRef::local(api_version, kind, below("namespace"), name);
    requirements::possible(&object)?;
    Ok(object)
}

/// Checks that an object does not speak for the agent, or give rights, where the text is applied.
fn allowed(
    object: &ObjectRef,
    content: &Map<String, Value>,
    place: HolePlace<'_>,
) -> Result<(), Failure> {
    let maps = ["labels", "annotations"].into_iter();
    let maps = maps.filter_map(|name| content.get("metadata")?.get(name)?.as_object());
    let reserved = maps.flat_map(Map::keys).any(|key| labels::is_reserved(key));
    let of_rights = is_secret(&object.api_version, &object.kind)
        && content
            .get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| OF_RIGHTS.contains(&kind));
    let why = match (reserved, of_rights) {
        (true, _) => "has a label or an annotation that is reserved for the agent",
        (false, true) => "has a type that gives rights",
        (false, false) => return Ok(()),
    };
    let message = format!("{object} in {} {why}", place.name);
    Err(Failure::known(KnownReason::WriteNotGranted, message))
}

/// Checks that an object that gives rights gives those that the policy lists, and no others.
fn listed(
    object: &ObjectRef,
    content: &Map<String, Value>,
    (rules, data): (&[ValueRule], &TemplateData<'_>),
    place: HolePlace<'_>,
) -> Result<(), Failure> {
    let name = place.name;
    let is_of_rule = |key: &str| rules.iter().any(|rule| rule.path.keys() == Some(vec![key]));
    let mut keys = content.keys().map(String::as_str);
    let beyond =
        keys.find(|key| !["apiVersion", "kind", "metadata"].contains(key) && !is_of_rule(key));
    let labels = content
        .get("metadata")
        .and_then(|metadata| metadata.get("labels"));
    let labels = labels
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys);
    // By any label a ClusterRole may be selected, and its rules added to another one.
    let adding = labels
        .map(String::as_str)
        .find(|key| object.kind == "ClusterRole" || rbac::labels::add_rights(key));
    if let Some(key) = beyond.or(adding) {
        // The guest's text may be long.
        let key: String = key.chars().take(80).collect();
        let message = format!(
            "{object} in {name} has `{key}`: it would give rights that the policy does not list"
        );
        return Err(Failure::known(KnownReason::WriteNotGranted, message));
    }
    if object.namespace.is_none() && rbac::is_namespaced(&object.kind) {
        return broken(format!("{object} in {name} lacks `metadata.namespace`"));
    }
    let Some(rule) = rules.iter().find(|rule| !rule.admits(content, data)) else {
        return Ok(());
    };
    let (path, granted) = (&rule.path, rule.shown(data));
    let message = format!(
        "the policy does not grant the value of `{path}` of {object} in {name}; granted: {granted}"
    );
    Err(Failure::known(KnownReason::ValueNotGranted, message))
}

/// The key and the bytes of a hole, and when a certificate in it ends.
fn filled_with(
    filler: &mut Filler<'_>,
    FilledWithin { path, hole }: &FilledWithin,
    (at, of_secret): (&str, bool),
    place: HolePlace<'_>,
) -> Result<(String, Vec<u8>, Option<i64>), Failure> {
    let key = holes::key_of(path).filter(|_| of_secret);
    let Some(key) = key else {
        let path: String = path.chars().take(80).collect();
        let message =
            format!("`{path}` of {at} is not filled: it is not below the `data` of a Secret");
        return Err(Failure::known(KnownReason::CredentialNotGranted, message));
    };
    let part = filler.credential(hole, place)?;
    Ok((key, part.bytes().to_vec(), part.ends_seconds()))
}

/// Puts bytes under a key of the data, which is not there yet.
fn put(
    content: &mut Map<String, Value>,
    key: String,
    bytes: &[u8],
    at: &str,
) -> Result<(), Failure> {
    let data = content.entry("data").or_insert_with(|| json!({}));
    let Value::Object(data) = data else {
        return broken(format!("`data` of {at} is not a map"));
    };
    match data.contains_key(&key) {
        true => broken(format!(
            "`{}` of {at} is both in the content and filled",
            path::of(&["data", &key])
        )),
        false => {
            data.insert(key, STANDARD.encode(bytes).into());
            Ok(())
        }
    }
}

/// A lower bound of the bytes of a value as text, so that deep ones are refused before they are written.
fn size(value: &Value, indent: usize) -> usize {
    match value {
        Value::Object(map) => {
            let entries = map.iter();
            entries
                .map(|(key, value)| indent + key.len() + 2 + size(value, indent + 2))
                .sum()
        }
        Value::Array(items) => items
            .iter()
            .map(|item| indent + 2 + size(item, indent))
            .sum(),
        Value::String(text) => text.len(),
        _ => 1,
    }
}
