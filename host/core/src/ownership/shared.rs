//! Whose turn it is to write an object that all primaries of a policy share. That is its owner, until it had its turn
//! and could not: then the next one has it, so that nobody waits for what fails for another.

use super::OwnershipIndex;
use super::claims::Claims;
use crate::reference::ObjectRef;
use crate::work::Key;
use std::collections::BTreeSet;

impl Claims {
    /// Who may write it: its owner, or the oldest of its policy that has not passed; `None` when all have.
    fn turn(&self) -> Option<&Key> {
        let owner = self.owner.as_ref();
        if let Some(owner) = owner.filter(|owner| !self.passed.contains(owner)) {
            return Some(owner);
        }
        // Both are in order, and who has passed is a contender.
        let mut passed = self.passed.iter().peekable();
        let waiting = self.contenders.iter();
        let waiting = waiting.filter(|(key, _)| passed.next_if_eq(key).is_none());
        let is_sibling = |key: &Key| owner.is_none_or(|owner| owner.policy == key.policy);
        let waiting = waiting.filter(|(key, _)| is_sibling(key));
        self.first_waiting.of(waiting.map(|(_, one)| one))
    }

    /// Whose turn it is as one sees it that asks. One that has passed may try again whenever it asks, unless its owner
    /// has not: what failed may be over, and nobody would wake it for another turn.
    pub(super) fn turn_of(&self, key: &Key) -> Key {
        let owner = self.owner.as_ref();
        let has_passed = |owner: &Key| owner.policy == key.policy && self.passed.contains(owner);
        match self.passed.contains(key) && owner.is_none_or(has_passed) {
            true => key.clone(),
            false => self.turn().or(owner).unwrap_or(key).clone(),
        }
    }

    /// Who is to be woken when it becomes free.
    pub(super) fn next(&self) -> Option<&Key> {
        self.turn().or_else(|| self.oldest())
    }

    /// Whether others wait for this one.
    pub(super) fn is_up(&self, key: &Key) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner == key) || self.turn() == Some(key)
    }
}

impl OwnershipIndex {
    /// Whether all primaries of a policy share an object.
    pub fn is_shared(&self, policy: &str, target: &ObjectRef) -> bool {
        let shared = self.shared.get(policy);
        shared.is_some_and(|shared| shared.contains(target))
    }

