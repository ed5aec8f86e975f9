//! Decides which primary writes a target when several want it. A plain value, keyed by target over all policies. A
//! primary that is held keeps its claims, so that no other primary wins a target meanwhile (ADR 0016).
//!
//! A primary is *unlocated* until it was asked once since the start which targets it wants. After that it is *unknown*
//! until its guest has named all of them. Whoever depends on either waits, and is among the keys that the methods
//! return once that is over.

mod claims;
mod contender;
mod copied;
mod decision;
mod leaving;
mod removed;
mod shared;
mod waiting;

use crate::policy::{Policy, WriteRule};
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::watches;
use crate::work::Key;
use claims::{Claims, Oldest};
pub use contender::Contender;
pub use decision::{Ownership, Rivals};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Where the targets of a policy may lie, for any primary: wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TargetScope {
    cluster: String,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

impl TargetScope {
    fn holds(&self, target: &ObjectRef) -> bool {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        target.is(&self.cluster, &self.api_version, &self.kind)
            && watches::matches(&self.namespace, namespace)
            && watches::matches(&self.name, &target.name)
    }
}

/// Which key owns which target. The methods return the keys to wake: losers of a released target, and those that
/// waited for the last location.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnershipIndex {
    by_target: HashMap<ObjectRef, Claims>,
    targets_of: BTreeMap<Key, BTreeSet<ObjectRef>>,
    /// The targets that the last answer for each key only removes.
    removed_by: BTreeMap<Key, BTreeSet<ObjectRef>>,
    unlocated: BTreeMap<Arc<str>, HashSet<Key>>,
    /// Located primaries whose guest has not said yet which targets they want.
    unknown: BTreeMap<Arc<str>, HashSet<Key>>,
    /// Primaries that were made anew and have not said what they want: what bears their name is of the former ones.
    anew: HashSet<Key>,
    /// Where the targets of each policy may lie.
    reach: BTreeMap<Arc<str>, Vec<TargetScope>>,
    /// The objects that all primaries of a policy share.
    shared: BTreeMap<Arc<str>, Vec<ObjectRef>>,
    deferred: BTreeMap<Arc<str>, BTreeSet<Key>>,
}

impl OwnershipIndex {
    /// Adds a primary that must be located before any unstamped target of its policy is written. Call this for every
    /// primary that exists at the start (or when a policy is loaded), before the first reconcile.
    pub fn expect(&mut self, key: &Key) {
        self.unlocated
            .entry(Arc::clone(&key.policy))
            .or_default()
            .insert(key.clone());
    }

    /// Calls [`Self::expect`] for many at once, so that none is located before all are expected. Takes constant time if
    /// every primary of the policy is located.
    pub fn expect_all(&mut self, policy: &Arc<str>, keys: HashSet<Key>) {
        if keys.is_empty() {
            return;
        }
        let unlocated = self.unlocated.entry(Arc::clone(policy)).or_default();
        match unlocated.is_empty() {
            true => *unlocated = keys,
            false => unlocated.extend(keys),
        }
    }

    /// Whether a primary is still to be located.
    pub fn expects(&self, key: &Key) -> bool {
        let unlocated = self.unlocated.get(&key.policy);
        unlocated.is_some_and(|keys| keys.contains(key))
    }

    /// Sets where the targets of a policy may lie: contenders of other policies with a target there wait for its
    /// primaries, too.
    pub fn reaches(&mut self, policy: &Policy) {
        let reach = |rule: &WriteRule| {
            let (namespace, name) = rule.named()?;
            Some(TargetScope {
                cluster: rule.cluster.clone(),
                api_version: rule.api_version.clone(),
                kind: rule.kind.clone(),
                namespace: namespace
                    .map(|pattern| pattern.wildcard("*"))
                    .unwrap_or_default(),
                name: name.wildcard("*"),
            })
        };
        let makes = || policy.makes().map(|(_, rule)| rule);
        let shared: Vec<_> = makes().filter_map(WriteRule::shared).collect();
        // Under another revision each may try again.
        for target in &shared {
            if let Some(claims) = self.by_target.get_mut(target) {
                claims.passed.retain(|key| key.policy != policy.name);
                claims.first_waiting = Oldest::default();
            }
        }
        self.shared.insert(Arc::clone(&policy.name), shared);
        let reach = makes().filter_map(reach).collect();
        self.reach.insert(Arc::clone(&policy.name), reach);
    }

    /// Whether a contender claims these targets already.
    fn claims(&self, contender: &Contender, targets: &BTreeSet<ObjectRef>) -> bool {
        let mut claims = targets.iter().map(|target| self.by_target.get(target));
        claims.all(|of| of.and_then(|of| of.contenders.get(&contender.key)) == Some(contender))
    }

