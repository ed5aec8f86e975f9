//! The primaries that count in an interval, told apart without their names beyond the end of a process.

use super::LimitedKinds;
use crate::failure::failing::{MARK, mark};
use crate::reference::ObjectRef;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::policy::Limited;

/// The most primaries of each kind that are marked: the records of all policies lie in one ConfigMap.
const MARKED: usize = 100;

/// The marks of the primaries that count for each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct LimitMarks(BTreeMap<Limited, BTreeSet<String>>);

impl LimitMarks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, kind: Limited, primary: &ObjectRef) -> bool {
        let marks = self.0.get(&kind);
        marks.is_some_and(|marks| marks.contains(&mark(None, primary)))
    }

    pub(super) fn add(&mut self, primary: &ObjectRef, kinds: &LimitedKinds) {
        for kind in kinds {
            let marks = self.0.entry(*kind).or_default();
            if marks.len() < MARKED {
                marks.insert(mark(None, primary));
            }
        }
    }

    pub(super) fn remove(&mut self, kind: Limited) {
        self.0.remove(&kind);
    }

    /// Drops marks until their text is shorter by so many bytes, or none is left.
    pub(super) fn shorten(&mut self, bytes: usize) {
        // With each mark go at least its quotes and a comma, or the name of its kind.
        let mut surplus = bytes.div_ceil(MARK + 3);
        for marks in self.0.values_mut() {
            while surplus > 0 && marks.pop_last().is_some() {
                surplus -= 1;
            }
        }
        self.0.retain(|_, marks| !marks.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fleet;
    use serde_json::json;

    #[test]
    fn an_end_in_order_loses_nothing_of_the_limit() {
        let mut fleet = Fleet::new(1_000, json!({}));
        let mut admitted = 0;
        for run in 0..30 {
            // Each run reserves 60 and uses ten of them.
            admitted += fleet.add(run * 10..run * 10 + 10);
            fleet.end();
        }
        assert_eq!((admitted, fleet.add(300..1_000)), (300, 0));
    }

    #[test]
    fn one_that_counted_before_an_end_in_order_counts_no_second_time() {
        let mut fleet = Fleet::new(40, json!({}));
        for _ in 0..40 {
            assert_eq!(fleet.add(0..3), 3);
            fleet.end();
        }
        assert_eq!(fleet.add(0..12), 12, "nine others");
        assert_eq!(fleet.end(), ["elementsAdded"]);
        // In the next interval it counts.
        fleet.pass(600);
        assert_eq!(fleet.add(20..40), 12);
        assert_eq!(fleet.add(0..3), 0);
    }

    #[test]
    fn a_record_has_no_more_marks_than_it_has_room_for() {
        let mut fleet = Fleet::new(1_000, json!({}));
        assert_eq!(fleet.add(0..250), 250);
        fleet.end();
        let again = fleet.add(0..250);
        assert_eq!(again, 150, "100 count no second time, and 50 have room");
    }

    #[test]
    fn an_end_without_a_difference_is_not_recorded() {
        let mut fleet = Fleet::new(40, json!({}));
        fleet.add(0..2);
        assert_eq!(fleet.end(), ["elementsAdded"]);
        assert_eq!(fleet.end(), [""; 0]);
        fleet.add(2..3);
        fleet.pass(600);
        assert_eq!(fleet.end(), [""; 0], "the interval is over");
    }
}
