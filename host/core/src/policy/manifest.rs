//! Reads a manifest of kind `Policy`. Never judges more than its shape.

use crate::failure::InvalidField;
use serde_json::Value;
use transom_api::policy::PolicySpec;

/// A policy as it is written, with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
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
    /// A field and what is wrong with it.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

impl From<InvalidField> for PolicyError {
    fn from(invalid: InvalidField) -> Self {
        Self::new(invalid.path, format!("is not {}", invalid.expected))
    }
}

/// Whether a value is a manifest of kind `Policy` of this agent, whatever its version.
pub fn is_policy(value: &Value) -> bool {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    text("kind") == "Policy" && text("apiVersion").split('/').next() == Some(transom_api::GROUP)
}

/// Reads a manifest.
///
/// # Errors
/// At the first field that is unknown, missing or of the wrong type, with its path.
pub fn parse(value: &Value) -> Result<Manifest, PolicyError> {
    let map = value.as_object().ok_or_else(|| PolicyError::new(".", "a policy is a mapping"))?;
    if let Some(unknown) =
        map.keys().find(|key| !["apiVersion", "kind", "metadata", "spec", "status"].contains(&&***key))
    {
        return Err(PolicyError::new(unknown, "unknown field"));
    }
    if value.get("apiVersion").and_then(Value::as_str) != Some(transom_api::API_VERSION) {
        return Err(PolicyError::new("apiVersion", format!("is not {}", transom_api::API_VERSION)));
    }
    if !is_policy(value) {
        return Err(PolicyError::new("kind", "is not Policy"));
    }
    if value.pointer("/metadata/namespace").is_some_and(|namespace| !namespace.is_null()) {
        return Err(PolicyError::new("metadata.namespace", "a policy is cluster-scoped and has no namespace"));
    }
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.ok_or_else(|| PolicyError::new("metadata.name", "is not a string"))?;
    let spec = value.get("spec").ok_or_else(|| PolicyError::new("spec", "is missing"))?;
    let spec: PolicySpec = serde_path_to_error::deserialize(spec).map_err(|error| {
        let field = match error.path().to_string() {
            top if top == "." => "spec".to_owned(),
            below => format!("spec.{below}"),
        };
        PolicyError::new(field, error.inner().to_string())
    })?;
    Ok(Manifest { name: name.to_owned(), spec })
}
