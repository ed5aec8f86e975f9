//! Decides whether a managed cluster is accepted. Pure function.

use crate::ClusterAcceptance;
use crate::settings::{Rule, Settings};
use transom_guest::kinds::{CLUSTER_ROLE, ManagedCluster, Metadata};
use transom_guest::objects::{Answer, Input, Need, Objects, Requirement, Value, found};
use transom_guest::settings::patterns::{all_fit, fits};
use transom_guest::time::format_rfc3339;
use transom_guest::{Context, Failure, Primary, make};

/// The annotation that an automatic acceptance leaves, as Open Cluster Management's own: whoever finds it, with any
/// value, does not accept the cluster again.
const ACCEPTED_ON: &str = "open-cluster-management.io/automatically-accepted-on";
/// The condition that tells that somebody decided about the cluster.
const DECIDED: &str = "HubAcceptedManagedCluster";
/// Role of the ClusterRole that an accepted cluster has.
pub(crate) const ROLE: &str = "role";
/// The annotation that says which program made a ManagedCluster.
const CREATED_VIA: &str = "open-cluster-management/created-via";

impl Objects for ClusterAcceptance {
    /// The role of a cluster that would be accepted: a cluster that has it was accepted before, and its agent may have
    /// taken off what else tells so.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let name = &*primary.reference.name;
        let mut needs = Vec::new();
        if !cluster.is_accepted() && is_to_be_accepted(context, primary, &cluster) {
            let role = ["open-cluster-management:managedcluster:", name].concat();
            needs.push(Need::object(ROLE, CLUSTER_ROLE.beside(primary, role)));
        }
        Ok(Requirement {
            needs,
            ..Requirement::default()
        })
    }

    /// Accepts a cluster that a rule names, that was not accepted automatically before, and that nobody denied.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        // One that a person accepted gets the annotation.
        let is_new = cluster.is_accepted() || matches!(found(&inputs, ROLE), Value::Absent);
        let accepted = is_new && is_to_be_accepted(context, primary, &cluster);
        let accepted = accepted.then(|| {
            make::ManagedCluster::of(&primary.reference)
                .annotation(ACCEPTED_ON, format_rfc3339(context.now_seconds))
                .accepts(true)
                .fields()
        });
        Ok(accepted.into_iter().collect())
    }
}

/// Whether a cluster is to be accepted by what its ManagedCluster says.
fn is_to_be_accepted(
    context: &Context<Settings>,
    primary: &Primary,
    cluster: &ManagedCluster,
) -> bool {
    let (name, metadata) = (&primary.reference.name, &cluster.metadata);
    let known = metadata.annotations.contains_key(ACCEPTED_ON) || is_denied(cluster);
    let mut rules = context.settings.rules.iter();
    !primary.deleting && !known && rules.any(|rule| is_meant(rule, name, metadata))
}

/// Whether somebody decided about a cluster and does not accept it: nobody gives one the condition before it is
/// accepted.
fn is_denied(cluster: &ManagedCluster) -> bool {
    cluster.condition(DECIDED).is_some() && !cluster.is_accepted()
}

/// Whether a cluster has a name, a creator and every label that a rule wants; what a rule leaves out fits every
/// cluster.
fn is_meant(rule: &Rule, name: &str, metadata: &Metadata) -> bool {
    let via = metadata.annotations.get(CREATED_VIA);
    (rule.names.is_empty() || fits(&rule.names, name))
        && (rule.created_via.is_empty() || via.is_some_and(|via| fits(&rule.created_via, via)))
        && all_fit(&rule.labels, &metadata.labels)
}
