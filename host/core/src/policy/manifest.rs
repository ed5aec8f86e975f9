//! Reads a manifest of kind `FleetPolicy`; checks only its shape.

use crate::failure::InvalidField;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use transom_api::policy::PolicySpec;

/// A policy as it is written, with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyManifest {
    /// `metadata.name`.
    pub name: String,
    /// `spec`.
    pub spec: PolicySpec,
}

/// Why a manifest cannot be used: the field at fault and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {why}")]
pub struct PolicyError {
    /// Path of the field, from the top of the manifest.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

impl PolicyError {
    /// The error for a field.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            why: why.into(),
        }
    }
}

impl From<InvalidField> for PolicyError {
    fn from(invalid: InvalidField) -> Self {
        Self::new(invalid.path, format!("is not {}", invalid.expected))
    }
}

/// The other kind of documents of this agent: an example of what a policy does.
pub const CASE: &str = "Case";

/// Whether a value is a manifest of kind `FleetPolicy` of this agent, whatever its version.
pub fn is_policy(value: &Value) -> bool {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    text("kind") == transom_api::KIND && is_of_group(text("apiVersion"))
}

fn is_of_group(version: &str) -> bool {
    version.split('/').next() == Some(transom_api::GROUP)
}

/// What is wrong with a document that is no policy, and seems to be meant as one: passing it over would remove the
/// policy that it was before. Manifests of other kinds may lie beside policies.
///
/// # Errors
/// With the field that should say that it is a policy: `kind` or `apiVersion`. A text or a number, as is left of a
/// damaged manifest, is none; a list may be a patch.
pub fn misnamed(value: &Value) -> Result<(), PolicyError> {
    if matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
        return Err(PolicyError::new(".", "a manifest must be a mapping"));
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let kind = text("kind");
    let ours = text("apiVersion").is_some_and(is_of_group);
    let field = match kind {
        _ if is_policy(value) => return Ok(()),
        Some(CASE) if ours => return Ok(()),
        Some(transom_api::KIND) => "apiVersion",
        _ if ours || value.pointer("/spec/guests/decide").is_some() => "kind",
        _ => return Ok(()),
    };
    let expected = match field {
        "kind" => transom_api::KIND,
        _ => transom_api::API_VERSION,
    };
    let why = match value.get(field) {
        None => format!("is missing, expected {expected}"),
        Some(_) => format!("is not {expected}"),
    };
    Err(PolicyError::new(field, why))
}

/// Reads a manifest.
///
/// # Errors
/// At the first field that is unknown, missing or of the wrong type, with its path.
pub fn parse(value: &Value) -> Result<PolicyManifest, PolicyError> {
    let wrong = |field: &str, why: String| Err(PolicyError::new(field, why));
    let Some(map) = value.as_object() else {
        return wrong(".", "a policy must be a mapping".to_owned());
    };
    let known = ["apiVersion", "kind", "metadata", "spec"];
    let is_known = |key: &str| key == "status" || known.contains(&key);
    if let Some(unknown) = map.keys().find(|key| !is_known(key)) {
        let why = format!("unknown field{}", meant(unknown, known.into_iter()));
        return wrong(unknown, why);
    }
    if value.get("apiVersion").and_then(Value::as_str) != Some(transom_api::API_VERSION) {
        return wrong("apiVersion", format!("is not {}", transom_api::API_VERSION));
    }
    if !is_policy(value) {
        return wrong("kind", format!("is not {}", transom_api::KIND));
    }
    let namespace = value.pointer("/metadata/namespace");
    if namespace.is_some_and(|namespace| !namespace.is_null()) {
        let why = "a policy is cluster-scoped and has no namespace";
        return wrong("metadata.namespace", why.to_owned());
    }
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.ok_or_else(|| {
        let missing = value.pointer("/metadata/name").is_none();
        let why = if missing {
            "is missing"
        } else {
            "is not a string"
        };
        PolicyError::new("metadata.name", why)
    })?;
    let metadata = value.get("metadata").map(without_nulls).unwrap_or_default();
    typed::<ManifestMetadata>("metadata", metadata)?;
    let spec = value
        .get("spec")
        .ok_or_else(|| PolicyError::new("spec", "is missing"))?;
    shaped("spec", &SHAPE, spec)?;
    Ok(PolicyManifest {
        name: name.to_owned(),
        spec: typed("spec", without_nulls(spec))?,
    })
}

