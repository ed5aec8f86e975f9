//! Which policies may not work side by side: two that own one taint key of the same objects would overwrite each
//! other for ever.

use super::Refusal;
use crate::policy::Policy;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::KnownReason;

/// A policy to load, with its active revision.
#[derive(Clone, Copy, Debug)]
pub struct LoadCandidate<'a> {
    /// Its newest revision.
    pub newest: &'a Policy,
    /// The active revision, if there is one.
    pub active: Option<&'a Policy>,
    /// When the policy was created, in seconds since 1970; `None` where unknown.
    pub created_seconds: Option<i64>,
}

impl<'a> LoadCandidate<'a> {
    /// Decides which policy keeps a key: the one whose active revision owns it, then the oldest, then the first by
    /// name.
    fn rank(&self, key: &str) -> (Reverse<bool>, i64, &'a str) {
        let active = self.active.is_some_and(|policy| owns(policy, key));
        (
            Reverse(active),
            self.created_seconds.unwrap_or(i64::MAX),
            &self.newest.name,
        )
    }
}

/// The candidates whose newest revision is refused, each with `TaintKeyTaken` and the policy that keeps the key. The
/// active revision of a refused candidate goes on and keeps its keys. The order of the candidates does not change
/// the answer.
pub fn refused(candidates: &[LoadCandidate<'_>]) -> BTreeMap<Arc<str>, Refusal> {
    let mut owners = Owners::default();
    for candidate in candidates {
        owners.add(candidate, candidate.newest);
    }
    let mut waiting = owners.refuse();
    // A candidate that lost to another loser may find its keys free again.
    waiting.sort_by_key(|one| (one.created_seconds.unwrap_or(i64::MAX), &one.newest.name));
    let mut at = 0;
    while let Some(candidate) = waiting.get(at).copied() {
        if owners.is_taken(candidate.newest) {
            at += 1;
            continue;
        }
        waiting.remove(at);
        if let Some(active) = candidate.active {
            // Its former keys may be free for those before it.
            owners.remove(candidate, active);
            at = 0;
        }
        owners.add(candidate, candidate.newest);
    }
    let refusals = waiting.iter().filter_map(|one| {
        let refusal = owners.taken(one.newest)?;
        Some((Arc::clone(&one.newest.name), refusal))
    });
    refusals.collect()
}

/// A taint key, with the connection of the primaries.
type OwnedKey<'c> = (&'c str, &'c str);

/// The candidates whose working revision owns a taint key, in order of name, by key. A candidate works with its newest
/// revision, or with the active one where the newest is refused.
#[derive(Default)]
struct Owners<'c>(BTreeMap<OwnedKey<'c>, BTreeMap<&'c str, &'c LoadCandidate<'c>>>);

impl<'c> Owners<'c> {
    fn add(&mut self, candidate: &'c LoadCandidate<'c>, works: &'c Policy) {
        for key in keys(works) {
            let owners = self.0.entry(key).or_default();
            owners.insert(&candidate.newest.name, candidate);
        }
    }

    fn remove(&mut self, candidate: &LoadCandidate<'_>, worked: &'c Policy) {
        for key in keys(worked) {
            if let Some(owners) = self.0.get_mut(&key) {
                owners.remove(&*candidate.newest.name);
            }
        }
    }

    /// Refuses all candidates that lose a key to another one, until none does, and returns them.
    fn refuse(&mut self) -> Vec<&'c LoadCandidate<'c>> {
        let mut refused = BTreeMap::new();
        let mut changed: BTreeSet<OwnedKey<'c>> = self.0.keys().copied().collect();
        while !changed.is_empty() {
            let losers = changed.iter().flat_map(|key| self.losers(*key));
            let losers = losers.filter(|loser| !refused.contains_key(&loser.newest.name));
            let losers: BTreeMap<_, _> = losers.map(|one| (&one.newest.name, one)).collect();
            changed.clear();
            for loser in losers.values() {
                self.remove(loser, loser.newest);
                if let Some(active) = loser.active {
                    self.add(loser, active);
                    changed.extend(keys(active));
                }
            }
            refused.extend(losers);
        }
        refused.into_values().collect()
    }

    /// The owners of a key that lose it to another one.
    fn losers(&self, key: OwnedKey<'c>) -> impl Iterator<Item = &'c LoadCandidate<'c>> {
        let owners = self.0.get(&key);
        let owners = owners.into_iter().flat_map(BTreeMap::values).copied();
        let winner = owners.clone().map(|owner| owner.rank(key.1)).min();
        owners.filter(move |owner| Some(owner.rank(key.1)) != winner)
    }

    /// The keys of a policy that another working one owns, each with the first such owner.
    fn of_others(&self, policy: &'c Policy) -> impl Iterator<Item = (&'c str, &'c str)> {
        keys(policy).filter_map(|key| {
            let mut names = self.0.get(&key)?.keys();
            Some((key.1, *names.find(|other| **other != &*policy.name)?))
        })
    }

    fn is_taken(&self, policy: &'c Policy) -> bool {
        self.of_others(policy).next().is_some()
    }

    /// The refusal of a policy when another working policy owns one of its keys.
    fn taken(&self, policy: &'c Policy) -> Option<Refusal> {
        let (name, cluster, kind) = (&policy.name, &policy.primary.cluster, &policy.primary.kind);
        let (key, winner) = self.of_others(policy).min()?;
        let message = format!(
            "spec.grant.write: the policies `{name}` and `{winner}` both own the taint key `{key}` of every \
             {kind} of the connection `{cluster}`; `{winner}` keeps it"
        );
        Some(Refusal::new(KnownReason::TaintKeyTaken, message))
    }
}

/// The taint keys of a policy.
fn keys(policy: &Policy) -> impl Iterator<Item = OwnedKey<'_>> {
    let cluster = &*policy.primary.cluster;
    policy.taint_keys().map(move |key| (cluster, key))
}

