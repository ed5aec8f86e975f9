//! `spec.own`: what happens to the objects that a policy created.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ownership: what happens to the objects that the policy created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnSpec {
    /// What to do with a target that exists and has no ownership labels.
    #[serde(default)]
    pub adopt: AdoptSpec,
    /// When an object that the policy created is deleted.
    #[serde(default)]
    pub prune: PruneSpec,
    /// Roles of objects that must be gone before anything is pruned. In the name of a role's object, `*` and templates
    /// have the values that they matched in the namespace of the target.
    #[serde(default)]
    pub keep_until_absent: Vec<String>,
    /// Labels of every object that the policy creates. Other labels of these objects are not changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of every object that the policy creates. Other annotations of these objects are not changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What to do with a target that exists and has no ownership labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptSpec {
    /// Adopt it if only this primary claims it and it has the wanted credential or content, or one of the listed
    /// `values` in each granted field. A target that all primaries of the policy share is adopted by one of them.
    #[default]
    SoleOwner,
    /// Do not touch it.
    Never,
}

/// When an object that the policy created is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PruneSpec {
    /// When its source was deleted or its target moved.
    #[default]
    WhenSourceDeleted,
    /// Never.
    Never,
}