/// The fields that `metadata` of any object may have. Most of them only a server writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape is checked")]
struct ManifestMetadata {
    name: String,
    generate_name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    self_link: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<Map<String, Value>>>,
    managed_fields: Option<Vec<Map<String, Value>>>,
}

/// Reads a value into its type; `place` is where it stands in its file, empty at the top.
///
/// # Errors
/// The field at fault. The error may quote a value.
pub fn typed<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, PolicyError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = match (place, error.path().to_string()) {
            (place, top) if top == "." => place.to_owned(),
            ("", below) => below,
            (place, below) => format!("{place}.{below}"),
        };
        PolicyError::new(field, plain(&error.inner().to_string()))
    })
}

/// Rewrites an error of serde in the terms of a manifest.
fn plain(message: &str) -> String {
    let message = message.replace("unknown variant", "unknown value");
    let wrong_type = message.strip_prefix("invalid type: ");
    if let Some((found, expected)) = wrong_type.and_then(|rest| rest.split_once(", expected ")) {
        let expected = match expected {
            text if text.starts_with("struct ") || text == "a map" => "a mapping",
            "a sequence" => "a list",
            // An enumeration: no value of one is a mapping.
            "string or map" => "a string",
            other => other,
        };
        let found = match found {
            "null" | "unit value" => "nothing",
            "map" => "a mapping",
            "sequence" => "a list",
            other => other,
        };
        return format!("is {found}, expected {expected}");
    }
    let mut names = message.split('`').skip(1).step_by(2);
    match names.next() {
        Some(unknown) if message.starts_with("unknown ") => {
            format!("{message}{}", meant(unknown, names))
        }
        _ => message,
    }
}

/// A hint at the most similar known name, if one is similar enough.
fn meant<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    let unknown = unknown.to_lowercase();
    let steps = |name: &str| strsim::osa_distance(&unknown, &name.to_lowercase());
    // A name that is much longer is near to none. It may be as long as the file, and each letter is compared.
    let nearest = known
        .filter(|name| unknown.len() <= 2 * name.len())
        .map(|name| (steps(name), name))
        .min()
        .filter(|(steps, name)| *steps <= name.len().div_ceil(3));
    nearest.map_or_else(String::new, |(_, name)| format!("; did you mean `{name}`?"))
}

/// The schema of `spec`, as the CRD has it.
static SHAPE: LazyLock<Value> = LazyLock::new(|| {
    let place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    transom_api::crd::policy()
        .pointer(place)
        .cloned()
        .unwrap_or_default()
});

/// Checks that there is a mapping exactly where the schema wants one: serde would read a list as a mapping, field by
/// field, and the key of a mapping as a value of an enumeration.
fn shaped(field: &str, schema: &Value, value: &Value) -> Result<(), PolicyError> {
    match (schema.get("type").and_then(Value::as_str), value) {
        (Some("object"), Value::Object(map)) => map.iter().try_for_each(|(name, value)| {
            let known = schema.get("properties").and_then(|known| known.get(name));
            let field = format!("{field}.{name}");
            known.map_or(Ok(()), |schema| shaped(&field, schema, value))
        }),
        (Some("array"), Value::Array(items)) => {
            let schema = schema.get("items").unwrap_or(&Value::Null);
            let mut items = items.iter().enumerate();
            items.try_for_each(|(at, item)| shaped(&format!("{field}[{at}]"), schema, item))
        }
        (Some("object"), Value::Array(_)) => {
            Err(PolicyError::new(field, "is a list, expected a mapping"))
        }
        (Some("string"), Value::Object(_)) => {
            Err(PolicyError::new(field, "is a mapping, expected a string"))
        }
        _ => Ok(()),
    }
}

