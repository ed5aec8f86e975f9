//! Claims on targets that an answer only removes: for one reconcile, so that nobody creates them meanwhile.

use super::OwnershipIndex;
use crate::reference::ObjectRef;
use crate::work::Key;
use std::collections::BTreeSet;

impl OwnershipIndex {
    /// Records the targets that an answer removes, and does not make.
    pub fn removes(&mut self, key: &Key, removed: BTreeSet<ObjectRef>) {
        match removed.is_empty() {
            true => drop(self.removed_by.remove(key)),
            false => drop(self.removed_by.insert(key.clone(), removed)),
        }
    }

    /// Ends the claims on targets that the answer only removes, when its reconcile ended: another primary may create
    /// them now. Returns the keys to wake: also the key itself, if a removal waited for others that are located by now.
    pub fn let_go(&mut self, key: &Key) -> Vec<Key> {
        // Nearly no answer removes anything: then the map of all targets is not looked into.
        let Some(removed) = self.removed_by.get(key) else {
            return Vec::new();
        };
        let Some(targets) = self.targets_of.get_mut(key) else {
            return Vec::new();
        };
        let left: Vec<ObjectRef> = targets.intersection(removed).cloned().collect();
        targets.retain(|target| !removed.contains(target));
        let (mut woken, mut waited) = (Vec::new(), false);
        for target in left {
            let claims = self.by_target.get(&target);
            waited |= claims.is_some_and(|claims| claims.unsure);
            // A contender that this key did not block has nothing new to do.
            let blocked = claims.is_none_or(|claims| claims.is_up(key));
            let [next, former] = self.leave(&target, key);
            woken.extend(next.filter(|_| blocked).into_iter().chain(former));
        }
        if waited && self.wait_for_located(key) == 0 {
            woken.push(key.clone());
        }
        woken
    }
}
