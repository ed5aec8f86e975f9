//! A managed cluster as a taints guest sees it, and the taints that the guest wants.

use super::{Problem, Reference, pairs};
use crate::managed_cluster::DEFAULT_LEASE_SECONDS;
use crate::reference::ObjectRef;
use serde::{Deserialize, Serialize};

/// Version and kind of a managed cluster.
pub const MANAGED_CLUSTER: (&str, &str) =
    ("cluster.open-cluster-management.io/v1", "ManagedCluster");

transom_api::words! {
    /// What a taint does to placement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum TaintEffect {
        /// The cluster is not selected.
        #[default]
        NoSelect = "NoSelect",
        /// The cluster is selected only if there are too few others.
        PreferNoSelect = "PreferNoSelect",
        /// The cluster is not selected anew.
        NoSelectIfNew = "NoSelectIfNew",
    }
}

impl TaintEffect {
    /// The effect that a ManagedCluster names by this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }
}

/// Status of a condition. Absent conditions are not in the list; a malformed one is `InvalidObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// `True`.
    Yes,
    /// `False`.
    No,
    /// `Unknown`.
    #[default]
    Unknown,
}

/// An existing taint.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, empty when absent.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
    /// `timeAdded` in seconds since 1970.
    pub added_seconds: Option<i64>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClusterCondition {
    /// Its type.
    pub kind: String,
    /// Its status.
    pub status: Status,
    /// Its reason.
    pub reason: String,
    /// `lastTransitionTime` in seconds since 1970.
    pub changed_seconds: Option<i64>,
}

/// A managed cluster, with only the fields that the guest declared.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ManagedCluster {
    /// Which object.
    #[serde(with = "Reference")]
    pub reference: ObjectRef,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created_seconds: Option<i64>,
    /// Whether it carries a deletion timestamp.
    pub deleting: bool,
    /// `spec.hubAcceptsClient`.
    pub accepted: bool,
    /// `spec.leaseDurationSeconds`, 60 when absent.
    pub lease_duration_seconds: u32,
    /// `status.version.kubernetes`.
    pub kubernetes_version: Option<String>,
    /// Declared labels.
    #[serde(deserialize_with = "pairs")]
    pub labels: Vec<(String, String)>,
    /// Declared annotations.
    #[serde(deserialize_with = "pairs")]
    pub annotations: Vec<(String, String)>,
    /// Declared cluster claims.
    #[serde(deserialize_with = "pairs")]
    pub claims: Vec<(String, String)>,
    /// Declared conditions.
    pub conditions: Vec<ClusterCondition>,
    /// The taints, when declared.
    pub taints: Vec<Taint>,
}

impl Default for ManagedCluster {
    fn default() -> Self {
        Self {
            reference: ObjectRef::default(),
            uid: String::new(),
            created_seconds: None,
            deleting: false,
            accepted: false,
            lease_duration_seconds: DEFAULT_LEASE_SECONDS,
            kubernetes_version: None,
            labels: Vec::new(),
            annotations: Vec::new(),
            claims: Vec::new(),
            conditions: Vec::new(),
            taints: Vec::new(),
        }
    }
}

/// A taint that a policy wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct WantedTaint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
}

/// What a taints guest decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Exactly these taints, among the keys that the policy owns.
    Own(Vec<WantedTaint>),
    /// State `Held` with this reason: no write.
    Hold(Problem),
}
