//! Claims that end, and outputs that are left to others of a policy.

use super::{Contender, OwnershipIndex};
use crate::reference::ObjectRef;
use crate::work::Key;
use std::collections::BTreeSet;

fn is_sibling(key: &Key, other: &Key) -> bool {
    other != key && other.policy == key.policy
}

impl OwnershipIndex {
    /// Whether a key leaves an output to another key of its policy that wants it. Keys of other policies never take
    /// over a stamped one. When nobody of its policy wants it any more, `key` is woken: perhaps nobody took it over.
    pub fn leaves_to_sibling(&mut self, target: &ObjectRef, key: &Key) -> bool {
        let Some(claims) = self.by_target.get_mut(target) else {
            return false;
        };
        let wanted = claims.contenders.keys().any(|one| is_sibling(key, one));
        if wanted {
            claims.former = Some(key.clone());
        }
        wanted
    }

    /// Removes all claims of a key; returns whom that concerns.
    pub(super) fn release(&mut self, key: &Key) -> BTreeSet<Key> {
        self.removed_by.remove(key);
        let targets = self.targets_of.remove(key).unwrap_or_default();
        let others = targets.iter().flat_map(|target| self.leave(target, key));
        others.flatten().collect()
    }

    /// Whether the claims of a primary are those of a former one of its name.
    pub(super) fn claims_of_former(&self, contender: &Contender) -> bool {
        let mut targets = self.targets(&contender.key).into_iter().flatten();
        targets.any(|target| {
            let claims = self.by_target.get(target);
            let claim = claims.and_then(|claims| claims.contenders.get(&contender.key));
            claim.is_some_and(|claim| claim.is_another(contender))
        })
    }

    /// Removes the claim of a key on a target; returns the keys to wake. If it was its turn, that is only the next one:
    /// the other contenders, perhaps thousands, see its write. If another key leaves, it is the last contender, which
    /// may adopt the target now; while several are left, none is woken. The key that made the target and left it to its
    /// siblings is woken with the last of them.
    pub(super) fn leave(&mut self, target: &ObjectRef, key: &Key) -> [Option<Key>; 2] {
        let Some(claims) = self.by_target.get_mut(target) else {
            return [None, None];
        };
        let stays = !claims.is_up(key);
        claims.leave(key);
        let waits = |former: &Key| claims.contenders.keys().any(|one| is_sibling(former, one));
        let former = claims.former.take_if(|former| !waits(former));
        if claims.owner.as_ref() == Some(key) {
            claims.keep(None);
            claims.unsure = false;
        }
        let wakes = !stays || claims.contenders.len() == 1;
        let next = wakes.then(|| claims.next().cloned()).flatten();
        if claims.contenders.is_empty() {
            self.by_target.remove(target);
        }
        [next, former.filter(|former| former != key)]
    }
}
