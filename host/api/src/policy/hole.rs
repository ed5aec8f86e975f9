//! What a field of a Secret may be filled with. The shape only.

use super::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a field of a Secret may be filled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HoleGrantSpec {
    /// Roles of Secrets: their bytes, as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<String>,
    /// Roles of Secrets: a kubeconfig that is made of one of theirs. `kubeconfig` of the write grant says where its
    /// credential may go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubeconfig: Vec<String>,
    /// The kinds of objects in a YAML text. With them the field gets such a text, and bytes and kubeconfigs go into the
    /// data of Secrets in that text. For kinds that give rights, list every right; a FleetPolicy cannot be granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<ManifestKind>,
}

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManifestKind {
    /// Group and version.
    #[serde(default = "v1")]
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// For kinds that give rights, and only for them: each `metadata.name`, each `metadata.namespace` of a kind that
    /// has one, each rule of a role under `rules`, each `roleRef` and each of the `subjects` of a binding. Names,
    /// namespaces and subjects may have templates. Each list of a rule has at most 64 texts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Vec<Value>>,
}
