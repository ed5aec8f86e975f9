//! Finds the rule for a managed cluster. Pure function.

use crate::ClusterSets;
use crate::settings::{Rule, Settings};
use transom_guest::kinds::{ManagedCluster, SET_LABEL};
use transom_guest::objects::{Answer, Input, Objects};
use transom_guest::settings::patterns::all_fit;
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
    let labels = &cluster.metadata.labels;
    rules.find(|rule| all_fit(&rule.labels, labels) && all_fit(&rule.claims, &claims))
}
