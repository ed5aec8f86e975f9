//! The plan of one revision of a policy over its whole fleet: what would change, counted, grouped and redacted. A value
//! that is stored and compared: it depends neither on the order of the primaries nor on time, and its size is bounded.

mod beside;
mod counting;
mod writes;

pub use beside::Beside;
pub use writes::{PlannedChange, Writes};

use crate::plan::effect::Effect;
use crate::reference::ObjectRef;
use crate::work::Key;
use counting::{counts, digest, effects, groups, refusals};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use transom_api::State;
use writes::name;

/// Maximum number of fields that are listed of one kind of effect.
const FIELDS: usize = 32;

/// What the reconcile of one primary came to.
#[derive(Clone, Debug)]
pub struct PlannedPrimary<'a> {
    /// The primary under the policy.
    pub key: &'a Key,
    /// How the reconcile ended.
    pub state: State,
    /// Why.
    pub reason: &'a str,
    /// For people; without values of credentials.
    pub message: &'a str,
    /// What would be written.
    pub writes: &'a Writes,
}

/// How much a plan lists. Counts and digest are of everything, whatever is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Maximum number of primaries that are named in each group.
    pub primaries: usize,
    /// Maximum size of the plan, in bytes of JSON. Beyond it the smaller groups are only counted.
    pub bytes: usize,
}

impl Default for Listed {
    /// Ten names; small enough to be stored in an object together with a revision.
    fn default() -> Self {
        Self {
            primaries: 10,
            bytes: 128 << 10,
        }
    }
}

/// What a revision of a policy would change on the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetPlan {
    /// Name of the policy.
    pub policy: String,
    /// Digest of what would be written, over every primary. Equal for two plans that write the same to the same
    /// objects; credentials, times, uids, versions, and primaries for which nothing would be written do not count.
    pub digest: String,
    /// The primaries by what would become of them.
    pub primaries: FleetCounts,
    /// Each kind of effect, with the number of its objects; the most frequent first.
    pub effects: Vec<EffectCount>,
    /// How many kinds of effects are not listed.
    #[serde(default)]
    pub more_effects: usize,
    /// Primaries with the same set of effects; the largest group first.
    pub groups: Vec<EffectGroup>,
    /// The groups that are not listed.
    #[serde(default)]
    pub more_groups: More,
    /// Primaries that would not be applied, by state and reason; failures first.
    pub refusals: Vec<Refused>,
    /// The refusals that are not listed.
    #[serde(default)]
    pub more_refusals: More,
}

/// Primaries by what would become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetCounts {
    /// All.
    pub total: usize,
    /// Nothing is to be written.
    pub unchanged: usize,
    /// Something would be written.
    pub would_change: usize,
    /// Left unchanged on purpose; nothing would be written.
    pub held: usize,
    /// Something does not exist yet; nothing would be written.
    pub waiting: usize,
    /// The reconcile failed; nothing would be written.
    pub failed: usize,
}

/// One kind of effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectCount {
    /// The effect.
    #[serde(flatten)]
    pub effect: Effect,
    /// For how many primaries.
    pub primaries: usize,
    /// For how many primaries each field of updated objects differs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, usize>,
    /// How many fields are not listed: the less frequent ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_fields: usize,
}

impl EffectCount {
    /// Keeps the most frequent fields.
    fn shortened(mut self) -> Self {
        let mut fields: Vec<(String, usize)> = self.fields.into_iter().collect();
        fields.sort_by_key(|(_, primaries)| Reverse(*primaries));
        self.more_fields = fields.len().saturating_sub(FIELDS);
        self.fields = fields.into_iter().take(FIELDS).collect();
        self
    }
}

/// Primaries with the same set of effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectGroup {
    /// The effects that all of them have.
    pub changes: Vec<PlannedChange>,
    /// How many more effects each of them has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_changes: usize,
    /// How many primaries.
    pub primaries: usize,
    /// The first of them, in order.
    pub first: Vec<ObjectRef>,
}

/// Primaries that would not be applied, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The state.
    pub state: State,
    /// The reason.
    pub reason: String,
    /// How many primaries.
    pub primaries: usize,
    /// The first of them, in order.
    pub first: Vec<RefusedPrimary>,
}

/// One primary that would not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedPrimary {
    /// The primary.
    pub primary: ObjectRef,
    /// Why, for people.
    pub message: String,
}

/// What is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct More {
    /// How many entries.
    pub entries: usize,
    /// How many primaries they have together.
    pub primaries: usize,
}

impl FleetPlan {
    /// The plan from the reconciles of all primaries of a policy, in any order, each once.
    pub fn of<'a>(
        policy: &str,
        planned: impl IntoIterator<Item = PlannedPrimary<'a>>,
        listed: Listed,
    ) -> Self {
        let mut all: Vec<PlannedPrimary<'a>> = planned.into_iter().collect();
        all.sort_by_key(|one| one.key);
        let mut plan = Self {
            policy: name(policy),
            digest: digest(&all),
            primaries: counts(&all),
            effects: effects(&all),
            more_effects: 0,
            groups: groups(&all, listed.primaries),
            more_groups: More::default(),
            refusals: refusals(&all, listed.primaries),
            more_refusals: More::default(),
        };
        plan.fit(listed.bytes);
        plan
    }

    /// Whether anything would be written.
    pub fn would_change(&self) -> bool {
        self.primaries.would_change > 0
    }

    /// The plan as text of at most this size, as far as it lists anything.
    pub fn shortened(mut self, bytes: usize) -> String {
        self.fit(bytes);
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Takes the last half of the largest list away, until the plan has at most this size or lists nothing.
    fn fit(&mut self, bytes: usize) {
        while size(self) > bytes {
            let sizes = [
                size(&self.groups),
                size(&self.effects),
                size(&self.refusals),
            ];
            let half = |length: usize| length / 2..;
            match sizes.iter().max() {
                Some(&largest) if largest <= EMPTY => return,
                largest if largest == sizes.first() => {
                    let dropped = self.groups.drain(half(self.groups.len()));
                    dropped.for_each(|group| self.more_groups.add(group.primaries));
                }
                largest if largest == sizes.get(1) => {
                    let length = self.effects.len();
                    self.more_effects += self.effects.drain(half(length)).count();
                }
                _ => {
                    let dropped = self.refusals.drain(half(self.refusals.len()));
                    dropped.for_each(|refused| self.more_refusals.add(refused.primaries));
                }
            }
        }
    }
}

/// The size of an empty list.
const EMPTY: usize = 2;

/// The size of a value as JSON.
fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

impl More {
    fn add(&mut self, primaries: usize) {
        self.entries += 1;
        self.primaries += primaries;
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A reference with short names.
fn reference(of: &ObjectRef) -> ObjectRef {
    ObjectRef {
        cluster: name(&of.cluster),
        api_version: name(&of.api_version),
        kind: name(&of.kind),
        namespace: of.namespace.as_deref().map(name),
        name: name(&of.name),
    }
}

#[cfg(test)]
mod tests;
