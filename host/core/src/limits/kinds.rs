//! Which kinds of changes that have a limit a plan makes.

use crate::object::Object;
use crate::plan::Step;
use crate::plan::effect::{self, EffectVerb};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::policy::Limited;

/// Kinds of changes.
pub type LimitedKinds = BTreeSet<Limited>;

/// The kinds of changes that steps make and that have a limit. `before` are the primary and the objects that others
/// made, as they were read. New objects have no limit, nor do labels and annotations of objects that the policy made,
/// nor finalizers.
pub fn kinds(steps: &[Step], before: &[Arc<Object>]) -> LimitedKinds {
    steps
        .iter()
        .flat_map(|step| of_step(step, before))
        .collect()
}

fn of_step(step: &Step, before: &[Arc<Object>]) -> LimitedKinds {
    let is_content = |path: &String| path != "metadata" && !path.starts_with("metadata.");
    match step {
        Step::Create { .. } => LimitedKinds::new(),
        Step::Update { changed, .. } if !changed.iter().any(is_content) => LimitedKinds::new(),
        step if step.is_of_finalizers() => LimitedKinds::new(),
        _ => {
            let effects = effect::of(step, effect::target(step, before)).into_iter();
            effects.filter_map(|effect| kind(effect.verb)).collect()
        }
    }
}

/// The kind of change that an effect is, if it has a limit.
fn kind(verb: EffectVerb) -> Option<Limited> {
    match verb {
        EffectVerb::Created => None,
        EffectVerb::Updated => Some(Limited::ObjectsChanged),
        EffectVerb::Deleted => Some(Limited::ObjectsPruned),
        EffectVerb::Added | EffectVerb::Replaced | EffectVerb::Set => Some(Limited::ElementsAdded),
        EffectVerb::Removed => Some(Limited::ElementsRemoved),
    }
}

/// What undoes a kind of change.
pub(super) fn opposite(kind: Limited) -> Option<Limited> {
    match kind {
        Limited::ElementsAdded => Some(Limited::ElementsRemoved),
        Limited::ElementsRemoved => Some(Limited::ElementsAdded),
        Limited::ObjectsChanged | Limited::ObjectsPruned => None,
    }
}

/// For how many primaries there is a change of each kind.
pub fn counted<'a>(each: impl Iterator<Item = &'a LimitedKinds>) -> BTreeMap<Limited, u32> {
    let mut counted = BTreeMap::new();
    for kind in each.flatten() {
        *counted.entry(*kind).or_default() += 1;
    }
    counted
}
