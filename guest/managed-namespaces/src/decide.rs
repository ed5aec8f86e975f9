//! Decides which namespaces the sets of a cluster want on it. Pure functions.

use crate::ManagedNamespaces;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use transom_guest::kinds::{CLUSTER_SET, ClusterSet, Members, Metadata};
use transom_guest::objects::{Answer, Input, Member, Need, Objects, Requirement, Value, found};
use transom_guest::{Context, Failure, NoSettings, Primary, object};

/// Role of the sets.
pub(crate) const SETS: &str = "sets";
/// The field that holds the namespaces.
pub(crate) const FIELD: &str = "status.managedNamespaces";

/// What is read of a ManagedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    managed_namespaces: Option<Vec<Map<String, Json>>>,
}

impl Objects for ManagedNamespaces {
    fn require(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        let sets = Need::every(SETS, CLUSTER_SET.all(primary), Vec::new());
        Ok((!primary.deleting).then_some(sets).into_iter().collect())
    }

    fn reconcile(
        _: &Context<NoSettings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let Value::Every(sets) = found(&inputs, SETS) else {
            return Ok(Answer::default());
        };
        let Cluster { metadata, status } = primary.read()?;
        let wanted = sets.iter().flat_map(|set| of_set(set, &metadata));
        let wanted: BTreeSet<_> = wanted.collect();
        let there = status.managed_namespaces.unwrap_or_default();
        let namespaces = match wanted.is_empty() {
            true if there.is_empty() => return Ok(Answer::default()),
            true => Json::Null,
            false => listed(&wanted, &there),
        };
        let status = object!(&primary.reference, {"status": {"managedNamespaces": namespaces}});
        Ok(status.fields().into())
    }
}

/// The namespaces that a set wants on a cluster: none if the cluster does not belong to it. Each with the set first,
/// which is the order of the list. A set that cannot be read has no clusters, and holds up no other one.
fn of_set(member: &Member, cluster: &Metadata) -> Vec<(String, String)> {
    let Ok(set) = member.read::<ClusterSet>() else {
        return Vec::new();
    };
    let belongs = match set.members(&member.name) {
        Members::Labelled(labels) => labels.matches(&cluster.labels),
        Members::Nobody | Members::Unknown => false,
    };
    let namespaces = set.spec.managed_namespaces.into_iter();
    let namespaces = namespaces.filter(|_| belongs);
    namespaces
        .map(|namespace| (member.name.clone(), namespace.name))
        .collect()
}

/// The list with these namespaces. What the agent of the cluster says about one that was there stays.
fn listed(wanted: &BTreeSet<(String, String)>, there: &[Map<String, Json>]) -> Json {
    let is = |one: &&Map<String, Json>, (set, name): &(String, String)| {
        let says = |key: &str, text: &str| one.get(key).is_some_and(|value| value == text);
        says("clusterSet", set) && says("name", name)
    };
    let element = |namespace: &(String, String)| {
        let known = there.iter().find(|one| is(one, namespace));
        let (set, name) = namespace;
        match known {
            Some(known) => Json::Object(known.clone()),
            None => json!({"clusterSet": set, "name": name}),
        }
    };
    wanted.iter().map(element).collect()
}
