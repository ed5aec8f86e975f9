//! A copy of everything in pieces, so that nobody waits for all of it.

use super::OwnershipIndex;
use crate::work::Key;
use std::ops::Bound;

impl OwnershipIndex {
    /// Copies the targets of up to `most` keys, and their owners, in order from `from` on. Returns the last copied key;
    /// `None` when there are no more. A copy in pieces may miss changes made meanwhile, as it misses later ones.
    pub fn copy(&self, to: &mut Self, from: Bound<Key>, most: usize) -> Option<Key> {
        let mut last = None;
        for (key, targets) in self.targets_of.range((from, Bound::Unbounded)).take(most) {
            for target in targets {
                let Some(claims) = self.by_target.get(target) else {
                    continue;
                };
                let copy = to.by_target.entry(target.clone()).or_default();
                copy.keep(claims.owner.clone());
                if let Some(contender) = claims.contenders.get(key) {
                    copy.enter(contender.clone());
                }
                copy.idle.extend(claims.idle.get(key).cloned());
            }
            to.targets_of.insert(key.clone(), targets.clone());
            last = Some(key);
        }
        last.cloned()
    }

    /// Copies the rest: who is still to be located, who waits for that, and where targets may lie.
    pub fn copy_rest(&self, to: &mut Self) {
        to.unlocated.clone_from(&self.unlocated);
        to.unknown.clone_from(&self.unknown);
        to.deferred.clone_from(&self.deferred);
        to.reach.clone_from(&self.reach);
        to.shared.clone_from(&self.shared);
    }
}
