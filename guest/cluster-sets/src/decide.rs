//! Finds the rule for a managed cluster. Pure function.

use crate::ClusterSets;
use crate::settings::{Rule, Settings};
use std::collections::BTreeMap;
use transom_guest::kinds::{ManagedCluster, SET_LABEL};
use transom_guest::objects::{Answer, Input, Objects};
use transom_guest::{Context, Failure, Primary, object};

impl Objects for ClusterSets {
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        _: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let rule = rule(&context.settings, cluster).filter(|_| !primary.deleting);
        let labelled = |Rule { set, .. }: &Rule| {
            object!(&primary.reference, {"metadata": {"labels": {(SET_LABEL): set}}}).fields()
        };
        Ok(rule.map(labelled).into_iter().collect())
    }
}

/// The first rule that fits; without one the label stays as it is.
fn rule(settings: &Settings, cluster: ManagedCluster) -> Option<&Rule> {
    let claims = cluster.status.cluster_claims.into_iter();
    let claims = claims.map(|claim| (claim.name, claim.value)).collect();
    let mut rules = settings.rules.iter();
    rules.find(|rule| fits(rule, &cluster.metadata.labels, &claims))
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