/// Drops null fields, as the API server does. Settings belong to the guest and stay as they are.
pub fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, field)| !field.is_null());
            let kept = |(name, field): (&String, &Value)| match name.as_str() {
                "settings" => (name.clone(), field.clone()),
                _ => (name.clone(), without_nulls(field)),
            };
            Value::Object(fields.map(kept).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{kubeconfig_manifest, with};
    use serde_json::json;

    #[test]
    fn a_misspelt_kind_or_version_is_no_other_kind() {
        let of = |changes: &[(&str, Value)]| {
            let manifest = with(kubeconfig_manifest(), changes);
            misnamed(&manifest).map_err(|error| error.to_string())
        };
        let kind = |kind: &str| ("/kind", json!(kind));
        let version = |version: &str| ("/apiVersion", json!(version));
        let wrong_kind = Err("`kind`: is not FleetPolicy".to_owned());
        let wrong_version = Err("`apiVersion`: is not transom.dev/v1alpha1".to_owned());
        assert_eq!(of(&[]), Ok(()));
        assert_eq!(of(&[kind("FleetPolicyy")]), wrong_kind);
        assert_eq!(of(&[kind("fleetpolicy")]), wrong_kind);
        assert_eq!(of(&[version("transm.dev/v1alpha1")]), wrong_version);
        // `spec.guests.decide` tells what it is when both are misspelt.
        assert_eq!(of(&[kind("Policy"), version("v1")]), wrong_kind);
        let mut manifest = kubeconfig_manifest();
        manifest.as_object_mut().unwrap().remove("apiVersion");
        let missing = PolicyError::new("apiVersion", "is missing, expected transom.dev/v1alpha1");
        assert_eq!(misnamed(&manifest), Err(missing));
        // What may lie beside policies.
        for other in [
            json!({"apiVersion": "transom.dev/v1alpha1", "kind": "Case"}),
            json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}),
            json!({"image": "a"}),
            json!(["a"]),
            json!(null),
        ] {
            assert_eq!(misnamed(&other), Ok(()), "{other}");
        }
        // What is left of a damaged one.
        for damaged in [json!("apiVersion"), json!(5), json!(true)] {
            let said = misnamed(&damaged).map_err(|error| error.to_string());
            assert_eq!(said, Err("`.`: a manifest must be a mapping".to_owned()));
        }
    }

    #[test]
    fn a_name_as_long_as_a_file_is_compared_with_none() {
        let known = || (0..100).map(|_| "resyncSeconds");
        assert_eq!(
            meant("resyncSecond", known()),
            "; did you mean `resyncSeconds`?"
        );
        assert_eq!(meant(&"resync".repeat(1 << 18), known()), "");
    }

    #[test]
    fn a_list_is_not_a_mapping() {
        for (pointer, field) in [
            ("/spec", "spec"),
            ("/spec/primary", "spec.primary"),
            ("/spec/grant/read/1", "spec.grant.read[1]"),
            (
                "/spec/grant/write/0/kubeconfig",
                "spec.grant.write[0].kubeconfig",
            ),
            ("/spec/own", "spec.own"),
        ] {
            let mut manifest = kubeconfig_manifest();
            *manifest.pointer_mut(pointer).unwrap() = json!([]);
            assert_eq!(parse(&manifest).unwrap_err().field, field);
        }
    }

    #[test]
    fn metadata_is_that_of_any_object() {
        let mut manifest = kubeconfig_manifest();
        // As `kubectl get -o yaml` shows it.
        manifest["metadata"] = json!({"name": "a", "uid": "u", "resourceVersion": "1", "generation": 2,
            "creationTimestamp": null, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "generateName": "a-", "selfLink": "/a", "labels": {"a": "b"}, "annotations": null, "finalizers": ["a/b"],
            "ownerReferences": [{"uid": "o"}], "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:a": {}}}]});
        assert!(parse(&manifest).is_ok(), "{:?}", parse(&manifest));
        for (field, value, error) in [
            (
                "foo",
                json!("y"),
                "`metadata.foo`: unknown field `foo`, expected one of",
            ),
            ("annotation", json!({}), "did you mean `annotations`?"),
            (
                "annotations",
                json!({"a": 1}),
                "`metadata.annotations.a`: is integer `1`, expected a string",
            ),
            (
                "labels",
                json!(["a"]),
                "`metadata.labels`: is a list, expected a mapping",
            ),
            (
                "finalizers",
                json!("a"),
                "`metadata.finalizers`: is string \"a\", expected a list",
            ),
            (
                "generation",
                json!("1"),
                "`metadata.generation`: is string \"1\", expected i64",
            ),
        ] {
            let mut manifest = kubeconfig_manifest();
            manifest["metadata"][field] = value;
            let said = parse(&manifest).unwrap_err().to_string();
            assert!(said.contains(error), "{said}");
        }
    }

    #[test]
    fn errors_use_the_field_names_of_the_manifest() {
        let (read, write) = ("/spec/grant/read/3", "/spec/grant/write");
        let (suspend, prune) = ("/spec/suspend", "/spec/own/prune");
        let unknown = "unknown value `Always`, expected `WhenSourceDeleted` or `Never`";
        for (pointer, value, why) in [
            (read, json!(null), "is nothing, expected a mapping"),
            (read, json!("x"), "is string \"x\", expected a mapping"),
            (write, json!({}), "is a mapping, expected a list"),
            (
                suspend,
                json!("yes"),
                "is string \"yes\", expected a boolean",
            ),
            (prune, json!("Always"), unknown),
            (prune, json!(1), "is integer `1`, expected a string"),
            (
                prune,
                json!({"Never": null}),
                "is a mapping, expected a string",
            ),
            (
                prune,
                json!({"Never": {}}),
                "is a mapping, expected a string",
            ),
        ] {
            let manifest = with(kubeconfig_manifest(), &[(pointer, value)]);
            assert_eq!(parse(&manifest).unwrap_err().why, why, "{pointer}");
        }
    }

    #[test]
    fn suggests_the_nearest_name_for_a_misspelt_one() {
        for (pointer, name, meant) in [
            ("/spec", "pirmary", Some("primary")),
            ("/spec", "Suspend", Some("suspend")),
            ("/spec/grant/write/0", "namespaces", Some("namespace")),
            (
                "/spec/grant/write/0/kubeconfig",
                "tlsservername",
                Some("tlsServerName"),
            ),
            ("/spec/guests/decide", "setting", Some("settings")),
            ("", "sepc", Some("spec")),
            ("/spec", "surplus", None),
            ("/spec/guests/decide", "x", None),
            ("", "x", None),
        ] {
            let mut manifest = kubeconfig_manifest();
            manifest.pointer_mut(pointer).unwrap()[name] = json!({});
            let why = parse(&manifest).unwrap_err().why;
            let wanted = meant.map(|meant| format!("; did you mean `{meant}`?"));
            assert_eq!(
                why.split_once("; did")
                    .map(|(_, rest)| format!("; did{rest}")),
                wanted,
                "{pointer}/{name}: {why}"
            );
            assert!(why.starts_with("unknown field"), "{why}");
        }
        let mut manifest = kubeconfig_manifest();
        manifest["spec"]["own"]["prune"] = json!("whensourcedeleted");
        assert!(
            parse(&manifest)
                .unwrap_err()
                .why
                .ends_with("; did you mean `WhenSourceDeleted`?")
        );
    }

    #[test]
    fn null_means_absent_except_in_settings() {
        let mut with_nulls = kubeconfig_manifest();
        with_nulls["spec"]["suspend"] = json!(null);
        with_nulls["spec"]["grant"]["read"][0]["cluster"] = json!(null);
        assert_eq!(parse(&with_nulls), parse(&kubeconfig_manifest()));
        with_nulls["spec"]["guests"]["decide"]["settings"] = json!({"a": null});
        assert_eq!(
            parse(&with_nulls)
                .unwrap()
                .spec
                .guests
                .decide
                .settings
                .get("a"),
            Some(&Value::Null)
        );
        with_nulls["spec"]["primary"]["kind"] = json!(null);
        assert_eq!(parse(&with_nulls).unwrap_err().field, "spec.primary");
    }
}
