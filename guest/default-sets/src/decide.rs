//! Decides what the sets that every hub has say. Pure functions.

use crate::DefaultSets;
use serde_json::{Value as Json, json};
use transom_guest::kinds::{CLUSTER_SET, ClusterSet, LabelSelector};
use transom_guest::objects::{Answer, Desired, Input, Objects, Requirement};
use transom_guest::{Context, Failure, NoSettings, ObjectRef, Primary, Problem};

/// The field that is kept right.
pub(crate) const SELECTOR: &str = "spec.clusterSelector";
/// The annotation that leaves a set to its users, where it is `false`.
const AUTO_UPDATE: &str = "cluster.open-cluster-management.io/autoupdate";
pub(crate) const AUTO_UPDATE_PATH: &str =
    r#"metadata.annotations["cluster.open-cluster-management.io/autoupdate"]"#;

/// A set that every hub has.
#[derive(Clone, Copy)]
enum Set {
    /// The clusters that are in no other set: those with its label.
    Default,
    /// All clusters.
    Global,
}

impl Set {
    const ALL: [Self; 2] = [Self::Default, Self::Global];

    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Global => "global",
        }
    }

    /// The content of a new set. In a set that others made an empty map says nothing, so an empty list stands for the
    /// selector `{}`.
    fn content(self) -> Json {
        let selector = match self {
            Self::Default => json!({"selectorType": "ExclusiveClusterSetLabel"}),
            Self::Global => {
                json!({"selectorType": "LabelSelector", "labelSelector": {"matchExpressions": []}})
            }
        };
        json!({"spec": {"clusterSelector": selector}})
    }

    /// The content that repairs a set with another selector: it also removes what a new set does not have.
    fn repaired(self) -> Json {
        let mut content = self.content();
        let labels = &mut content["spec"]["clusterSelector"]["labelSelector"];
        match self {
            Self::Default => *labels = Json::Null,
            Self::Global => labels["matchLabels"] = Json::Null,
        }
        content
    }

    /// Whether a set says what it is to say. The API server writes an absent type down.
    fn is_right(self, there: &ClusterSet) -> bool {
        let selector = &there.spec.cluster_selector;
        let labels = &selector.label_selector;
        match self {
            Self::Default => {
                selector.selector_type == "ExclusiveClusterSetLabel" && labels.is_none()
            }
            Self::Global => {
                selector.selector_type == "LabelSelector"
                    && *labels == Some(LabelSelector::default())
            }
        }
    }
}

fn sets(primary: &Primary) -> Vec<(ObjectRef, Json)> {
    let sets = Set::ALL.iter();
    sets.map(|set| (CLUSTER_SET.beside(primary, set.name()), set.content()))
        .collect()
}

impl Objects for DefaultSets {
    fn require(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        let targets = match CLUSTER_SET.is_of(&primary.reference) {
            true => Vec::new(),
            false => sets(primary).into_iter().map(|(set, _)| set).collect(),
        };
        Ok(Requirement {
            targets,
            ..Requirement::default()
        })
    }

    fn reconcile(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: Vec<Input>,
    ) -> Result<Answer, Failure> {
        Ok(match CLUSTER_SET.is_of(&primary.reference) {
            true => repair(primary)?.into_iter().collect(),
            false => sets(primary)
                .iter()
                .map(|(set, content)| Desired::whole(set, content))
                .collect(),
        })
    }
}

/// The selector of one of the sets, if it is another one and nobody wants it so.
fn repair(primary: &Primary) -> Result<Option<Desired>, Problem> {
    let mut sets = Set::ALL.into_iter();
    let Some(set) = sets.find(|set| set.name() == primary.reference.name) else {
        return Ok(None);
    };
    let there: ClusterSet = primary.read()?;
    let left = there.metadata.annotations.get(AUTO_UPDATE);
    let left = primary.deleting || left.is_some_and(|value| value == "false");
    let wrong = !left && !set.is_right(&there);
    Ok(wrong.then(|| Desired::fields(&primary.reference, &set.repaired())))
}
