//! Claims that end, and outputs that are left to others of a policy.

use super::claims::Claims;
use super::{Contender, OwnershipIndex};
use crate::reference::ObjectRef;
use crate::work::Key;
use std::collections::BTreeSet;

fn is_sibling(key: &Key, other: &Key) -> bool {
    other != key && other.policy == key.policy
}

impl Claims {
    /// Whether the one that has it after `key` takes it over: it is of its policy, and wanted it last, or has not been
    /// reconciled yet. One that is held keeps younger ones from it, and keys of other policies take over nothing.
    fn has_heir(&self, key: &Key) -> bool {
        let others = self.contenders.values().filter(|one| one.key != *key);
        let heir = match self.oldest().filter(|oldest| *oldest != key) {
            None => others.min_by_key(|one| one.rank()).map(|one| &one.key),
            oldest => oldest,
        };
        heir.is_some_and(|heir| heir.policy == key.policy && !self.idle.contains(heir))
    }
}

impl OwnershipIndex {
    /// Whether a key leaves an output to another key of its policy, which is about to take it over: a mere claim keeps
    /// nothing, least of all a credential of a cluster that is gone. When nobody takes it over any more, `key` is
    /// woken, because perhaps nobody did. What all primaries share is left to whoever claims it.
    pub fn leaves_to_sibling(&mut self, target: &ObjectRef, key: &Key) -> bool {
        let removes = self.removed_by.get(key);
        let removes = removes.is_some_and(|removed| removed.contains(target));
        // Its own claim keeps all others away.
        let claims = self.wants(key, target) && !removes;
        let is_kept = claims && !self.is_shared(&key.policy, target);
        let leaves = !is_kept && self.has_heir(target, key);
        if leaves && let Some(claims) = self.by_target.get_mut(target) {
            claims.former = Some(key.clone());
        }
        leaves
    }

    fn has_heir(&self, target: &ObjectRef, key: &Key) -> bool {
        let Some(claims) = self.by_target.get(target) else {
            return false;
        };
        match self.is_shared(&key.policy, target) {
            true => claims.contenders.keys().any(|one| is_sibling(key, one)),
            false => claims.has_heir(key),
        }
    }

    /// The key that left a target to others, once nobody takes it over any more.
    fn without_heir(&mut self, target: &ObjectRef) -> Option<Key> {
        let former = self.by_target.get(target)?.former.as_ref()?;
        match self.has_heir(target, former) {
            true => None,
            false => self.by_target.get_mut(target)?.former.take(),
        }
    }

