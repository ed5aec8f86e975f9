//! Decides what the status of a set says about its members. Pure functions.

use crate::SetMembers;
use transom_guest::kinds::{ClusterSet, MANAGED_CLUSTER, Members};
use transom_guest::objects::{
    Answer, Condition, Desired, Input, Need, Objects, Requirement, Value, found,
};
use transom_guest::{Context, Failure, NoSettings, Primary, Reason};

/// Role of the clusters.
pub(crate) const CLUSTERS: &str = "clusters";
/// The condition that tells whether the set has members.
pub(crate) const EMPTY: &str = "ClusterSetEmpty";

/// All reasons.
pub(crate) const REASONS: [Reason; 3] = [NONE, SOME, IMPOSSIBLE];

const NONE: Reason = Reason {
    name: "NoClusterMatched",
    meaning: "No ManagedCluster belongs to the set.",
    remedy: "Nothing, if it is to be so; else look at the labels of the clusters, or at the selector of the set.",
};

const SOME: Reason = Reason {
    name: "ClustersSelected",
    meaning: "ManagedClusters belong to the set; the message of the condition says how many.",
    remedy: "Nothing.",
};

const IMPOSSIBLE: Reason = Reason {
    name: "ClusterSelectorImpossible",
    meaning: "The label selector of the set is one that no label can fulfil, or it is too large.",
    remedy: "Fix spec.clusterSelector.labelSelector of the set; the message says which part of it is at fault.",
};

/// Which clusters belong to the set; `None` while nothing is to be said about it.
fn members(primary: &Primary) -> Result<Option<Members>, Failure> {
    let set: ClusterSet = primary.read()?;
    let members = set.members(&primary.reference.name);
    let told = !primary.deleting && members != Members::Unknown;
    Ok(told.then_some(members))
}

impl Objects for SetMembers {
    fn require(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        let Some(Members::Labelled(labels)) = members(primary)? else {
            return Ok(Requirement::default());
        };
        let terms = labels.terms().map_err(|why| {
            let problem = IMPOSSIBLE.problem(["The label selector ", &why, "."].concat());
            problem.at("spec.clusterSelector.labelSelector")
        })?;
        let clusters = Need::count(CLUSTERS, MANAGED_CLUSTER.all(primary), terms);
        Ok(Requirement::from_iter([clusters]))
    }

    fn reconcile(
        _: &Context<NoSettings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        if members(primary)?.is_none() {
            return Ok(Answer::default());
        }
        let number = match found(&inputs, CLUSTERS) {
            Value::Count(number) => *number,
            _ => 0,
        };
        let message = [&number.to_string(), " ManagedClusters selected"].concat();
        let empty = match number {
            0 => Condition::true_(EMPTY, &NONE, "No ManagedCluster selected"),
            _ => Condition::false_(EMPTY, &SOME, &message),
        };
        Ok(Desired::conditions(primary, &[empty]).into())
    }
}
