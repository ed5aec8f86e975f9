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
    let mut refused = BTreeSet::new();
    while let Some(found) = Some(losers(candidates, &refused)).filter(|found| !found.is_empty()) {
        refused.extend(found);
    }
    // A candidate that lost to another loser may find its keys free again.
    let mut waiting: Vec<_> = candidates
        .iter()
        .filter(|one| refused.contains(&one.newest.name))
        .collect();
    waiting.sort_by_key(|one| (one.created_seconds.unwrap_or(i64::MAX), &one.newest.name));
    loop {
        let owners = owners(candidates, &refused);
        let mut free = waiting.iter();
        let free = free.position(|one| taken(&owners, one.newest).is_none());
        let Some(free) = free else {
            let refusals = waiting.iter().filter_map(|one| {
                let refusal = taken(&owners, one.newest)?;
                Some((Arc::clone(&one.newest.name), refusal))
            });
            return refusals.collect();
        };
        refused.remove(&waiting.remove(free).newest.name);
    }
}

/// The candidates whose working revision owns a taint key, in order of name, by the cluster of their primaries and the
/// key.
type Owners<'c> = BTreeMap<(&'c str, &'c str), BTreeMap<&'c str, &'c LoadCandidate<'c>>>;

fn owners<'c>(candidates: &'c [LoadCandidate<'c>], refused: &BTreeSet<Arc<str>>) -> Owners<'c> {
    let mut owners = Owners::new();
    for candidate in candidates {
        if let Some(policy) = works(candidate, refused) {
            for key in policy.taint_keys() {
                let of_cluster = owners.entry((&policy.primary.cluster, key));
                let owners = of_cluster.or_default();
                owners.insert(&candidate.newest.name, candidate);
            }
        }
    }
    owners
}

/// The revision that a candidate works with: its newest, or the active one where the newest is refused.
fn works<'a>(candidate: &LoadCandidate<'a>, refused: &BTreeSet<Arc<str>>) -> Option<&'a Policy> {
    if refused.contains(&candidate.newest.name) {
        candidate.active
    } else {
        Some(candidate.newest)
    }
}

/// The candidates, not refused yet, that lose a key to another one.
fn losers(candidates: &[LoadCandidate<'_>], refused: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
    let mut losers = Vec::new();
    for ((_, key), owners) in owners(candidates, refused) {
        let winner = owners.values().map(|owner| owner.rank(key)).min();
        let others = owners.values();
        let others = others.filter(|owner| Some(owner.rank(key)) != winner);
        let names = others.map(|loser| Arc::clone(&loser.newest.name));
        losers.extend(names.filter(|name| !refused.contains(name)));
    }
    losers
}

/// The refusal of a policy when another working policy owns one of its keys.
fn taken(owners: &Owners<'_>, policy: &Policy) -> Option<Refusal> {
    let (name, cluster) = (&*policy.name, &*policy.primary.cluster);
    let other = |key| {
        let mut names = owners.get(&(cluster, key))?.keys();
        Some((key, names.find(|other| **other != name)?))
    };
    let (key, winner) = policy.taint_keys().filter_map(other).min()?;
    let kind = &policy.primary.kind;
    let message = format!(
        "spec.grant.write: the policies `{name}` and `{winner}` both own the taint key `{key}` of every \
         {kind} of the connection `{cluster}`; `{winner}` keeps it"
    );
    Some(Refusal::new(KnownReason::TaintKeyTaken, message))
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
