//! The settings of the guest `cluster-access`.

use crate::objects::LABEL;
use serde::Deserialize;
use std::collections::BTreeMap;
use transom_guest::Problem;
use transom_guest::kinds::{is_label_key, is_label_value};

/// The settings. By default a denial takes away the renewal of certificates as well.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Whether the agent of a denied cluster may still renew its certificate.
    pub denied_may_renew: bool,
    /// More labels of the namespaces of accepted clusters, also of those that others made.
    pub namespace_labels: BTreeMap<String, String>,
}

impl Settings {
    /// Refuses what no label can be, and another name for the cluster of a namespace.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let fits = |(key, value): (&String, &String)| {
            is_label_key(key) && (value.is_empty() || is_label_value(value))
        };
        let why = match self.namespace_labels.contains_key(LABEL) {
            true => Some("has the label that names the cluster"),
            false if self.namespace_labels.iter().all(fits) => None,
            false => Some("has a key or value that no label can have"),
        };
        let why = why.into_iter();
        why.map(|why| Problem::in_settings("namespaceLabels", why))
            .collect()
    }
}
