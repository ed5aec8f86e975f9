//! The settings of the guest `cluster-sets`: rules, of which the first that fits decides.

use serde::Deserialize;
use std::collections::BTreeMap;
use transom_guest::Problem;
use transom_guest::kinds::{SET_LABEL, is_label_value};
use transom_guest::settings::patterns::fault_of_keys;

/// The rules. Without one, no cluster is changed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// In order: the first one that fits a cluster decides.
    pub rules: Vec<Rule>,
}

/// Which clusters belong to a set. A rule without labels and claims fits every cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// The set; `None` puts the clusters into no set.
    pub set: Option<String>,
    /// Labels that a cluster must have, each with one of these values; `*` stands for any text.
    pub labels: BTreeMap<String, Vec<String>>,
    /// Cluster claims that it must have, likewise.
    pub claims: BTreeMap<String, Vec<String>>,
}

impl Settings {
    /// Refuses sets that are no value of a label, keys without a value, patterns with several stars, and a rule about
    /// the label that it sets.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let field = |name: &str| ["rules[", &index.to_string(), "].", name].concat();
            if !rule.set.as_deref().is_none_or(is_label_value) {
                let why = "not a name of 1 to 63 letters, digits, dashes, dots and underscores";
                problems.push(Problem::in_settings(&field("set"), why));
            }
            for (name, wanted) in [("labels", &rule.labels), ("claims", &rule.claims)] {
                let fault = fault_of_keys(wanted);
                problems.extend(fault.map(|why| Problem::in_settings(&field(name), why)));
            }
            if rule.labels.contains_key(SET_LABEL) {
                let why = "depends on the label that the rule sets";
                problems.push(Problem::in_settings(&field("labels"), why));
            }
        }
        problems
    }
}
