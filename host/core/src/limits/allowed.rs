//! The limits that count for a policy. Decides nothing about a change.

use super::LimitedKinds;
use std::collections::BTreeMap;
use transom_api::policy::{Limited, LimitsSpec};

/// The limits of a policy: those of its manifest, and of an active revision also those of a newer manifest. What is
/// within each of them passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLimits(Vec<LimitsSpec>);

impl From<LimitsSpec> for PolicyLimits {
    fn from(limits: LimitsSpec) -> Self {
        Self(vec![limits])
    }
}

impl PolicyLimits {
    /// These and others.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        let new = other.0.iter().filter(|one| !self.0.contains(one));
        both.0.extend(new.cloned());
        both
    }

    /// Seconds of an interval: of the longest.
    pub fn interval_seconds(&self) -> u32 {
        let each = self.0.iter().map(|limits| limits.interval_seconds);
        each.max().unwrap_or_default()
    }

    /// How many of so many primaries may be changed, without what was approved.
    pub fn share(&self, kind: Limited, primaries: u32) -> u32 {
        let each = self.0.iter().map(|limits| limits.of(kind).share(primaries));
        each.min().unwrap_or_default()
    }

    /// What so many primaries change beyond a limit: the kind, for how many of them, and how many may pass.
    pub fn beyond<'a>(
        &'a self,
        changed: &'a BTreeMap<Limited, u32>,
        primaries: u32,
    ) -> impl Iterator<Item = (Limited, u32, u32)> {
        let with_most = changed.iter().map(move |(kind, count)| {
            let most = self.share(*kind, primaries);
            (*kind, *count, most)
        });
        with_most.filter(|(_, count, most)| count > most)
    }

    /// Whether none of these kinds has a limit, however many primaries there are.
    pub fn are_off(&self, kinds: &LimitedKinds) -> bool {
        let mut all = self.0.iter();
        all.all(|limits| kinds.iter().all(|kind| limits.of(*kind).percent >= 100))
    }

    /// Whether the limit can be reached at all.
    pub(super) fn is_limited(&self, kind: Limited, primaries: u32) -> bool {
        self.share(kind, primaries) < primaries.max(1)
    }
}

#[cfg(test)]
impl PolicyLimits {
    /// Those of a manifest.
    pub(super) fn of(limits: serde_json::Value) -> Self {
        serde_json::from_value::<LimitsSpec>(limits).unwrap().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ADDED: Limited = Limited::ElementsAdded;
    const PRUNED: Limited = Limited::ObjectsPruned;

    #[test]
    fn of_two_limits_the_smaller_one_counts_whichever_way_it_is_said() {
        let limits =
            |value| PolicyLimits::of(json!({"intervalSeconds": 60, "elementsAdded": value}));
        let (eight, half) = (limits(json!({"count": 8})), limits(json!({"percent": 50})));
        for both in [eight.and(&half), half.and(&eight)] {
            let shares = [10, 16, 20, 100].map(|primaries| both.share(ADDED, primaries));
            assert_eq!(shares, [5, 8, 8, 8]);
            assert_eq!(both.share(PRUNED, 1_000), 100, "as neither says");
            assert_eq!(both.interval_seconds(), 60);
        }
        assert_eq!(eight.and(&eight), eight);
        let slow =
            PolicyLimits::of(json!({"intervalSeconds": 90, "elementsAdded": {"percent": 100}}));
        let both = eight.and(&slow);
        assert_eq!((both.interval_seconds(), both.share(ADDED, 20)), (90, 8));
        assert!(slow.are_off(&[ADDED].into()) && !both.are_off(&[ADDED].into()));
    }
}
