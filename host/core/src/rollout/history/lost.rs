//! What a history lost because somebody deleted records, and what records it again.

use super::{History, RecordPlace, RevisionRecord, kept_at_most};
use crate::plan::Step;

impl History {
    /// The steps that record the revision before another one again, after somebody deleted its record: else it could
    /// not work again after a restart. If the other one is not recorded either, that is to follow.
    pub fn restore(
        &self,
        before: &RevisionRecord,
        active: &RevisionRecord,
        place: RecordPlace<'_>,
    ) -> Vec<Step> {
        let is_kept = |one: &RevisionRecord| one.id == before.id || one.continues_as(before);
        let latest = self.records.first().map_or(0, |latest| latest.number);
        let known = self.find(&active.id);
        let number = known.map_or(latest + 1, |known| known.number - 1);
        if number < 1 || self.records.iter().any(is_kept) {
            return Vec::new();
        }
        let record = RevisionRecord {
            number,
            ..before.clone()
        };
        let desired = record.object(place.namespace, place.uid);
        vec![Step::Create { desired }]
    }

    /// The barred records that a newer history does not have, without those for which it has no room: these were
    /// removed to make room for newer ones.
    pub fn bars_lost_in(&self, newer: &Self, keep: u32) -> impl Iterator<Item = &RevisionRecord> {
        let barred = newer.records.iter().filter(|one| one.barred.is_some());
        let room = kept_at_most(keep).saturating_sub(barred.count());
        let lost = |one: &&RevisionRecord| one.barred.is_some() && newer.find(&one.id).is_none();
        self.records.iter().filter(lost).take(room)
    }
}
