//! Finds the rule for a managed cluster. Pure function.

use crate::settings::{Rule, Settings};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use transom_guest::objects::{Answer, Desired};
use transom_guest::{Primary, Problem};

/// The label that puts a ManagedCluster into a set.
pub(crate) const LABEL: &str = "cluster.open-cluster-management.io/clusterset";

/// What is read of a ManagedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    cluster_claims: Vec<Claim>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Claim {
    name: String,
    value: String,
}

/// The label by the first rule that fits; without one, and while the cluster is being deleted, it stays as it is.
pub(crate) fn reconcile(settings: &Settings, primary: &Primary) -> Result<Answer, Problem> {
    if primary.deleting {
        return Ok(Answer::default());
    }
    let Cluster { metadata, status } = primary.read()?;
    let claims = status.cluster_claims.into_iter();
    let claims = claims.map(|claim| (claim.name, claim.value)).collect();
    let mut rules = settings.rules.iter();
    let rule = rules.find(|rule| fits(rule, &metadata.labels, &claims));
    let apply = rule.map(|rule| {
        let content = json!({"metadata": {"labels": {(LABEL): rule.set}}});
        Desired::fields(&primary.reference, &content)
    });
    Ok(Answer {
        apply: apply.into_iter().collect(),
        ..Answer::default()
    })
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