    /// Records the targets that a reconcile found for a primary. Returns the keys to wake.
    pub fn set<'a>(
        &mut self,
        contender: Contender,
        targets: impl IntoIterator<Item = &'a ObjectRef>,
    ) -> Vec<Key> {
        let key = contender.key.clone();
        let known = self.known(&key);
        let mut woken = self.claim(contender, targets);
        woken.extend(known);
        // It decides after this, and sees who is located.
        woken.retain(|one| *one != key);
        woken
    }

    fn claim<'a>(
        &mut self,
        contender: Contender,
        targets: impl IntoIterator<Item = &'a ObjectRef>,
    ) -> Vec<Key> {
        let key = contender.key.clone();
        let targets: BTreeSet<&ObjectRef> = targets.into_iter().collect();
        let before = self.targets_of.get(&key);
        let same = before.filter(|before| before.iter().eq(targets.iter().copied()));
        if same.is_some_and(|same| self.claims(&contender, same)) {
            return self.locate(&key);
        }
        let targets: BTreeSet<ObjectRef> = targets.into_iter().cloned().collect();
        let before = self.targets_of.insert(key.clone(), targets.clone());
        // A recreated primary inherits no claim of the former one of its name.
        let is_left = |target: &&ObjectRef| {
            let former = self.by_target.get(*target);
            let former = former.and_then(|claims| claims.contenders.get(&key));
            !targets.contains(*target) || former.is_some_and(|former| former.is_another(&contender))
        };
        let before = before.unwrap_or_default();
        let left: Vec<&ObjectRef> = before.iter().filter(is_left).collect();
        let left = left.into_iter();
        let woken = left.flat_map(|target| self.leave(target, &key));
        let mut woken: BTreeSet<Key> = woken.flatten().collect();
        for target in targets {
            let claims = self.by_target.entry(target).or_default();
            claims.enter(contender.clone());
        }
        woken.extend(self.locate(&key));
        woken.into_iter().collect()
    }

    /// A reconcile ended before the targets were known (not ready, refused, failed). Existing claims stay, unless they
    /// are those of a former primary of the name; without any, the targets that carry the primary's stamp become its
    /// claims. For a primary without a uid, which may be unreadable or gone, that holds only until it is located.
    /// Returns the keys to wake: also the key itself, if it is the last one that is located and waited for others.
    pub fn keep<'a>(
        &mut self,
        contender: Contender,
        stamped: impl IntoIterator<Item = &'a ObjectRef>,
    ) -> Vec<Key> {
        let key = &contender.key;
        let mut woken = BTreeSet::new();
        if self.claims_of_former(&contender) {
            self.anew.insert(key.clone());
            woken = self.release(key);
        }
        let believed = !contender.uid.is_empty() || self.expects(key);
        // What was made for the former one bears its name.
        let is_former = self.anew.contains(key);
        let stamped = stamped.into_iter().filter(|_| !is_former);
        woken.extend(self.keep_stamped(contender, believed, stamped));
        woken.into_iter().collect()
    }

    fn keep_stamped<'a>(
        &mut self,
        contender: Contender,
        believed: bool,
        stamped: impl Iterator<Item = &'a ObjectRef>,
    ) -> Vec<Key> {
        let key = &contender.key;
        let mut stamped = stamped.peekable();
        // One that is gone wants nothing.
        if !believed || self.targets_of.contains_key(key) {
            return self.locate(key);
        }
        let unknown = self.unknown.entry(Arc::clone(&key.policy)).or_default();
        unknown.insert(key.clone());
        match stamped.peek() {
            Some(_) => self.claim(contender, stamped),
            None => self.locate(key),
        }
    }

    /// A primary, or its policy, is gone. Returns the keys to wake.
    pub fn remove(&mut self, key: &Key) -> Vec<Key> {
        let mut woken: Vec<Key> = self.release(key).into_iter().collect();
        if let Some(keys) = self.deferred.get_mut(&key.policy) {
            keys.remove(key);
        }
        woken.extend(self.known(key));
        woken.extend(self.locate(key));
        woken
    }

    /// A policy is gone with all its primaries. Returns the keys to wake.
    pub fn remove_policy(&mut self, policy: &str) -> Vec<Key> {
        let keys = self.targets_of.keys();
        let keys: Vec<Key> = keys.filter(|key| *key.policy == *policy).cloned().collect();
        self.unlocated.remove(policy);
        self.unknown.remove(policy);
        self.anew.retain(|key| *key.policy != *policy);
        self.reach.remove(policy);
        self.shared.remove(policy);
        let mut woken = self.deferred.remove(policy).unwrap_or_default();
        // Often the first by name is the oldest: whoever is next is looked for again only when that one goes.
        let youngest_first = keys.iter().rev();
        woken.extend(youngest_first.flat_map(|key| self.release(key)));
        woken.retain(|key| *key.policy != *policy);
        woken.into_iter().collect()
    }

    /// What a contender may do with a target that it has set; `stamp` is the stamp on the existing target, if any. A
    /// contender that must wait for locations is remembered and returned when the last one is known. `others`: it also
    /// waits for the primaries of other policies that may want its target.
    pub fn decide(
        &mut self,
        key: &Key,
        target: &ObjectRef,
        stamp: Option<&Stamp>,
        others: bool,
    ) -> Ownership {
        let claims = self.by_target.get(target);
        let Some(claims) = claims.filter(|claims| claims.contenders.contains_key(key)) else {
            // Callers call `set` first. Without a claim of this key, no other claim can be held against it.
            return Ownership::Owner {
                rivals: Rivals::None,
            };
        };
        let contenders = &claims.contenders;
        let stamped = stamp.and_then(|stamp| {
            let contender = contenders.get(&stamp.key())?;
            let same = contender.uid.is_empty() || stamp.source.uid == contender.uid;
            same.then_some(&contender.key)
        });
        let owner = match stamped {
            Some(owner) => owner,
            None => {
                let waited_for = self.waited_for(key, target, stamp, others);
                if !waited_for.is_empty() {
                    let remaining = waited_for.iter().map(|policy| self.remaining(policy)).sum();
                    for policy in waited_for {
                        self.deferred.entry(policy).or_default().insert(key.clone());
                    }
                    return Ownership::Pending { remaining };
                }
                claims.oldest().unwrap_or(key)
            }
        };
        let unlocated = waiting::others(&self.unlocated, key);
        let (owner, rivals) = (owner.clone(), Rivals::among(contenders, unlocated));
        let is_stamped = stamped.is_some();
        let Some(claims) = self.by_target.get_mut(target) else {
            return Ownership::Owner { rivals };
        };
        claims.keep(Some(owner.clone()));
        // Nothing of what is not there, or bears no stamp, waits to be removed.
        claims.unsure = stamp.is_some() && matches!(rivals, Rivals::Unlocated(_));
        let turn = claims.turn_of(key);
        match (turn == *key, is_stamped && owner != *key) {
            (true, false) => Ownership::Owner { rivals },
            (true, true) => Ownership::OwnedBy {
                owner,
                stands_in: true,
            },
            (false, _) => Ownership::OwnedBy {
                owner: turn,
                stands_in: false,
            },
        }
    }

    /// Whether it is known that a key wants a target.
    pub fn wants(&self, key: &Key, target: &ObjectRef) -> bool {
        let targets = self.targets(key);
        targets.is_some_and(|targets| targets.contains(target))
    }

    /// The targets that a key wants; `None` when it is not known what it wants.
    pub fn targets(&self, key: &Key) -> Option<&BTreeSet<ObjectRef>> {
        self.targets_of.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{hosted, key, kubeconfig_manifest, policy, stamp, target};
    use std::ops::Bound;

    fn contender(name: &str, created: Option<i64>) -> Contender {
        Contender {
            key: key(name),
            uid: format!("uid-{name}"),
            created_seconds: created,
        }
    }

    #[test]
    fn one_made_anew_under_its_name_gives_up_what_the_former_one_had() {
        let mut index = OwnershipIndex::default();
        let at = [target("demo")];
        assert_eq!(index.set(contender("a", Some(1)), &at), []);
        assert_eq!(index.set(contender("b", Some(2)), &at), []);
        let first = stamp("a", "uid-a");
        let decide = |index: &mut OwnershipIndex, name: &str| {
            index.decide(&key(name), &target("demo"), Some(&first), false)
        };
        let of_a = Ownership::OwnedBy {
            owner: key("a"),
            stands_in: false,
        };
        assert_eq!(decide(&mut index, "b"), of_a);
        // Both, its end and its new beginning, are seen at once.
        let anew = Contender {
            uid: "uid-a2".to_owned(),
            ..contender("a", Some(3))
        };
        assert_eq!(index.set(anew.clone(), &at), [key("b")]);
        let of_b = Ownership::OwnedBy {
            owner: key("b"),
            stands_in: false,
        };
        assert_eq!(decide(&mut index, "a"), of_b);
        assert_eq!(index.set(anew, &at), [], "said once");
    }

    #[test]
    fn one_made_anew_gives_it_up_also_while_it_cannot_say_what_it_wants() {
        let mut index = OwnershipIndex::default();
        let at = [target("demo")];
        assert_eq!(index.set(contender("a", Some(1)), &at), []);
        assert_eq!(index.set(contender("b", Some(2)), &at), []);
        assert_eq!(index.keep(contender("a", Some(1)), &at), [], "the same one");
        let anew = Contender {
            uid: "uid-a2".to_owned(),
            ..contender("a", Some(3))
        };
        assert_eq!(index.keep(anew.clone(), &at), [key("b")]);
        assert_eq!(index.keep(anew.clone(), &at), [], "said once");
        assert_eq!(index.targets(&key("a")), None);
        let first = stamp("a", "uid-a");
        let decided = index.decide(&key("b"), &target("demo"), Some(&first), false);
        assert!(matches!(decided, Ownership::Owner { .. }), "{decided:?}");
    }

    #[test]
    fn what_a_primary_claims_stays_until_its_guest_has_said_all() {
        let mut index = OwnershipIndex::default();
        assert_eq!(index.set(contender("a", Some(1)), &[target("demo")]), []);
        assert_eq!(index.set(contender("b", Some(2)), &[target("demo")]), []);
        let wanted = |index: &OwnershipIndex| index.targets(&key("a")).map_or(0, BTreeSet::len);
        assert_eq!(index.widen(contender("a", Some(1)), &[]), []);
        assert_eq!(wanted(&index), 1);
        assert_eq!(index.widen(contender("a", Some(1)), &[target("other")]), []);
        assert_eq!(wanted(&index), 2);
        assert_eq!(index.set(contender("a", Some(1)), &[]), [key("b")]);
        // Another primary of this name has nothing of it.
        assert_eq!(index.set(contender("a", Some(1)), &[target("demo")]), []);
        let anew = Contender {
            uid: "uid-a2".to_owned(),
            ..contender("a", Some(3))
        };
        index.widen(anew, &[]);
        assert_eq!(wanted(&index), 0);
    }

    fn in_namespace(namespace: &str, name: &str) -> Contender {
        let mut reference = hosted(name);
        reference.namespace = Some(namespace.to_owned());
        Contender {
            key: Key::new(&"external".into(), &reference),
            uid: String::new(),
            created_seconds: None,
        }
    }

    const SOLE: Ownership = Ownership::Owner {
        rivals: Rivals::None,
    };

    fn owned_by(contender: &Contender) -> Ownership {
        Ownership::OwnedBy {
            owner: contender.key.clone(),
            stands_in: false,
        }
    }

    fn pending(remaining: usize) -> Ownership {
        Ownership::Pending { remaining }
    }

    /// The contender that keeps the target which all of these claim, whatever the order in which they came.
    fn owner(contenders: &[Contender], stamp: Option<&Stamp>) -> Key {
        let mut owners = BTreeSet::new();
        for turn in 0..contenders.len() {
            let mut ownership = OwnershipIndex::default();
            for contender in contenders.iter().cycle().skip(turn).take(contenders.len()) {
                ownership.set(contender.clone(), &[target("demo")]);
            }
            for contender in contenders {
                match ownership.decide(&contender.key, &target("demo"), stamp, true) {
                    Ownership::OwnedBy { owner, .. } => owners.insert(owner),
                    Ownership::Owner { rivals } => {
                        assert_eq!(rivals == Rivals::None, contenders.len() == 1);
                        owners.insert(contender.key.clone())
                    }
                    Ownership::Pending { .. } => panic!("everybody is located"),
                };
            }
        }
        assert_eq!(owners.len(), 1, "{owners:?}");
        owners.pop_first().unwrap()
    }

    #[test]
    fn a_removal_claims_nothing_beyond_its_reconcile() {
        let mut ownership = OwnershipIndex::default();
        // The older one removes what the other one wants to make.
        let (removes, makes) = (contender("removes", Some(1)), contender("makes", Some(2)));
        let both = || [target("demo"), target("own")];
        ownership.set(makes.clone(), &[target("demo")]);
        ownership.set(removes.clone(), &both());
        let decide = |ownership: &mut OwnershipIndex, of: &Contender| {
            ownership.decide(&of.key, &target("demo"), None, true)
        };
        assert_eq!(decide(&mut ownership, &makes), owned_by(&removes));
        ownership.removes(&removes.key, BTreeSet::from([target("demo")]));
        let woken = ownership.let_go(&removes.key);
        assert_eq!(woken, vec![makes.key.clone()]);
        assert_eq!(decide(&mut ownership, &makes), SOLE);
        let claimed = ownership.targets(&removes.key).cloned();
        assert_eq!(claimed, Some(BTreeSet::from([target("own")])));
        // Its next reconcile claims it again for a while, and wakes nobody whom that did not keep back.
        let stamped = stamp("makes", "uid-makes");
        ownership.set(removes.clone(), &both());
        let owner = ownership.decide(&removes.key, &target("demo"), Some(&stamped), true);
        assert_eq!(owner, owned_by(&makes));
        assert!(ownership.let_go(&removes.key).is_empty());
        // Once an answer makes it, it is claimed.
        ownership.set(removes.clone(), &both());
        ownership.removes(&removes.key, BTreeSet::new());
        assert!(ownership.let_go(&removes.key).is_empty());
        assert_eq!(decide(&mut ownership, &makes), owned_by(&removes));
        ownership.removes(&removes.key, BTreeSet::from([target("demo")]));
        ownership.remove(&removes.key);
        assert!(ownership.removed_by.is_empty());
    }

    #[test]
    fn a_removal_that_waits_for_the_location_of_others_is_planned_again_with_the_last_one() {
        let late = contender("late", None);
        // The last one is located before or after the reconcile that removes ended.
        for early in [true, false] {
            let mut ownership = OwnershipIndex::default();
            let (removes, stamped) = (contender("removes", None), stamp("removes", "uid-removes"));
            ownership.expect(&late.key);
            ownership.set(removes.clone(), &[target("demo")]);
            let decide = |ownership: &mut OwnershipIndex| {
                ownership.decide(&removes.key, &target("demo"), Some(&stamped), true)
            };
            let rivals = Rivals::Unlocated(1);
            assert_eq!(decide(&mut ownership), Ownership::Owner { rivals });
            ownership.removes(&removes.key, BTreeSet::from([target("demo")]));
            let mut woken = Vec::new();
            if early {
                woken.extend(ownership.set(late.clone(), []));
            }
            woken.extend(ownership.let_go(&removes.key));
            if !early {
                assert_eq!(woken, []);
                woken.extend(ownership.set(late.clone(), []));
            }
            assert_eq!(woken, std::slice::from_ref(&removes.key));
            ownership.set(removes.clone(), &[target("demo")]);
            assert_eq!(decide(&mut ownership), SOLE);
            assert_eq!(ownership.let_go(&removes.key), [], "it waits for nobody");
        }
    }

    #[test]
    fn of_those_that_wait_for_each_other_the_last_one_that_is_located_is_planned_again_too() {
        let mut ownership = OwnershipIndex::default();
        let both = ["one", "two"].map(|name| contender(name, None));
        both.iter().for_each(|one| ownership.expect(&one.key));
        // Each plans before the other is located, because its guest fails: that locates it at the end of its reconcile.
        for one in &both {
            assert_eq!(ownership.wait_for_located(&one.key), 1);
        }
        let [one, two] = both.clone();
        assert_eq!(ownership.keep(one, &[]), []);
        let keys = both.each_ref().map(|one| one.key.clone());
        assert_eq!(ownership.keep(two, &[]), keys);
        for one in both {
            assert_eq!(ownership.wait_for_located(&one.key), 0);
            assert_eq!(ownership.keep(one, &[]), [], "it waits for nobody");
        }
    }

    #[test]
    fn a_primary_whose_guest_did_not_say_what_it_wants_is_undecided_until_it_does() {
        let mut ownership = OwnershipIndex::default();
        let [gone, silent, late] = ["gone", "silent", "late"].map(|name| contender(name, None));
        let waits = vec![gone.key.clone()];
        [&silent, &late]
            .into_iter()
            .for_each(|one| ownership.expect(&one.key));
        assert_eq!(ownership.wait_for_known(&gone.key), 2);
        assert_eq!(
            ownership.wait_for_known(&silent.key),
            1,
            "it does not wait for itself"
        );
        assert!(ownership.set(late.clone(), &[]).is_empty());
        // Its stamp says what it had, and not what it wants.
        let woken = ownership.keep(silent.clone(), &[target("demo")]);
        let both = [gone.key.clone(), silent.key.clone()];
        assert_eq!(woken, both, "the last one is located");
        assert_eq!(ownership.wait_for_known(&gone.key), 1);
        assert!(ownership.keep(silent.clone(), &[]).is_empty());
        assert_eq!(ownership.wait_for_known(&gone.key), 1);
        assert_eq!(ownership.set(silent.clone(), &[]), waits);
        assert_eq!(ownership.wait_for_known(&gone.key), 0);
        assert!(ownership.keep(silent.clone(), &[]).is_empty());
        assert_eq!(ownership.wait_for_known(&gone.key), 0, "it said so before");
        let again = contender("again", None);
        ownership.keep(again.clone(), &[]);
        assert_eq!(ownership.wait_for_known(&gone.key), 1);
        // Who waits is gone, so nobody waits for it; nor does one that waits for itself.
        let nothing = Contender {
            uid: String::new(),
            ..gone.clone()
        };
        ownership.keep(nothing, &[]);
        assert_eq!(ownership.wait_for_known(&late.key), 1);
        let both = vec![gone.key.clone(), late.key.clone()];
        assert_eq!(ownership.remove(&again.key), both);
        assert_eq!(ownership.wait_for_known(&gone.key), 0);
        let [one, two] = ["one", "two"].map(|name| contender(name, None));
        for waits in [&one, &two] {
            ownership.keep(waits.clone(), &[]);
        }
        assert_eq!(ownership.wait_for_known(&one.key), 1);
        assert_eq!(ownership.set(two, &[]), std::slice::from_ref(&one.key));
        assert_eq!(ownership.wait_for_known(&one.key), 0);
    }

    #[test]
    fn ownership_goes_by_labels_then_age_then_namespace_then_name() {
        let (old, young, ageless) = (
            contender("z", Some(1)),
            contender("y", Some(2)),
            contender("a", None),
        );
        assert_eq!(owner(std::slice::from_ref(&young), None), young.key);
        assert_eq!(
            owner(&[young.clone(), old.clone(), ageless.clone()], None),
            old.key
        );
        assert_eq!(owner(&[young.clone(), ageless.clone()], None), young.key);
        assert_eq!(
            owner(&[young.clone(), old.clone()], Some(&stamp("y", "uid-y"))),
            young.key
        );
        assert_eq!(
            owner(
                &[young.clone(), old.clone()],
                Some(&stamp("y", "another uid"))
            ),
            old.key
        );
        assert_eq!(
            owner(&[young, old.clone()], Some(&stamp("nobody", "uid-y"))),
            old.key
        );
        let (first, second, third) = (
            in_namespace("a", "z"),
            in_namespace("b", "a"),
            in_namespace("b", "c"),
        );
        assert_eq!(
            owner(&[third.clone(), second.clone(), first.clone()], None),
            first.key
        );
        assert_eq!(owner(&[third, second.clone()], None), second.key);
    }

    #[test]
    fn a_younger_policy_does_not_win_when_the_older_is_suspended() {
        // In either order: the older one has a known target (suspended or not, the claim is the same), and the younger
        // one asks.
        for held_first in [true, false] {
            let mut ownership = OwnershipIndex::default();
            let (old, young) = (contender("old", Some(1)), contender("young", Some(2)));
            ownership.expect(&old.key);
            ownership.expect(&young.key);
            if held_first {
                ownership.set(old.clone(), &[target("demo")]);
            }
            ownership.set(young.clone(), &[target("demo")]);
            if !held_first {
                assert_eq!(
                    ownership.decide(&young.key, &target("demo"), None, true),
                    pending(1)
                );
                assert_eq!(
                    ownership.set(old.clone(), &[target("demo")]),
                    vec![young.key.clone()]
                );
            }
            assert_eq!(
                ownership.decide(&young.key, &target("demo"), None, true),
                owned_by(&old)
            );
            // It fails, is suspended or waits later: its claim stays until it has another target or is gone.
            assert_eq!(ownership.keep(old.clone(), &[]), []);
            assert_eq!(
                ownership.decide(&young.key, &target("demo"), None, true),
                owned_by(&old)
            );
            assert_eq!(ownership.remove(&old.key), vec![young.key.clone()]);
            assert_eq!(
                ownership.decide(&young.key, &target("demo"), None, true),
                SOLE
            );
        }
    }

    #[test]
    fn an_older_policy_does_not_take_objects_of_a_younger_one() {
        let mut ownership = OwnershipIndex::default();
        let (old, young) = (contender("old", Some(1)), contender("young", Some(2)));
        ownership.set(young.clone(), &[target("demo")]);
        ownership.set(old.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(
                &old.key,
                &target("demo"),
                Some(&stamp("young", "uid-young")),
                true
            ),
            owned_by(&young)
        );
    }

    #[test]
    fn what_was_left_to_others_of_a_policy_is_looked_at_again_when_the_last_of_them_leaves() {
        let mut ownership = OwnershipIndex::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| contender(name, None));
        let mut foreign = contender("foreign", None);
        foreign.key.policy = "other".into();
        assert!(!ownership.leaves_to_sibling(&target("demo"), &a.key));
        for contender in [&b, &c, &foreign] {
            ownership.set(contender.clone(), &[target("demo")]);
        }
        assert!(ownership.leaves_to_sibling(&target("demo"), &a.key));
        ownership.decide(&b.key, &target("demo"), None, true);
        ownership.removes(&c.key, BTreeSet::from([target("demo")]));
        assert_eq!(ownership.let_go(&c.key), []);
        let woken = ownership.set(b.clone(), []);
        assert_eq!(
            woken,
            [a.key, foreign.key],
            "another policy takes over nothing"
        );
        assert_eq!(ownership.remove(&b.key), [], "once is enough");
    }

    #[test]
    fn a_release_requeues_the_losing_policies() {
        let mut ownership = OwnershipIndex::default();
        let (a, b) = (contender("a", Some(1)), contender("b", Some(2)));
        assert_eq!(ownership.set(a.clone(), &[target("demo")]), []);
        assert_eq!(ownership.set(b.clone(), &[target("demo")]), []);
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), None, true),
            owned_by(&a)
        );
        assert_eq!(
            ownership.set(a.clone(), &[target("demo")]),
            [],
            "claiming the same again releases nothing"
        );
        assert_eq!(
            ownership.set(a.clone(), &[target("elsewhere")]),
            vec![b.key.clone()]
        );
        assert_eq!(ownership.decide(&b.key, &target("demo"), None, true), SOLE);
        ownership.set(a.clone(), &[target("demo")]);
        assert_eq!(ownership.remove(&a.key), vec![b.key.clone()]);
        assert!(ownership.leaves_to_sibling(&target("demo"), &a.key));
        assert_eq!(
            ownership.remove(&b.key),
            vec![a.key],
            "what it left to b is there, unless b took it over"
        );
        assert!(ownership.by_target.is_empty() && ownership.targets_of.is_empty());
    }

    #[test]
    fn nothing_unmanaged_is_written_before_all_targets_are_known() {
        let mut ownership = OwnershipIndex::default();
        let (a, b, c) = (
            contender("a", Some(1)),
            contender("b", Some(2)),
            contender("c", Some(3)),
        );
        for key in [&a.key, &b.key, &c.key] {
            ownership.expect(key);
        }
        ownership.set(b.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), None, true),
            pending(2)
        );
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), Some(&stamp("b", "uid-b")), true),
            Ownership::Owner {
                rivals: Rivals::Unlocated(2)
            },
            "it is kept, and not removed yet"
        );
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), Some(&stamp("a", "uid-a")), true),
            pending(2)
        );
        assert_eq!(
            ownership.keep(c, &[]),
            [],
            "a primary without a target counts as located"
        );
        assert_eq!(
            ownership.set(a.clone(), &[target("demo")]),
            vec![b.key.clone()]
        );
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), None, true),
            owned_by(&a)
        );
    }

    #[test]
    fn neither_of_two_possible_owners_wins_by_being_first() {
        let of = |policy: &str, contender: Contender| Contender {
            key: Key::new(&policy.into(), &contender.key.primary),
            ..contender
        };
        let (old, young) = (
            of("b", contender("old", Some(1))),
            of("a", contender("young", Some(2))),
        );
        let mut ownership = OwnershipIndex::default();
        let rules = |namespace: &str| {
            let mut manifest = kubeconfig_manifest();
            manifest["spec"]["grant"]["write"][0]["namespace"] = namespace.into();
            manifest["metadata"]["name"] = "b".into();
            policy(&manifest)
        };
        ownership.reaches(&rules("klusterlet-*"));
        for contender in [&old, &young] {
            ownership.expect(&contender.key);
        }
        ownership.set(young.clone(), &[target("demo")]);
        // It does not wait forever for other policies: later the caller passes `others: false`.
        assert_eq!(
            ownership.decide(&young.key, &target("demo"), None, false),
            SOLE
        );
        assert_eq!(
            ownership.decide(&young.key, &target("demo"), None, true),
            pending(1)
        );
        assert_eq!(
            ownership.set(old.clone(), &[target("demo")]),
            vec![young.key.clone()]
        );
        assert_eq!(
            ownership.decide(&young.key, &target("demo"), None, true),
            owned_by(&old)
        );
        // It does not wait for a removed policy, nor for one with targets elsewhere.
        ownership.expect(&old.key);
        ownership.remove(&young.key);
        ownership.set(young.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&young.key, &target("demo"), None, true),
            pending(1)
        );
        assert_eq!(
            ownership.remove_policy(&old.key.policy),
            vec![young.key.clone()]
        );
        ownership.reaches(&rules("elsewhere-*"));
        ownership.expect(&old.key);
        assert_eq!(
            ownership.decide(&young.key, &target("demo"), None, true),
            SOLE
        );
    }

    #[test]
    fn the_last_pending_contender_may_also_disappear() {
        let mut ownership = OwnershipIndex::default();
        let (a, b) = (contender("a", Some(1)), contender("b", Some(2)));
        ownership.expect(&a.key);
        ownership.expect(&b.key);
        ownership.set(b.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), None, true),
            pending(1)
        );
        assert_eq!(ownership.remove(&a.key), vec![b.key.clone()]);
        assert_eq!(ownership.decide(&b.key, &target("demo"), None, true), SOLE);
    }

    #[test]
    fn an_owner_knows_whether_other_policies_want_its_target() {
        let (first, second) = (contender("a", Some(1)), contender("b", Some(2)));
        let mut other = contender("a", Some(3));
        other.key.policy = "other".into();
        let mut ownership = OwnershipIndex::default();
        for (contender, expected) in [
            (&first, Rivals::None),
            (&second, Rivals::OfPolicy),
            (&other, Rivals::OfOthers),
        ] {
            ownership.set(contender.clone(), &[target("demo")]);
            let decided = ownership.decide(&first.key, &target("demo"), None, true);
            assert_eq!(decided, Ownership::Owner { rivals: expected });
        }
    }

    #[test]
    fn a_suspended_policy_keeps_its_claim() {
        let mut ownership = OwnershipIndex::default();
        let (a, b) = (contender("a", Some(2)), contender("b", Some(1)));
        ownership.keep(a.clone(), &[target("demo")]);
        ownership.set(b.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), Some(&stamp("a", "uid-a")), true),
            owned_by(&a)
        );
        ownership.set(a.clone(), &[target("elsewhere")]);
        ownership.keep(a.clone(), &[target("demo")]);
        assert_eq!(
            ownership.targets(&a.key),
            Some(&BTreeSet::from([target("elsewhere")])),
            "what it wants counts more than an old stamp"
        );
    }

    #[test]
    fn an_owner_unreadable_at_startup_keeps_its_objects_until_it_is_gone() {
        let unreadable = || Contender {
            key: key("a"),
            uid: String::new(),
            created_seconds: None,
        };
        let (mut ownership, b, stamp) = (
            OwnershipIndex::default(),
            contender("b", Some(1)),
            stamp("a", "uid-a"),
        );
        ownership.expect(&key("a"));
        ownership.keep(unreadable(), &[target("demo")]);
        ownership.set(b.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), Some(&stamp), true),
            Ownership::OwnedBy {
                owner: key("a"),
                stands_in: false,
            }
        );
        assert_eq!(ownership.remove(&key("a")), vec![b.key.clone()]);
        ownership.keep(unreadable(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&b.key, &target("demo"), Some(&stamp), true),
            SOLE
        );
    }

    #[test]
    fn waits_for_the_owner_named_by_the_labels() {
        let mut ownership = OwnershipIndex::default();
        let mut theirs = contender("a", Some(9));
        theirs.key.policy = "other".into();
        let mut stamp = stamp("a", "uid-a");
        stamp.policy = "other".to_owned();
        let ours = contender("b", Some(1));
        ownership.expect(&theirs.key);
        ownership.set(ours.clone(), &[target("demo")]);
        assert_eq!(
            ownership.decide(&ours.key, &target("demo"), Some(&stamp), true),
            pending(1)
        );
        assert_eq!(
            ownership.set(theirs.clone(), &[target("demo")]),
            vec![ours.key.clone()]
        );
        assert_eq!(
            ownership.decide(&ours.key, &target("demo"), Some(&stamp), true),
            owned_by(&theirs)
        );
        assert_eq!(ownership.remove_policy("other"), vec![ours.key.clone()]);
        assert_eq!(
            ownership.decide(&ours.key, &target("demo"), Some(&stamp), true),
            SOLE
        );
    }

    #[test]
    fn of_many_that_share_a_target_only_the_next_one_is_woken() {
        let mut ownership = OwnershipIndex::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| contender(name, Some(1)));
        for one in [&a, &b, &c] {
            assert_eq!(ownership.set(one.clone(), &[target("demo")]), []);
            ownership.decide(&one.key, &target("demo"), None, true);
        }
        assert_eq!(ownership.remove(&c.key), [], "it owned nothing");
        ownership.set(c.clone(), &[target("demo")]);
        assert_eq!(ownership.remove(&a.key), std::slice::from_ref(&b.key));
        ownership.decide(&b.key, &target("demo"), None, true);
        assert_eq!(ownership.remove(&c.key), [b.key], "it may adopt now");
    }

    #[test]
    fn a_copy_in_pieces_knows_the_same() {
        let mut ownership = OwnershipIndex::default();
        let all = ["a", "b", "c", "d"].map(|name| contender(name, Some(1)));
        for one in &all {
            let own = target(&one.key.primary.name);
            ownership.set(one.clone(), &[target("demo"), own]);
            ownership.decide(&one.key, &target("demo"), None, true);
        }
        ownership.answered(&key("b"), None);
        ownership.reaches(&policy(&kubeconfig_manifest()));
        ownership.expect(&key("e"));
        ownership.decide(&all[0].key, &target("a"), None, true);
        for most in 1..6 {
            let (mut copy, mut from, mut pieces) = (OwnershipIndex::default(), Bound::Unbounded, 0);
            while let Some(last) = ownership.copy(&mut copy, from, most) {
                from = Bound::Excluded(last);
                pieces += 1;
            }
            ownership.copy_rest(&mut copy);
            assert_eq!(
                (copy, pieces),
                (ownership.clone(), all.len().div_ceil(most))
            );
        }
    }

    #[test]
    fn many_are_expected_at_once() {
        let mut ownership = OwnershipIndex::default();
        let expected = HashSet::from([key("a"), key("b")]);
        ownership.expect_all(&key("a").policy, HashSet::new());
        assert_eq!(ownership, OwnershipIndex::default());
        ownership.expect_all(&key("a").policy, expected);
        ownership.expect_all(&key("a").policy, HashSet::from([key("b"), key("c")]));
        assert_eq!(ownership.remaining(&key("a").policy), 3);
        assert!(ownership.expects(&key("c")) && !ownership.expects(&key("d")));
    }
}