/// Whether a policy owns a taint key. The primaries of such a policy are ManagedClusters, which have no namespace.
fn owns(policy: &Policy, key: &str) -> bool {
    policy
        .writes
        .iter()
        .any(|rule| rule.taint_keys.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{kubeconfig_manifest, objects_manifest, policy, taints_manifest, with};
    use proptest::prelude::*;
    use serde_json::json;

    fn owning(name: &str, cluster: &str, keys: &[&str]) -> Policy {
        let mut manifest = taints_manifest();
        manifest["metadata"]["name"] = json!(name);
        manifest["spec"]["primary"]["cluster"] = json!(cluster);
        manifest["spec"]["grant"]["write"][0]["taintKeys"] = json!(keys);
        policy(&manifest)
    }

    fn new(newest: &Policy) -> LoadCandidate<'_> {
        LoadCandidate {
            newest,
            active: None,
            created_seconds: None,
        }
    }

    fn local(name: &str, keys: &[&str]) -> Policy {
        owning(name, "local", keys)
    }

    /// A candidate with an active revision.
    fn working<'a>(active: &'a Policy, candidate: LoadCandidate<'a>) -> LoadCandidate<'a> {
        LoadCandidate {
            active: Some(active),
            ..candidate
        }
    }

    #[test]
    fn a_key_has_one_owner_whatever_the_world_of_its_guest() {
        let taints = local("a", &["x/1"]);
        let grant =
            json!([{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints[key=x/1]"]}]);
        let objects = policy(&with(objects_manifest(), &[("/spec/grant/write", grant)]));
        assert_eq!(names(&[new(&taints), new(&objects)]), ["sets"]);
    }

    fn names(candidates: &[LoadCandidate<'_>]) -> Vec<String> {
        refused(candidates)
            .into_keys()
            .map(|name| name.to_string())
            .collect()
    }

    #[test]
    fn refuses_a_second_owner_and_names_both_policies_and_the_key() {
        let (a, b) = (local("a", &["x/1", "x/2"]), local("b", &["x/2", "x/3"]));
        let refused = refused(&[new(&b), new(&a)]);
        let [(name, refusal)] = &refused.into_iter().collect::<Vec<_>>()[..] else {
            panic!("one is refused")
        };
        assert_eq!((&**name, refusal.reason), ("b", KnownReason::TaintKeyTaken));
        assert!(
            ["`a`", "`b`", "`x/2`", "`local`"]
                .iter()
                .all(|part| refusal.message.contains(part)),
            "{refusal:?}"
        );
    }

    #[test]
    fn only_the_same_key_of_the_same_cluster_is_taken() {
        let a = local("a", &["x/1"]);
        let (other_key, other_cluster) = (local("b", &["x/2"]), owning("c", "hub", &["x/1"]));
        let secrets = policy(&kubeconfig_manifest());
        assert_eq!(
            names(&[new(&a), new(&other_key), new(&other_cluster), new(&secrets)]),
            Vec::<String>::new()
        );
        let mut narrow = taints_manifest();
        narrow["metadata"]["name"] = json!("d");
        narrow["spec"]["primary"]["namespaces"] = json!(["nowhere"]);
        narrow["spec"]["grant"]["write"][0]["taintKeys"] = json!(["x/1"]);
        assert_eq!(
            names(&[new(&a), new(&policy(&narrow))]),
            ["d"],
            "namespaces divide no cluster-scoped kind"
        );
    }

    #[test]
    fn ownership_of_a_key_goes_by_active_then_age_then_name() {
        let (a, b) = (local("a", &["x/1"]), local("b", &["x/1"]));
        let aged = |policy, created| LoadCandidate {
            created_seconds: Some(created),
            ..new(policy)
        };
        assert_eq!(names(&[new(&a), new(&b)]), ["b"]);
        assert_eq!(names(&[aged(&a, 2), aged(&b, 1)]), ["a"]);
        assert_eq!(
            names(&[new(&a), aged(&b, 1)]),
            ["a"],
            "of unknown age is the younger one"
        );
        assert_eq!(names(&[aged(&a, 1), working(&b, aged(&b, 2))]), ["a"]);
        let elsewhere = local("b", &["x/9"]);
        assert_eq!(
            names(&[new(&a), working(&elsewhere, new(&b))]),
            ["b"],
            "it owns another key"
        );
    }

    #[test]
    fn a_released_key_is_free_in_the_same_step() {
        let (a, before, after) = (
            local("a", &["x/1"]),
            local("b", &["x/1"]),
            local("b", &["x/2"]),
        );
        assert_eq!(
            names(&[new(&a), working(&before, new(&after))]),
            Vec::<String>::new()
        );
        let (swapped_a, swapped_b) = (local("a", &["x/2"]), local("b", &["x/1"]));
        let active = local("b", &["x/2"]);
        let swapped = [
            working(&a, new(&swapped_a)),
            working(&active, new(&swapped_b)),
        ];
        assert_eq!(
            names(&swapped),
            Vec::<String>::new(),
            "two may change places"
        );
    }

    #[test]
    fn a_refused_policy_keeps_its_keys_and_others_wait_for_them() {
        let (b, b_wants) = (local("b", &["x/1"]), local("b", &["x/2"]));
        let (a, c) = (local("a", &["x/1"]), local("c", &["x/2"]));
        let candidates = [new(&a), working(&b, new(&b_wants)), working(&c, new(&c))];
        assert_eq!(
            names(&candidates),
            ["a", "b"],
            "c keeps x/2, so b keeps x/1, so a has to wait"
        );
    }

    #[test]
    fn losing_to_a_refused_policy_is_no_refusal() {
        let (a, b, c) = (
            local("a", &["x/1"]),
            local("b", &["x/1", "x/2"]),
            local("c", &["x/2"]),
        );
        assert_eq!(names(&[new(&c), new(&b), new(&a)]), ["b"]);
    }

    #[test]
    fn many_policies_for_the_same_keys_take_no_cube_of_their_number() {
        let all: Vec<String> = (0..64).map(|key| format!("x/{key}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let owner = local("a", &all);
        // The older half stays refused; of the other half each loses to one of these, and is free again after them.
        let half = 150;
        let lost = (0..half).map(|at| {
            let free = format!("z/{at}");
            local(&format!("b{at}"), &[&all[2..], &[&*free]].concat())
        });
        let free = (0..half).map(|at| local(&format!("c{at}"), &[&*format!("z/{at}")]));
        let others: Vec<Policy> = lost.chain(free).collect();
        let mut candidates = vec![new(&owner)];
        candidates.extend(others.iter().map(new));
        let refused = refused(&candidates);
        assert_eq!(refused.len(), half);
        assert!(refused.keys().all(|name| name.starts_with('b')));
    }

    proptest! {
        #[test]
        fn no_key_has_two_owners_in_any_order(
            wants in proptest::collection::vec((proptest::collection::vec(0..4_u8, 1..3), any::<bool>(), 0..3_i64), 1..6),
            turn in 0..6_usize,
        ) {
            let key = |number: &u8| format!("x/{number}");
            let texts = |numbers: &[u8]| numbers.iter().map(key).collect::<std::collections::BTreeSet<_>>();
            let newest: Vec<Policy> = wants.iter().enumerate().map(|(at, (keys, ..))| {
                let keys = texts(keys);
                owning(&format!("p{at}"), "local", &keys.iter().map(String::as_str).collect::<Vec<_>>())
            }).collect();
            // The active policies own one key each, all different.
            let active: Vec<Option<Policy>> = wants.iter().enumerate().map(|(at, (_, active, _))| {
                (*active && at < 4).then(|| owning(&format!("p{at}"), "local", &[&format!("x/{at}")]))
            }).collect();
            let mut candidates: Vec<LoadCandidate<'_>> = newest.iter().zip(&active).zip(&wants)
                .map(|((newest, active), (.., created))| LoadCandidate { newest, active: active.as_ref(), created_seconds: Some(*created) })
                .collect();
            let answer = refused(&candidates);
            let mut owners: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for candidate in &candidates {
                let policy = match answer.contains_key(&candidate.newest.name) { true => candidate.active, false => Some(candidate.newest) };
                for key in policy.into_iter().flat_map(Policy::taint_keys) {
                    owners.entry(key.to_owned()).or_default().push(&candidate.newest.name);
                }
            }
            prop_assert!(owners.values().all(|owners| owners.len() == 1), "{owners:?}");
            for candidate in candidates.iter().filter(|candidate| answer.contains_key(&candidate.newest.name)) {
                let others = |key: &str| owners[key] != [&*candidate.newest.name];
                prop_assert!(candidate.newest.taint_keys().any(|key| owners.contains_key(key) && others(key)), "refused for nothing");
            }
            let length = candidates.len();
            candidates.rotate_left(turn % length);
            prop_assert_eq!(answer, refused(&candidates));
        }
    }
}
