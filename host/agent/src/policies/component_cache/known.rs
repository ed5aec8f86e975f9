//! Which digest each tag had when it was first pulled, in memory: a folder may be missing, or may have lost it.

use super::in_use::InUse;
use super::{LoadRecord, RECORDS};
use std::collections::{BTreeMap, VecDeque};

/// Records by the key of their component. Beyond a number the oldest are forgotten that no policy uses.
#[derive(Default)]
pub(super) struct KnownRecords {
    found: BTreeMap<String, LoadRecord>,
    /// The same keys, the oldest first.
    order: VecDeque<String>,
}

impl KnownRecords {
    pub(super) fn get(&self, key: &str) -> Option<&LoadRecord> {
        self.found.get(key)
    }

    pub(super) fn insert(&mut self, key: String, record: LoadRecord, in_use: &InUse) {
        if self.found.insert(key.clone(), record).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > RECORDS {
            let is_idle = |key: &String| {
                let record = self.found.get(key);
                record.is_none_or(|record| !in_use.has(&record.digest))
            };
            let idle = self.order.iter().position(is_idle);
            let Some(oldest) = idle.and_then(|at| self.order.remove(at)) else {
                return;
            };
            self.found.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_no_policy_uses_is_forgotten() {
        let mut known = KnownRecords::default();
        let mut in_use = InUse::default();
        in_use.add("a", "sha256:0");
        let mut insert = |number: usize| {
            let record = LoadRecord {
                component: number.to_string(),
                digest: format!("sha256:{number}"),
                manifest: None,
            };
            known.insert(number.to_string(), record, &in_use);
            let has = |number: usize| known.get(&number.to_string()).is_some();
            (known.found.len(), known.order.len(), has(0), has(1), has(2))
        };
        for number in 0..RECORDS {
            insert(number);
        }
        // One that is there takes no room.
        assert_eq!(insert(1), (RECORDS, RECORDS, true, true, true));
        assert_eq!(insert(RECORDS), (RECORDS, RECORDS, true, false, true));
    }
}
