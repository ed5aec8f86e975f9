//! Who writes a target when several subjects want it. A value, keyed by target over all policies.
//! Never reads a target: what its stamp says is an argument.

use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Somebody who wants a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Policy and subject.
    pub key: Key,
    /// uid of the subject, empty when it has none.
    pub uid: String,
    /// When the subject was created, in seconds since 1970.
    pub created_seconds: Option<i64>,
}

impl Claimant {
    /// The older one comes first; none counts as newest; then namespace, then name, then the rest of the key.
    fn rank(&self) -> (i64, Option<&str>, &str, &Key) {
        let created = self.created_seconds.unwrap_or(i64::MAX);
        (created, self.key.subject.namespace.as_deref(), &self.key.subject.name, &self.key)
    }
}

/// What a claimant may do with its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It keeps the target.
    Kept {
        /// Whether nobody else claims it.
        sole: bool,
    },
    /// Somebody else keeps it: wait for its release.
    Lost {
        /// Who keeps it.
        holder: Key,
    },
    /// Not decided yet: this many subjects have not been located since the start.
    Unlocated {
        /// How many.
        remaining: usize,
    },
}

/// All claims. Losers of a release and those that waited for the last location are given back to be woken.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    by_target: BTreeMap<ObjectRef, BTreeMap<Key, Claimant>>,
    target_of: BTreeMap<Key, ObjectRef>,
    unlocated: BTreeMap<Arc<str>, BTreeSet<Key>>,
    deferred: BTreeMap<Arc<str>, BTreeSet<Key>>,
}

impl Claims {
    /// A subject that must be located before any unstamped target of its policy is written. To be told of every
    /// subject that is there at the start (or when a policy is loaded), before the first evaluation.
    pub fn expect(&mut self, key: &Key) {
        self.unlocated.entry(Arc::clone(&key.policy)).or_default().insert(key.clone());
    }

    /// An evaluation found out which target a subject wants. Returns who must be woken.
    pub fn set(&mut self, claimant: Claimant, target: ObjectRef) -> Vec<Key> {
        let key = claimant.key.clone();
        let mut woken = match self.target_of.get(&key) {
            Some(old) if *old != target => self.release(&key),
            _ => Vec::new(),
        };
        self.target_of.insert(key.clone(), target.clone());
        self.by_target.entry(target).or_default().insert(key.clone(), claimant);
        woken.extend(self.locate(&key));
        woken
    }

    /// An evaluation ended before the target was known (not ready, refused, failed): a claim that there is stays, and
    /// where there is none, what was made for the subject earlier is its claim. Returns who must be woken.
    pub fn keep(&mut self, claimant: Claimant, stamped: Option<&ObjectRef>) -> Vec<Key> {
        match stamped {
            Some(target) if !self.target_of.contains_key(&claimant.key) => self.set(claimant, target.clone()),
            _ => self.locate(&claimant.key),
        }
    }

    /// A subject is gone, or its policy is. Returns who must be woken.
    pub fn remove(&mut self, key: &Key) -> Vec<Key> {
        let mut woken = self.release(key);
        if let Some(keys) = self.deferred.get_mut(&key.policy) {
            keys.remove(key);
        }
        woken.extend(self.locate(key));
        woken
    }

    /// A policy is gone with all its subjects. Returns who must be woken.
    pub fn remove_policy(&mut self, policy: &str) -> Vec<Key> {
        let keys: Vec<Key> = self.target_of.keys().filter(|key| *key.policy == *policy).cloned().collect();
        self.unlocated.remove(policy);
        self.deferred.remove(policy);
        let mut woken: Vec<Key> = keys.iter().flat_map(|key| self.release(key)).collect();
        woken.retain(|key| *key.policy != *policy);
        woken
    }

    /// What a claimant may do with the target that it has set. `stamp` is the stamp on the target as it is, if any.
    /// A claimant that must wait for locations is remembered and given back when the last one is there.
    pub fn decide(&mut self, key: &Key, stamp: Option<&Stamp>) -> Claim {
        let claimants = self.target_of.get(key).and_then(|target| self.by_target.get(target));
        let Some((claimants, me)) = claimants.and_then(|all| Some((all, all.get(key)?))) else {
            // Never without `set` before; then nobody else can hold it against us either.
            return Claim::Kept { sole: true };
        };
        let stamped = |claimant: &&Claimant| {
            stamp.is_some_and(|stamp| stamp.names(&claimant.key) && stamp.source.uid == claimant.uid)
        };
        let holder = match claimants.values().find(stamped) {
            Some(holder) => holder,
            None => {
                let waited_for = self.waited_for(key, stamp);
                if !waited_for.is_empty() {
                    let remaining = waited_for.iter().map(|policy| self.remaining(policy)).sum();
                    for policy in waited_for {
                        self.deferred.entry(policy).or_default().insert(key.clone());
                    }
                    return Claim::Unlocated { remaining };
                }
                claimants.values().min_by_key(|claimant| claimant.rank()).unwrap_or(me)
            }
        };
        match holder.key == *key {
            true => Claim::Kept { sole: claimants.len() == 1 },
            false => Claim::Lost { holder: holder.key.clone() },
        }
    }

    /// How many subjects of a policy have not been located since the start.
    pub fn remaining(&self, policy: &str) -> usize {
        self.unlocated.get(policy).map_or(0, BTreeSet::len)
    }

    /// Whether anybody but this key claims a target.
    pub fn claimed_by_another(&self, target: &ObjectRef, key: &Key) -> bool {
        self.by_target.get(target).is_some_and(|claimants| claimants.keys().any(|other| other != key))
    }

    /// The target that a key claims.
    pub fn target(&self, key: &Key) -> Option<&ObjectRef> {
        self.target_of.get(key)
    }

    /// The policies whose subjects must be located first: the key's own, and that of a stamp whose subject may still
    /// claim its target.
    fn waited_for(&self, key: &Key, stamp: Option<&Stamp>) -> Vec<Arc<str>> {
        let own = (self.remaining(&key.policy) > 0).then(|| Arc::clone(&key.policy));
        let named = stamp.map(Stamp::key).filter(|named| {
            named.policy != key.policy && self.unlocated.get(&named.policy).is_some_and(|keys| keys.contains(named))
        });
        own.into_iter().chain(named.map(|named| named.policy)).collect()
    }

    /// Takes a claim away; the other claimants of that target are given back.
    fn release(&mut self, key: &Key) -> Vec<Key> {
        let Some(target) = self.target_of.remove(key) else { return Vec::new() };
        let Some(claimants) = self.by_target.get_mut(&target) else { return Vec::new() };
        claimants.remove(key);
        let others: Vec<Key> = claimants.keys().cloned().collect();
        if others.is_empty() {
            self.by_target.remove(&target);
        }
        others
    }

    /// A subject is located. With the last one of its policy, those that waited for it are given back.
    fn locate(&mut self, key: &Key) -> Vec<Key> {
        let Some(keys) = self.unlocated.get_mut(&key.policy) else { return Vec::new() };
        keys.remove(key);
        if !keys.is_empty() {
            return Vec::new();
        }
        self.unlocated.remove(&key.policy);
        let mut woken = self.deferred.remove(&key.policy).unwrap_or_default();
        woken.remove(key);
        woken.into_iter().collect()
    }
}
