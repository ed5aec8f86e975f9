//! Decides what the status of a binding says. Pure functions.

use crate::SetBindings;
use serde::Deserialize;
use transom_guest::kinds::CLUSTER_SET;
use transom_guest::objects::{
    Answer, Condition, Desired, Input, Need, Objects, Requirement, Value, found,
};
use transom_guest::{Context, Failure, NoSettings, Primary, Reason};

/// Role of the set.
pub(crate) const SET: &str = "set";
/// The condition that tells whether the binding counts.
pub(crate) const BOUND: &str = "Bound";

/// All reasons.
pub(crate) const REASONS: [Reason; 2] = [THERE, MISSING];

const THERE: Reason = Reason {
    name: "ClusterSetBound",
    meaning: "The set of the binding is there.",
    remedy: "Nothing.",
};

const MISSING: Reason = Reason {
    name: "ClusterSetNotFound",
    meaning: "The set of the binding is not there.",
    remedy: "Make the ManagedClusterSet, or delete the binding.",
};

/// What is read of a binding.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Binding {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    cluster_set: String,
}

impl Objects for SetBindings {
    fn require(
        _: &Context<NoSettings>,
        primary: &Primary,
        _: &[Input],
    ) -> Result<Requirement, Failure> {
        let Binding { spec } = primary.read()?;
        let set = CLUSTER_SET.beside(primary, spec.cluster_set);
        let is_named = !primary.deleting && !set.name.is_empty();
        let need = is_named.then(|| Need::presence(SET, set));
        Ok(need.into_iter().collect())
    }

    fn reconcile(
        _: &Context<NoSettings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        if primary.deleting {
            return Ok(Answer::default());
        }
        // The registration controller of a hub says it without a sentence, too: two that say the same do not fight.
        let bound = match found(&inputs, SET) {
            Value::Present => Condition::true_(BOUND, &THERE, ""),
            _ => Condition::false_(BOUND, &MISSING, ""),
        };
        Ok(Desired::conditions(primary, &[bound]).into())
    }
}
