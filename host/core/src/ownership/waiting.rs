//! Who waits until it is known what the primaries of a policy want.

use super::{Contender, OwnershipIndex};
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// How many others of the policy of a key there are.
pub(super) fn others(keys: &BTreeMap<Arc<str>, HashSet<Key>>, key: &Key) -> usize {
    let keys = keys.get(&key.policy);
    keys.map_or(0, |keys| keys.len() - usize::from(keys.contains(key)))
}

impl OwnershipIndex {
    /// Records targets of a primary before its guest has named all of them: earlier claims stay.
    pub fn widen<'a>(
        &mut self,
        contender: Contender,
        targets: impl IntoIterator<Item = &'a ObjectRef>,
    ) -> Vec<Key> {
        let key = contender.key.clone();
        let mut woken = self.claim_more(contender, targets.into_iter().collect());
        // It decides after this, and sees who is located.
        woken.retain(|one| *one != key);
        woken
    }

    fn claim_more(&mut self, contender: Contender, targets: Vec<&ObjectRef>) -> Vec<Key> {
        let before = self.targets_of.get(&contender.key);
        let has_all = |before: &&BTreeSet<ObjectRef>| {
            let mut targets = targets.iter();
            targets.all(|target| before.contains(*target))
        };
        let same = before.filter(has_all);
        if same.is_some_and(|same| self.claims(&contender, same)) {
            return self.locate(&contender.key);
        }
        let stays = |target: &&ObjectRef| {
            let claims = self.by_target.get(*target);
            let before = claims.and_then(|claims| claims.contenders.get(&contender.key));
            before.is_some_and(|before| !before.is_another(&contender))
        };
        let before = before.into_iter().flatten();
        let before: Vec<ObjectRef> = before.filter(stays).cloned().collect();
        self.claim(contender, targets.into_iter().chain(&before))
    }

    /// How many primaries of a policy have not been located since the start.
    pub fn remaining(&self, policy: &str) -> usize {
        self.unlocated.get(policy).map_or(0, HashSet::len)
    }

    /// How many other primaries of the policy may want a target without having said so. The key is woken when there are
    /// none.
    pub fn wait_for_known(&mut self, key: &Key) -> usize {
        let undecided = others(&self.unlocated, key) + others(&self.unknown, key);
        self.wait(key, undecided)
    }

    /// How many other primaries of the policy have not been located since the start. The key is woken when there are
    /// none.
    pub fn wait_for_located(&mut self, key: &Key) -> usize {
        let unlocated = others(&self.unlocated, key);
        self.wait(key, unlocated)
    }

    fn wait(&mut self, key: &Key, others: usize) -> usize {
        if others > 0 {
            let deferred = self.deferred.entry(Arc::clone(&key.policy)).or_default();
            deferred.insert(key.clone());
        }
        others
    }

    /// The policies whose primaries must be located first: the key's own, the policy of a stamp whose primary may
    /// still claim the target, and, with `others`, policies whose targets may lie there.
    pub(super) fn waited_for(
        &self,
        key: &Key,
        target: &ObjectRef,
        stamp: Option<&Stamp>,
        others: bool,
    ) -> Vec<Arc<str>> {
        let named = stamp.map(Stamp::key);
        let reaches = |policy: &Arc<str>| {
            let reach = self.reach.get(policy).into_iter().flatten();
            others && reach.into_iter().any(|reach| reach.holds(target))
        };
        let waits = |(policy, keys): &(&Arc<str>, &HashSet<Key>)| {
            !keys.is_empty()
                && (**policy == key.policy
                    || named.as_ref().is_some_and(|named| keys.contains(named))
                    || reaches(policy))
        };
        self.unlocated
            .iter()
            .filter(waits)
            .map(|(policy, _)| Arc::clone(policy))
            .collect()
    }

    /// Marks a primary as located. With the last one of its policy, returns all keys that wait. The last one may be
    /// among them: one whose guest fails is located at the end of its reconcile, after it had to wait for others.
    pub(super) fn locate(&mut self, key: &Key) -> Vec<Key> {
        let Some(keys) = self.unlocated.get_mut(&key.policy) else {
            return Vec::new();
        };
        keys.remove(key);
        if !keys.is_empty() {
            return Vec::new();
        }
        self.unlocated.remove(&key.policy);
        self.wake(&key.policy)
    }

    /// The guest named the targets of a primary, or the primary is gone. Returns the waiting keys if at most one other
    /// primary of the policy is unknown, and all are located.
    pub(super) fn known(&mut self, key: &Key) -> Vec<Key> {
        self.anew.remove(key);
        let Some(keys) = self.unknown.get_mut(&key.policy) else {
            return Vec::new();
        };
        // The last one left may itself be waiting for all others.
        let woken = keys.remove(key) && keys.len() < 2;
        if keys.is_empty() {
            self.unknown.remove(&key.policy);
        }
        match woken && self.remaining(&key.policy) == 0 {
            true => self.wake(&key.policy),
            false => Vec::new(),
        }
    }

    fn wake(&mut self, policy: &str) -> Vec<Key> {
        let woken = self.deferred.remove(policy).unwrap_or_default();
        woken.into_iter().collect()
    }
}