    /// A reconcile of a key ended. `lacking`: the shared objects whose turn it had and that are still not as it wants
    /// them; `None` if it is not known what it wants of any. Returns the keys whose turn it is now.
    pub fn ended(&mut self, key: &Key, lacking: Option<&BTreeSet<ObjectRef>>) -> Vec<Key> {
        let shared = self.shared.get(&key.policy).into_iter().flatten();
        let mut woken = Vec::new();
        for target in shared {
            let Some(claims) = self.by_target.get_mut(target) else {
                continue;
            };
            let Some(contender) = claims.contenders.get(key) else {
                continue;
            };
            if lacking.is_some_and(|lacking| !lacking.contains(target)) {
                if claims.passed.remove(key) {
                    claims.first_waiting.came(contender);
                }
                continue;
            }
            let had_turn = claims.turn() == Some(key);
            claims.passed.insert(key.clone());
            claims.first_waiting.went(key);
            woken.extend(claims.turn().filter(|_| had_turn).cloned());
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::claims::Oldest;
    use crate::ownership::{Contender, Ownership};
    use crate::sample::{key, kubeconfig_manifest, policy, stamp, target, with};
    use proptest::prelude::*;
    use serde_json::json;

    const ALL: [&str; 3] = ["a", "b", "c"];

    fn shared() -> ObjectRef {
        ObjectRef {
            namespace: Some("shared".to_owned()),
            ..target("demo")
        }
    }

    fn contender(name: &str) -> Contender {
        Contender {
            key: key(name),
            uid: format!("uid-{name}"),
            created_seconds: Some(0),
        }
    }

    /// Three that want an object that all share, the oldest first.
    fn three() -> OwnershipIndex {
        let manifest = with(
            kubeconfig_manifest(),
            &[
                ("/spec/grant/write/0/namespace", json!("shared")),
                ("/spec/own/keepUntilAbsent", json!([])),
            ],
        );
        let mut index = OwnershipIndex::default();
        index.reaches(&policy(&manifest));
        for name in ALL {
            index.set(contender(name), &[shared()]);
        }
        index
    }

    /// What each of the three may do, in short: `+` writes, `+x` writes what x keeps, `x` waits for x.
    fn decided(index: &mut OwnershipIndex, stamped: Option<&str>) -> String {
        let stamp = stamped.map(|name| stamp(name, &format!("uid-{name}")));
        let all = ALL.map(|name| {
            let key = key(name);
            if !index.wants(&key, &shared()) {
                return "-".to_owned();
            }
            match index.decide(&key, &shared(), stamp.as_ref(), false) {
                Ownership::Owner { .. } => "+".to_owned(),
                Ownership::OwnedBy { owner, stands_in } => {
                    let sign = if stands_in { "+" } else { "" };
                    format!("{sign}{}", owner.primary.name)
                }
                Ownership::Pending { .. } => "?".to_owned(),
            }
        });
        all.join(" ")
    }

    /// A reconcile ended: `a` as wanted, `a!` without what it wants, `a?` before that was known; `a-`: it is gone.
    fn happens(index: &mut OwnershipIndex, event: &str) -> String {
        let (name, how) = event.split_at(1);
        let lacking = match how {
            "!" => BTreeSet::from([shared()]),
            _ => BTreeSet::new(),
        };
        let woken = match how {
            "-" => index.remove(&key(name)),
            "?" => index.ended(&key(name), None),
            _ => index.ended(&key(name), Some(&lacking)),
        };
        let woken = woken.iter().map(|key| key.primary.name.as_str());
        woken.collect::<Vec<_>>().concat()
    }

    #[test]
    fn who_cannot_write_a_shared_object_lets_the_next_one_try() {
        // Whose stamp it bears, what happens, who is woken by each of it, and what each of the three may do then.
        for (stamped, events, woken, expected) in [
            (None, "", "", "+ a a"),
            (None, "a!", "b", "+ + b"),
            (None, "a?", "b", "+ + b"),
            // Nobody else tried meanwhile, or all find it right.
            (None, "a", "", "+ a a"),
            (None, "b c", " ", "+ a a"),
            // It failed before, and its turn is not over twice.
            (None, "a! a!", "b ", "+ + b"),
            (None, "a! b!", "b c", "+ + +"),
            // All have tried: whoever is asked again tries again, and nobody is woken for it.
            (None, "a! b! c!", "b c ", "+ + +"),
            (None, "a! b! c! b?", "b c  ", "+ + +"),
            // One that could not have written it needs no turn.
            (None, "b? a!", " c", "+ + +"),
            // It is as the oldest wants it.
            (None, "a! b a", "b  ", "+ a a"),
            // Who goes wakes the next one, if it was its turn.
            (None, "a! b-", "b c", "+ - +"),
            (None, "a! c-", "b ", "+ + -"),
            (None, "a-", "b", "- + b"),
            // The same where one keeps it.
            (Some("b"), "", "", "b + b"),
            (Some("b"), "b!", "a", "+b + a"),
            (Some("b"), "b! a!", "a c", "+b + +b"),
            (Some("b"), "a! a?", " ", "b + b"),
            (Some("b"), "a? b? ", " c", "+b + +b"),
            (Some("b"), "b! b", "a ", "b + b"),
            (Some("b"), "b! b-", "a a", "+ - a"),
            // Of another policy, or one that is gone.
            (Some("z"), "a!", "b", "+ + b"),
        ] {
            let mut index = three();
            decided(&mut index, stamped);
            let events = events.split_whitespace();
            let told: Vec<String> = events.map(|event| happens(&mut index, event)).collect();
            let given = format!("{stamped:?} {told:?} {expected}");
            assert_eq!(told.join(" "), woken, "{given}");
            assert_eq!(decided(&mut index, stamped), expected, "{given}");
        }
    }

    #[test]
    fn what_each_primary_has_for_itself_is_tried_by_nobody_else() {
        let mut index = OwnershipIndex::default();
        index.reaches(&policy(&kubeconfig_manifest()));
        for name in ALL {
            index.set(contender(name), &[target("demo")]);
        }
        assert!(!index.is_shared("external", &target("demo")));
        assert_eq!(index.ended(&key("a"), None), []);
        let decided = index.decide(&key("b"), &target("demo"), None, false);
        assert!(matches!(decided, Ownership::OwnedBy { owner, .. } if owner == key("a")));
    }

    proptest! {
        #[test]
        fn who_is_next_does_not_depend_on_what_was_looked_for_before(
            events in proptest::collection::vec((0..5_usize, 0..4_i64, 0..5_u8, 0..3_u8), 1..40),
        ) {
            let names = ["a", "b", "c", "d", "e"];
            let mut index = three();
            for (name, created, event, stamped) in events {
                let mut one = contender(names[name]);
                one.created_seconds = Some(created);
                if created == 3 {
                    one.key.policy = "other".into();
                }
                let key = one.key.clone();
                match event {
                    0 => drop(index.set(one, &[shared()])),
                    1 => drop(index.remove(&key)),
                    2 => drop(index.ended(&key, None)),
                    3 => drop(index.ended(&key, Some(&BTreeSet::new()))),
                    _ => drop(index.ended(&key, Some(&BTreeSet::from([shared()])))),
                }
                let stamp = ["a", "c"].get(usize::from(stamped)).map(|name| stamp(name, &format!("uid-{name}")));
                let mut anew = index.clone();
                for claims in anew.by_target.values_mut() {
                    (claims.oldest, claims.first_waiting) = (Oldest::default(), Oldest::default());
                }
                let decided = |index: &mut OwnershipIndex| {
                    let decision = index.decide(&key, &shared(), stamp.as_ref(), false);
                    let claims = index.by_target.get(&shared());
                    let next = claims.and_then(|claims| Some((claims.turn().cloned(), claims.next()?.clone())));
                    (decision, next)
                };
                prop_assert_eq!(decided(&mut index), decided(&mut anew));
            }
        }
    }

    #[test]
    fn another_policy_does_not_stand_in() {
        let mut index = three();
        let mut other = contender("b");
        other.key.policy = "other".into();
        index.set(other.clone(), &[shared()]);
        for name in ALL {
            decided(&mut index, None);
            index.ended(&key(name), None);
        }
        let decided = index.decide(&other.key, &shared(), None, false);
        assert!(matches!(decided, Ownership::OwnedBy { owner, .. } if owner == key("a")));
        index.remove_policy("external");
        assert!(!index.is_shared("external", &shared()));
    }
}
