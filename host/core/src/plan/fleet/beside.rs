//! Compares what a candidate would do with what the active revision would do.

use super::Writes;
use crate::work::Key;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::State;

/// A plan of the active revision beside the one of a candidate: what of the candidate's plan is due to the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beside {
    /// Primaries for which the active revision would write something itself.
    pub pending: usize,
    /// Those of them for which the candidate would write the same.
    pub same: usize,
    /// Primaries for which the candidate would write something else than the active revision, or something where that
    /// would write nothing, or the other way round.
    pub different: usize,
    /// Primaries that the active revision applies, and the candidate does not.
    pub newly_refused: usize,
}

impl Beside {
    /// Compares what two revisions would do, by primary.
    pub fn of(
        active: &BTreeMap<Key, (State, Writes)>,
        candidate: &BTreeMap<Key, (State, Writes)>,
    ) -> Self {
        let nothing = (State::Applied, Writes::default());
        let keys: BTreeSet<&Key> = active.keys().chain(candidate.keys()).collect();
        let mut beside = Self::default();
        for key in keys {
            let (was, before) = active.get(key).unwrap_or(&nothing);
            let (is, after) = candidate.get(key).unwrap_or(&nothing);
            let same = before.digest == after.digest;
            beside.pending += usize::from(!before.is_empty());
            beside.same += usize::from(!before.is_empty() && same);
            beside.different += usize::from(!same);
            beside.newly_refused += usize::from(*was == State::Applied && *is != State::Applied);
        }
        beside
    }
}
