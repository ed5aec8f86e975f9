//! The CRD of the kind `FleetPolicy`, generated from its types. Returns the CRD as a value; the caller applies it.

mod rules;

use crate::policy::PolicySpec;
use crate::status::PolicyStatus;
use crate::{API_VERSION, GROUP};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The CustomResourceDefinition of `FleetPolicy`, as JSON: cluster-scoped, structural, with the status as a
/// subresource.
pub fn policy() -> Value {
    let version = API_VERSION.rsplit('/').next().unwrap_or(API_VERSION);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("fleetpolicies.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": "FleetPolicy",
                "listKind": "FleetPolicyList",
                "plural": "fleetpolicies",
                "singular": "fleetpolicy",
                "shortNames": ["fpol"],
                "categories": ["transom"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

/// The schema of the whole object, with bounds and rules.
fn schema() -> Value {
    let mut schema = json!({
        "type": "object",
        "description": "A policy: its primaries, its guests, what they may read and write, and what the policy owns.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": of::<PolicySpec>(),
            "status": of::<PolicyStatus>(),
        },
    });
    rules::add(&mut schema);
    schema
}

/// The structural schema of a type.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    structural(
        settings
            .into_generator()
            .into_root_schema_for::<T>()
            .to_value(),
    )
}

/// What `kubectl get` shows: name, type, path and description of each column.
const COLUMNS: [[&str; 4]; 11] = [
    [
        "Primary",
        "string",
        ".spec.primary.kind",
        "Kind of the objects that the policy is about.",
    ],
    [
        "Ready",
        "string",
        ".status.conditions[?(@.type=='Ready')].status",
        "Whether the policy is loaded, watched and healthy.",
    ],
    [
        "Reason",
        "string",
        ".status.conditions[?(@.type=='Ready')].reason",
        "Why the policy is not ready, in one word.",
    ],
    [
        "Active",
        "string",
        ".status.revision.id",
        "Short digest of the active revision.",
    ],
    [
        "Candidate",
        "string",
        ".status.candidate.id",
        "Short digest of the newest revision, while it is not active.",
    ],
    [
        "Gate",
        "string",
        ".status.candidate.gate",
        "The gate at which the candidate stands.",
    ],
    [
        "Applied",
        "integer",
        ".status.counts.applied",
        "Primaries whose objects match the desired state.",
    ],
    [
        "Waiting",
        "integer",
        ".status.counts.waiting",
        "Primaries that need something that does not exist yet.",
    ],
    [
        "Held",
        "integer",
        ".status.counts.held",
        "Primaries that are left unchanged on purpose.",
    ],
    [
        "Failed",
        "integer",
        ".status.counts.failed",
        "Primaries whose reconcile failed.",
    ],
    [
        "Age",
        "date",
        ".metadata.creationTimestamp",
        "Time since the policy was created.",
    ],
];

fn columns() -> Value {
    let column = |[name, kind, path, about]: [&str; 4]| json!({"name": name, "type": kind, "jsonPath": path, "description": about});
    COLUMNS.into_iter().map(column).collect()
}

/// Converts a JSON schema of `schemars` to a structural schema of Kubernetes. It never loosens the schema: what it
/// cannot convert stays, and the tests find it.
fn structural(schema: Value) -> Value {
    let Value::Object(map) = schema else {
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    };
    let mut map = known(optional(map));
    if let Some(text) = map.get("description").and_then(Value::as_str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        map.insert("description".to_owned(), json!(text));
    }
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    for each in ["items", "additionalProperties"] {
        if let Some(schema) = map.remove(each) {
            map.insert(each.to_owned(), structural(schema));
        }
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let properties: Map<_, _> = properties
            .into_iter()
            .map(|(name, property)| (name, structural(property)))
            .collect();
        map.insert("properties".to_owned(), properties.into());
    }
    Value::Object(map)
}

