//! Finds the rule for a managed cluster. Pure function.

use crate::ClusterSets;
use crate::settings::{Rule, Settings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use transom_guest::kinds::{ManagedCluster, SET_LABEL};
use transom_guest::objects::{Answer, Desired, Input, Objects};
use transom_guest::{Context, Failure, Primary};

impl Objects for ClusterSets {
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        _: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let content = label(&context.settings, cluster).filter(|_| !primary.deleting);
        let apply = content.map(|content| Desired::fields(&primary.reference, &content));
        Ok(Answer {
            apply: apply.into_iter().collect(),
            ..Answer::default()
        })
    }
}

/// The label by the first rule that fits; without one it stays as it is.
fn label(settings: &Settings, cluster: ManagedCluster) -> Option<Value> {
    let claims = cluster.status.cluster_claims.into_iter();
    let claims = claims.map(|claim| (claim.name, claim.value)).collect();
    let mut rules = settings.rules.iter();
    let rule = rules.find(|rule| fits(rule, &cluster.metadata.labels, &claims))?;
    Some(json!({"metadata": {"labels": {(SET_LABEL): rule.set}}}))
}

/// Whether a cluster has every label and claim that a rule names, with one of the values; `*` is any value.
fn fits(rule: &Rule, labels: &BTreeMap<String, String>, claims: &BTreeMap<String, String>) -> bool {
    let has = |wanted: &BTreeMap<String, Vec<String>>, there: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, values)| {
            let value = there.get(key);
            value.is_some_and(|value| values.iter().any(|one| one == "*" || one == value))
        })
    };
    has(&rule.labels, labels) && has(&rule.claims, claims)
}
