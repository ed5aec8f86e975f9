//! Decides what the add-ons of a cluster and its labels say. Pure functions.

use crate::Settings;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use transom_guest::kinds::{ADD_ON, ManagedCluster, ManagedClusterStatus, ObservedCondition};
use transom_guest::objects::{Answer, Condition, Desired, Input, Need, Requirement, Value, found};
use transom_guest::{Context, ObjectRef, Primary, Problem};

/// Role of the add-ons.
pub(crate) const ADDONS: &str = "addons";
/// The condition of an add-on.
pub(crate) const AVAILABLE: &str = "Available";
/// The condition of a cluster.
const CLUSTER_AVAILABLE: &str = "ManagedClusterConditionAvailable";
/// What the labels begin with; the name of the add-on follows.
const FEATURE: &str = "feature.open-cluster-management.io/addon-";
/// The longest name in the key of a label, in bytes, `addon-` included.
const MAX_NAME: usize = 63;
/// How many add-ons are written at a time: the primary and these are the most that an answer may have. When these are
/// right, the set of all of them has changed, and the guest is asked for the next ones.
const AT_A_TIME: usize = 63;
/// When it is asked for the next ones at the latest, in seconds.
const NEXT_SECONDS: i64 = 60;

/// Why a cluster is unreachable, if it is.
fn unreachable(cluster: &ManagedCluster) -> Option<&ObservedCondition> {
    let available = cluster.condition(CLUSTER_AVAILABLE);
    available.filter(|one| one.status == "Unknown")
}

/// What is read of an add-on: it says its conditions in the same place as a cluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Read {
    status: ManagedClusterStatus,
}

/// An add-on of the cluster.
struct AddOn {
    name: String,
    read: Read,
}

impl AddOn {
    fn available(&self) -> Option<&ObservedCondition> {
        ObservedCondition::find(&self.read.status.conditions, AVAILABLE)
    }

    fn reference(&self, primary: &Primary) -> ObjectRef {
        ObjectRef {
            name: self.name.clone(),
            ..place(primary)
        }
    }

    /// Whether it says the same as the cluster.
    fn says(&self, cluster: &ObservedCondition) -> bool {
        let says = |one: &ObservedCondition| {
            (&one.status, &one.reason, one.message.as_str())
                == (
                    &cluster.status,
                    &cluster.reason,
                    beginning(&cluster.message),
                )
        };
        self.available().is_some_and(says)
    }
}

/// What of the message of a cluster is written to its add-ons: of a text of theirs no more crosses, so the end could
/// not be compared.
fn beginning(message: &str) -> &str {
    &message[..message.floor_char_boundary(4_096)]
}

/// Where the add-ons of a cluster are.
fn place(primary: &Primary) -> ObjectRef {
    let addons = ADD_ON.all(primary);
    addons.in_namespace(&primary.reference.name)
}

/// The add-ons, by name.
fn addons(inputs: &[Input]) -> Result<Vec<AddOn>, Problem> {
    let Value::Every(members) = found(inputs, ADDONS) else {
        return Ok(Vec::new());
    };
    let read = |member: &transom_guest::objects::Member| {
        let name = member.name.clone();
        member.read().map(|read| AddOn { name, read })
    };
    members.iter().map(read).collect()
}

/// The first of the add-ons that do not say yet that the cluster is unreachable.
fn wrong<'a>(
    cluster: &'a ManagedCluster,
    addons: &'a [AddOn],
) -> impl Iterator<Item = (&'a AddOn, &'a ObservedCondition)> {
    let pair = |addon| Some((addon, unreachable(cluster)?));
    let all = addons.iter().filter_map(pair);
    all.filter(|(addon, unreachable)| !addon.says(unreachable))
}

/// All add-ons; then those to be written.
pub(crate) fn require(primary: &Primary, inputs: &[Input]) -> Result<Requirement, Problem> {
    let (cluster, addons) = (primary.read()?, addons(inputs)?);
    let wrong = wrong(&cluster, &addons).take(AT_A_TIME);
    Ok(Requirement {
        targets: wrong.map(|(addon, _)| addon.reference(primary)).collect(),
        needs: vec![Need::every(ADDONS, place(primary), Vec::new())],
    })
}

/// What the labels and the add-ons say.
pub(crate) fn reconcile(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Answer, Problem> {
    let (cluster, addons): (ManagedCluster, _) = (primary.read()?, addons(inputs)?);
    let mut answer = Answer::default();
    let is_known = cluster.condition(CLUSTER_AVAILABLE).is_some();
    if context.settings.labels && !primary.deleting && is_known {
        let labels = labels(&cluster, &addons);
        let content = json!({"metadata": {"labels": labels}});
        answer
            .apply
            .push(Desired::fields(&primary.reference, &content));
    }
    let mut wrong = wrong(&cluster, &addons);
    for (addon, unreachable) in wrong.by_ref().take(AT_A_TIME) {
        let condition = Condition {
            kind: AVAILABLE,
            status: &unreachable.status,
            reason: &unreachable.reason,
            message: beginning(&unreachable.message),
        };
        let object = addon.reference(primary);
        answer
            .apply
            .push(Desired::conditions_of(&object, &[condition]));
    }
    let more = wrong.next().is_some();
    answer.ask_again_at = more.then_some(context.now_seconds + NEXT_SECONDS);
    Ok(answer)
}

/// The labels of the cluster that are about add-ons; null for one that is to go.
fn labels(cluster: &ManagedCluster, addons: &[AddOn]) -> Map<String, Json> {
    let here = cluster.metadata.labels.keys();
    let here = here.filter(|key| key.starts_with(FEATURE));
    let mut labels: Map<String, Json> = here.map(|key| (key.clone(), Json::Null)).collect();
    for addon in addons {
        let key = [FEATURE, &addon.name].concat();
        let (_, name) = key.split_once('/').unwrap_or_default();
        if name.len() > MAX_NAME {
            continue;
        }
        let available = addon.available();
        let said = available.filter(|_| unreachable(cluster).is_none());
        let value = match said.map(|one| one.status.as_str()) {
            Some("True") => "available",
            Some("False") => "unhealthy",
            _ => "unreachable",
        };
        labels.insert(key, value.into());
    }
    labels
}