/// Makes a nullable type optional: the API server drops nulls.
fn optional(mut map: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(kinds)) = map.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            map.insert("type".to_owned(), kind);
        }
    }
    let Some(Value::Array(choices)) = map.get("anyOf") else {
        return map;
    };
    let mut others = choices.iter().filter(|choice| choice["type"] != "null");
    if let (Some(Value::Object(only)), None) = (others.next(), others.next()) {
        let mut only = only.clone();
        map.remove("anyOf");
        only.extend(map);
        return optional(only);
    }
    map
}

/// Converts a list of described constants to one enum, and removes keywords that Kubernetes does not know.
fn known(mut map: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(choices)) = map.get("oneOf")
        && choices.iter().all(|choice| choice["const"].is_string())
    {
        let word = |choice: &Value| choice["const"].as_str().unwrap_or_default().to_owned();
        let told = choices.iter().map(|choice| {
            let about = choice["description"].as_str().unwrap_or_default();
            format!("`{}`: {about}", word(choice))
        });
        let about = map
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let about = std::iter::once(about.to_owned())
            .chain(told)
            .collect::<Vec<_>>()
            .join(" ");
        let words: Vec<_> = choices.iter().map(word).collect();
        map.remove("oneOf");
        map.insert("description".to_owned(), json!(about));
        map.insert("enum".to_owned(), json!(words));
        map.insert("type".to_owned(), json!("string"));
    }
    if map.get("format").is_some_and(|format| format == "uint32") {
        map.insert("format".to_owned(), json!("int64"));
        map.insert("maximum".to_owned(), json!(u32::MAX));
    }
    map.remove("$schema");
    map.remove("title");
    // `additionalProperties: false` is not needed: the API server drops undeclared keys.
    if !map
        .get("additionalProperties")
        .is_some_and(Value::is_object)
    {
        map.remove("additionalProperties");
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every schema in a schema, with its place.
    fn every<'a>(place: &str, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
        found.push((place.to_owned(), schema));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            every(&format!("{place}.{name}"), property, found);
        }
        if let Some(items) = schema.get("items") {
            every(&format!("{place}[]"), items, found);
        }
        let values = &schema["additionalProperties"];
        if values.get("properties").is_some() {
            every(&format!("{place}{{}}"), values, found);
        }
    }

    #[test]
    fn the_schema_is_structural() {
        let schema = schema();
        let mut found = Vec::new();
        every("", &schema, &mut found);
        for (place, schema) in &found {
            let kind = schema["type"]
                .as_str()
                .unwrap_or_else(|| panic!("{place} has no type: {schema}"));
            let expected = match kind {
                "object" => {
                    let known = schema.get("properties").is_some();
                    let each = &schema["additionalProperties"];
                    let bounded = each["type"] == "string" || each.get("maxItems").is_some();
                    let bounded = bounded || each.get("properties").is_some();
                    let entries = bounded && schema.get("maxProperties").is_some();
                    known != entries || place == ".metadata" || place.ends_with(".settings")
                }
                "array" => schema.get("items").is_some(),
                "string" | "integer" | "boolean" => true,
                _ => false,
            };
            assert!(expected, "{place}: {schema}");
            let free = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
            assert_eq!(
                free,
                place.ends_with(".settings"),
                "{place} lets unknown fields pass, or should"
            );
            for key in [
                "$ref", "anyOf", "oneOf", "allOf", "const", "nullable", "title",
            ] {
                assert!(schema.get(key).is_none(), "{place} has `{key}`");
            }
        }
        assert!(found.len() > 60, "only {} schemas", found.len());
    }

    #[test]
    fn every_field_is_described() {
        let schema = schema();
        let mut found = Vec::new();
        every("", &schema, &mut found);
        let own = [".apiVersion", ".kind", ".metadata"];
        for (place, schema) in found.iter().filter(|(place, _)| {
            !place.ends_with("[]") && !place.ends_with("{}") && !own.contains(&place.as_str())
        }) {
            let description = schema["description"].as_str().unwrap_or_default();
            assert!(
                description.ends_with('.') && !description.contains('\n'),
                "{place}: {description:?}"
            );
        }
    }
}