    /// A reconcile of a key ended. `left_out`: the targets that its answer does not make; `None` without an answer, as
    /// of a primary that is held. Returns the keys that left a target to others, and that nobody takes it over from.
    pub fn answered(&mut self, key: &Key, left_out: Option<&BTreeSet<ObjectRef>>) -> Vec<Key> {
        let mut left = Vec::new();
        for target in self.targets_of.get(key).into_iter().flatten() {
            let Some(claims) = self.by_target.get_mut(target) else {
                continue;
            };
            match left_out.is_some_and(|left_out| !left_out.contains(target)) {
                true => claims.idle.remove(key),
                false => claims.idle.insert(key.clone()),
            };
            left.extend(claims.former.is_some().then(|| target.clone()));
        }
        let left = left.iter();
        left.filter_map(|target| self.without_heir(target))
            .collect()
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
    /// siblings is woken when nobody takes it over any more.
    pub(super) fn leave(&mut self, target: &ObjectRef, key: &Key) -> [Option<Key>; 2] {
        let Some(claims) = self.by_target.get_mut(target) else {
            return [None, None];
        };
        let stays = !claims.is_up(key);
        claims.leave(key);
        if claims.owner.as_ref() == Some(key) {
            claims.keep(None);
            claims.unsure = false;
        }
        let wakes = !stays || claims.contenders.len() == 1;
        let next = wakes.then(|| claims.next().cloned()).flatten();
        let is_last = claims.contenders.is_empty();
        let former = self.without_heir(target);
        if is_last {
            self.by_target.remove(target);
        }
        [next, former.filter(|former| former != key)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{key, kubeconfig_manifest, policy, target, with};
    use serde_json::json;

    /// What happens to `b` and `c`, which claim what `a` leaves: `b` wants it, `b-` is held, `b!` leaves it out of its
    /// answer, `b/` is gone, `b@` claims it no more. Returns whether `a` is woken.
    fn happens(index: &mut OwnershipIndex, target: &ObjectRef, event: &str) -> bool {
        let (name, how) = event.split_at(1);
        let woken = match how {
            "" => index.answered(&key(name), Some(&BTreeSet::new())),
            "-" => index.answered(&key(name), None),
            "!" => index.answered(&key(name), Some(&BTreeSet::from([target.clone()]))),
            "/" => index.remove(&key(name)),
            _ => index.set(Contender::of(&key(name), None), []),
        };
        woken.contains(&key("a"))
    }

    #[test]
    fn an_output_is_left_only_to_those_that_are_about_to_take_it_over() {
        // The next one is `b`. What happened to both before `a` leaves it, whether it is left to them, and the later
        // events that wake `a`.
        for (before, is_left, after, woken) in [
            // Whoever was not reconciled yet may take it over, until that reconcile ended.
            ("", true, "b c b c-", ""),
            ("b c", true, "b- b", "b-"),
            ("b c", true, "b/ c c-", "c-"),
            ("c-", true, "b!", "b!"),
            ("c-", true, "b@", "b@"),
            ("", true, "b@ c/", "c/"),
            ("b- b", true, "", ""),
            ("b-", false, "b- c-", ""),
            ("b- c", false, "", ""),
            ("b! c", false, "", ""),
            ("b- b/", true, "", ""),
            ("b/ c-", false, "", ""),
        ] {
            let index = &mut OwnershipIndex::default();
            for name in ["b", "c"] {
                index.set(Contender::of(&key(name), None), [&target("demo")]);
            }
            let mut other = Contender::of(&key("z"), None);
            other.key.policy = "other".into();
            index.set(other, [&target("demo")]);
            for event in before.split_whitespace() {
                happens(index, &target("demo"), event);
            }
            let leaves = index.leaves_to_sibling(&target("demo"), &key("a"));
            assert_eq!(leaves, is_left, "{before}");
            let after = after.split_whitespace();
            let woke = after.filter(|event| happens(index, &target("demo"), event));
            assert_eq!(woke.collect::<Vec<_>>().join(" "), woken, "{before}");
        }
    }

    #[test]
    fn nothing_is_left_while_an_older_one_of_another_policy_is_next() {
        let mut index = OwnershipIndex::default();
        index.set(Contender::of(&key("b"), None), [&target("demo")]);
        assert!(index.leaves_to_sibling(&target("demo"), &key("a")));
        let mut older = Contender::of(&key("a"), None);
        older.key.policy = "other".into();
        index.set(older.clone(), [&target("demo")]);
        assert_eq!(index.answered(&older.key, None), [key("a")]);
        assert!(!index.leaves_to_sibling(&target("demo"), &key("a")));
    }

    #[test]
    fn who_still_claims_an_output_leaves_it_to_nobody_unless_its_answer_removes_it() {
        let mut index = OwnershipIndex::default();
        for name in ["a", "b"] {
            index.set(Contender::of(&key(name), None), [&target("demo")]);
        }
        index.answered(&key("b"), Some(&BTreeSet::new()));
        assert!(!index.leaves_to_sibling(&target("demo"), &key("a")));
        index.removes(&key("a"), BTreeSet::from([target("demo")]));
        assert!(index.leaves_to_sibling(&target("demo"), &key("a")));
    }

    #[test]
    fn what_all_share_is_left_to_whoever_claims_it() {
        let shared = [
            ("/spec/grant/write/0/namespace", json!("shared")),
            ("/spec/own/keepUntilAbsent", json!([])),
        ];
        let mut object = target("demo");
        object.namespace = Some("shared".to_owned());
        let mut index = OwnershipIndex::default();
        index.reaches(&policy(&with(kubeconfig_manifest(), &shared)));
        for name in ["a", "b"] {
            index.set(Contender::of(&key(name), None), [&object]);
        }
        index.answered(&key("b"), None);
        assert!(index.leaves_to_sibling(&object, &key("a")));
        assert!(!happens(&mut index, &object, "b-"));
    }
}
