//! The settings of the guest `cluster-access`.

use crate::objects::LABEL;
use serde::Deserialize;
use std::collections::BTreeMap;
use transom_guest::Problem;

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
    /// Refuses another name for the cluster of a namespace.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let names = self.namespace_labels.contains_key(LABEL);
        let problem =
            || Problem::in_settings("namespaceLabels", "has the label that names the cluster");
        names.then(problem).into_iter().collect()
    }
}
