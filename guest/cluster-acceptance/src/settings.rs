//! The settings of the guest `cluster-acceptance`: rules, of which one must fit for a cluster to be accepted.

use serde::Deserialize;
use std::collections::BTreeMap;
use transom_guest::Problem;
use transom_guest::settings::patterns::{fault, fault_of_keys};

/// The rules. Without one, no cluster is accepted.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A cluster is accepted if one of them fits.
    pub rules: Vec<Rule>,
}

/// Which clusters are accepted: those that fit everything that the rule names. In every text, `*` stands for any text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Rule {
    /// Names of ManagedClusters.
    pub names: Vec<String>,
    /// Values of the annotation `open-cluster-management/created-via`.
    pub created_via: Vec<String>,
    /// Labels that a cluster must have, each with one of these values.
    pub labels: BTreeMap<String, Vec<String>>,
}

impl Settings {
    /// Refuses rules without a condition, labels without a value, and patterns with several stars.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let mut refuse = |name: &str, why: &str| {
                let field = ["rules[", &index.to_string(), "]", name].concat();
                problems.push(Problem::in_settings(&field, why));
            };
            if rule.names.is_empty() && rule.created_via.is_empty() && rule.labels.is_empty() {
                refuse(
                    "",
                    "has no condition; `names: [\"*\"]` accepts every cluster",
                );
            }
            let faults = [
                (".names", fault(&rule.names)),
                (".createdVia", fault(&rule.created_via)),
                (".labels", fault_of_keys(&rule.labels)),
            ];
            for (name, fault) in faults {
                if let Some(why) = fault {
                    refuse(name, why);
                }
            }
        }
        problems
    }
}
