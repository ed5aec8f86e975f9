//! What a guest reads of managed clusters and of sets of them.

use super::selector::{LabelSelector, is_label_value};
use super::{Metadata, ObservedCondition};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The label of a ManagedCluster with the name of its set.
pub const SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";

/// What a guest reads of a ManagedCluster; what it does not declare is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ManagedCluster {
    /// Labels and annotations.
    pub metadata: Metadata,
    /// What is wanted of it.
    pub spec: ManagedClusterSpec,
    /// What is known of it.
    pub status: ManagedClusterStatus,
}

/// What is wanted of a ManagedCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedClusterSpec {
    /// Whether it is accepted.
    pub hub_accepts_client: Option<bool>,
    /// How often its agent beats.
    pub lease_duration_seconds: Option<i64>,
}

/// What is known of a ManagedCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    /// Its conditions.
    pub conditions: Vec<ObservedCondition>,
    /// What the cluster says about itself.
    pub cluster_claims: Vec<Claim>,
}

/// What a cluster says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// About what.
    pub name: String,
    /// What it says.
    pub value: String,
}

impl ManagedCluster {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&ObservedCondition> {
        ObservedCondition::find(&self.status.conditions, kind)
    }

    /// Whether the hub accepts it.
    pub fn is_accepted(&self) -> bool {
        self.spec.hub_accepts_client == Some(true)
    }
}

/// What a guest reads of a ManagedClusterSet; what it does not declare is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterSet {
    /// Labels and annotations.
    pub metadata: Metadata,
    /// What is wanted of it.
    pub spec: ClusterSetSpec,
}

/// What is wanted of a ManagedClusterSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSetSpec {
    /// Which clusters belong to it.
    pub cluster_selector: ClusterSelector,
    /// Namespaces that every cluster of the set has.
    pub managed_namespaces: Vec<ManagedNamespace>,
}

/// A namespace that every cluster of a set has.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct ManagedNamespace {
    /// Its name.
    pub name: String,
}

/// Which clusters belong to a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSelector {
    /// `ExclusiveClusterSetLabel` (when empty) or `LabelSelector`.
    pub selector_type: String,
    /// For `LabelSelector`: which labels they have.
    pub label_selector: Option<LabelSelector>,
}

/// Which clusters belong to a set, by the kind of its selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The kind of the selector is not known.
    Unknown,
    /// None.
    Nobody,
    /// Those with such labels.
    Labelled(LabelSelector),
}

impl ClusterSet {
    /// Which clusters belong to the set of this name.
    pub fn members(&self, name: &str) -> Members {
        let selector = &self.spec.cluster_selector;
        match selector.selector_type.as_str() {
            // No label can have such a name as its value.
            "" | "ExclusiveClusterSetLabel" if !is_label_value(name) => Members::Nobody,
            "" | "ExclusiveClusterSetLabel" => Members::Labelled(LabelSelector {
                match_labels: BTreeMap::from([(SET_LABEL.to_owned(), name.to_owned())]),
                match_expressions: Vec::new(),
            }),
            "LabelSelector" => match &selector.label_selector {
                Some(labels) => Members::Labelled(labels.clone()),
                None => Members::Nobody,
            },
            _ => Members::Unknown,
        }
    }
}
