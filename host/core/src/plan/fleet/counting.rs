//! Counts and groups what is planned for the primaries of a fleet.

use super::writes::name;
use super::{
    EffectCount, EffectGroup, FleetCounts, PlannedChange, PlannedPrimary, Refused, RefusedPrimary,
    reference,
};
use crate::digest::Digest;
use crate::reference::ObjectRef;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use transom_api::State;

/// The digest of all that would be written, of sorted primaries.
pub(super) fn digest(all: &[PlannedPrimary<'_>]) -> String {
    let written = all.iter().filter_map(|one| {
        let digest = one.writes.digest?;
        Some(json!([*one.key.primary, digest.to_string()]))
    });
    Digest::of(&written.collect()).to_string()
}

pub(super) fn counts(all: &[PlannedPrimary<'_>]) -> FleetCounts {
    let mut counts = FleetCounts {
        total: all.len(),
        ..FleetCounts::default()
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

pub(super) fn effects(all: &[PlannedPrimary<'_>]) -> Vec<EffectCount> {
    let mut counted: BTreeMap<_, EffectCount> = BTreeMap::new();
    for change in all.iter().flat_map(|one| &one.writes.changes) {
        let effect = &change.effect;
        let one = counted.entry(effect).or_insert_with(|| EffectCount {
            effect: effect.clone(),
            primaries: 0,
            fields: BTreeMap::new(),
            more_fields: 0,
        });
        one.primaries += 1;
        for field in &change.fields {
            *one.fields.entry(field.clone()).or_default() += 1;
        }
    }
    let mut effects: Vec<EffectCount> = counted.into_values().map(EffectCount::shortened).collect();
    effects.sort_by_key(|one| Reverse(one.primaries));
    effects
}

pub(super) fn groups(all: &[PlannedPrimary<'_>], listed: usize) -> Vec<EffectGroup> {
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
        |((changes, more), (primaries, first)): ((&Vec<PlannedChange>, usize), (usize, Vec<_>))| {
            EffectGroup {
                changes: changes.clone(),
                more_changes: more,
                primaries,
                first: first.into_iter().map(reference).collect(),
            }
        };
    let mut groups: Vec<EffectGroup> = same.into_iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.primaries));
    groups
}

pub(super) fn refusals(all: &[PlannedPrimary<'_>], listed: usize) -> Vec<Refused> {
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
