//! The plan of one revision of a policy over its whole fleet: what would change, counted, grouped and redacted. A value
//! that is stored and compared: it depends neither on the order of the primaries nor on time, and its size is bounded.

mod beside;
mod writes;

pub use beside::Beside;
pub use writes::{Change, Writes};

use crate::digest::Digest;
use crate::plan::effect::Verb;
use crate::reference::ObjectRef;
use crate::work::Key;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use transom_api::State;
use writes::name;

/// Maximum number of fields that are listed of one kind of effect.
const FIELDS: usize = 32;

/// What the reconcile of one primary came to.
#[derive(Clone, Debug)]
pub struct Planned<'a> {
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
    pub primaries: Counts,
    /// Each kind of effect, with the number of its objects; the most frequent first.
    pub effects: Vec<Counted>,
    /// How many kinds of effects are not listed.
    #[serde(default)]
    pub more_effects: usize,
    /// Primaries with the same set of effects; the largest group first.
    pub groups: Vec<Group>,
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
pub struct Counts {
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
pub struct Counted {
    /// Kind of the objects.
    pub kind: String,
    /// Path of the field in objects that others made; empty for whole objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Key of the element, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub element: String,
    /// What happens to it.
    pub verb: Verb,
    /// For how many primaries.
    pub primaries: usize,
    /// For how many primaries each field of updated objects differs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, usize>,
    /// How many fields are not listed: the less frequent ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_fields: usize,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        for part in [&self.path, &self.element] {
            if !part.is_empty() {
                write!(f, " {part}")?;
            }
        }
        write!(f, " {}", self.verb.as_str())
    }
}

impl Counted {
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
pub struct Group {
    /// The effects that all of them have.
    pub changes: Vec<Change>,
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
        planned: impl IntoIterator<Item = Planned<'a>>,
        listed: Listed,
    ) -> Self {
        let mut all: Vec<Planned<'a>> = planned.into_iter().collect();
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

/// The digest of all that would be written, of sorted primaries.
fn digest(all: &[Planned<'_>]) -> String {
    let written = all.iter().filter_map(|one| {
        let digest = one.writes.digest?;
        Some(json!([*one.key.primary, digest.to_string()]))
    });
    Digest::of(&written.collect()).to_string()
}

fn counts(all: &[Planned<'_>]) -> Counts {
    let mut counts = Counts {
        total: all.len(),
        ..Counts::default()
    };
    for one in all {
        let count = match one.state {
            _ if !one.writes.is_empty() => &mut counts.would_change,
            State::Applied => &mut counts.unchanged,
            State::Held => &mut counts.held,
            State::Waiting => &mut counts.waiting,
            State::Failed => &mut counts.failed,
        };
        *count += 1;
    }
    counts
}

fn effects(all: &[Planned<'_>]) -> Vec<Counted> {
    let mut counted: BTreeMap<_, Counted> = BTreeMap::new();
    for change in all.iter().flat_map(|one| &one.writes.changes) {
        let what = (&change.kind, &change.path, &change.element, change.verb);
        let one = counted.entry(what).or_insert_with(|| Counted {
            kind: change.kind.clone(),
            path: change.path.clone(),
            element: change.element.clone(),
            verb: change.verb,
            primaries: 0,
            fields: BTreeMap::new(),
            more_fields: 0,
        });
        one.primaries += 1;
        for field in &change.fields {
            *one.fields.entry(field.clone()).or_default() += 1;
        }
    }
    let mut effects: Vec<Counted> = counted.into_values().map(Counted::shortened).collect();
    effects.sort_by_key(|one| Reverse(one.primaries));
    effects
}

fn groups(all: &[Planned<'_>], listed: usize) -> Vec<Group> {
    let mut same: BTreeMap<_, (usize, Vec<&ObjectRef>)> = BTreeMap::new();
    for one in all.iter().filter(|one| !one.writes.is_empty()) {
        let (count, first) = same
            .entry((&one.writes.changes, one.writes.more))
            .or_default();
        *count += 1;
        if first.len() < listed {
            first.push(&one.key.primary);
        }
    }
    let group =
        |((changes, more), (primaries, first)): ((&Vec<Change>, usize), (usize, Vec<_>))| Group {
            changes: changes.clone(),
            more_changes: more,
            primaries,
            first: first.into_iter().map(reference).collect(),
        };
    let mut groups: Vec<Group> = same.into_iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.primaries));
    groups
}

fn refusals(all: &[Planned<'_>], listed: usize) -> Vec<Refused> {
    let mut same: BTreeMap<(Reverse<State>, &str), Refused> = BTreeMap::new();
    for one in all.iter().filter(|one| one.state != State::Applied) {
        let of = same.entry((Reverse(one.state), one.reason));
        let refused = of.or_insert_with(|| Refused {
            state: one.state,
            reason: name(one.reason),
            primaries: 0,
            first: Vec::new(),
        });
        refused.primaries += 1;
        if refused.first.len() < listed {
            refused.first.push(RefusedPrimary {
                primary: reference(&one.key.primary),
                message: name(one.message),
            });
        }
    }
    let mut refusals: Vec<Refused> = same.into_values().collect();
    refusals.sort_by_key(|refused| (Reverse(refused.state), Reverse(refused.primaries)));
    refusals
}

#[cfg(test)]
mod tests;
