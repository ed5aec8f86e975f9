//! Which policies may not work side by side: two that own one taint key of the same objects would overwrite each
//! other for ever, and of two with one finalizer the first to clean up would release the object for both.

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

/// Whether two policies own a mark of the same objects.
pub fn clash(one: &Policy, other: &Policy) -> bool {
    let meets = |mark| marks(other).any(|owned| owned == mark) && meet(mark, one, other);
    marks(one).any(meets)
}

/// The candidates whose newest revision is refused, each with `TaintKeyTaken` or `FinalizerTaken`, and the policy that
/// keeps the key or finalizer. The active revision of a refused candidate goes on and keeps its own. The order of the
/// candidates does not change the answer.
pub fn refused(candidates: &[LoadCandidate<'_>]) -> BTreeMap<Arc<str>, Refusal> {
    let mut owners = Owners::default();
    for candidate in candidates {
        owners.add(candidate, candidate.newest);
    }
    let mut waiting = owners.refuse();
    // A candidate that lost to another loser may find its marks free again.
    waiting.sort_by_key(|one| (one.created_seconds.unwrap_or(i64::MAX), &one.newest.name));
    let mut at = 0;
    while let Some(candidate) = waiting.get(at).copied() {
        if owners.is_taken(candidate.newest) {
            at += 1;
            continue;
        }
        waiting.remove(at);
        if let Some(active) = candidate.active {
            // Its former marks may be free for those before it.
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

/// What only one policy may own on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark<'c> {
    /// A taint key on the primaries of a connection.
    TaintKey { cluster: &'c str, key: &'c str },
    /// A finalizer on the primaries of a connection.
    Finalizer { cluster: &'c str, name: &'c str },
}

/// The marks of a policy.
fn marks(policy: &Policy) -> impl Iterator<Item = Mark<'_>> {
    let cluster = &*policy.primary.cluster;
    let keys = policy.taint_keys();
    let keys = keys.map(move |key| Mark::TaintKey { cluster, key });
    let finalizer = policy.finalizer.as_deref();
    keys.chain(finalizer.map(|name| Mark::Finalizer { cluster, name }))
}

/// Whether two policies that own a mark meet on it. The primaries of policies with taint keys are ManagedClusters,
/// which have no namespace.
fn meet(mark: Mark<'_>, one: &Policy, other: &Policy) -> bool {
    match mark {
        Mark::TaintKey { .. } => true,
        Mark::Finalizer { .. } => one.primary.overlaps(&other.primary),
    }
}

/// A candidate with the revision that works: its newest one, or the active one where the newest is refused.
#[derive(Clone, Copy)]
struct Owner<'c> {
    candidate: &'c LoadCandidate<'c>,
    works: &'c Policy,
}

/// An owner of one mark.
struct Ranked<'c> {
    owner: Owner<'c>,
    /// Its active revision, if that owns the mark, too.
    active: Option<&'c Policy>,
}

impl<'c> Ranked<'c> {
    fn of(mark: Mark<'_>, owner: &Owner<'c>) -> Self {
        let owns = |policy: &&Policy| marks(policy).any(|owned| owned == mark);
        Self {
            owner: *owner,
            active: owner.candidate.active.filter(owns),
        }
    }

    /// Decides who keeps the mark where two meet: the one whose active revision owns it there, then the oldest, then
    /// the first by name.
    fn rank(&self, mark: Mark<'_>, other: &Self) -> (Reverse<bool>, i64, &'c str) {
        let candidate = self.owner.candidate;
        let holds = |active: &Policy| meet(mark, active, other.owner.works);
        (
            Reverse(self.active.is_some_and(holds)),
            candidate.created_seconds.unwrap_or(i64::MAX),
            &candidate.newest.name,
        )
    }

    /// Whether this one keeps the mark and the other one loses it.
    fn takes(&self, mark: Mark<'_>, other: &Self) -> bool {
        meet(mark, self.owner.works, other.owner.works)
            && self.rank(mark, other) < other.rank(mark, self)
    }
}

/// Who owns each mark, in order of name.
#[derive(Default)]
struct Owners<'c>(BTreeMap<Mark<'c>, BTreeMap<&'c str, Owner<'c>>>);

impl<'c> Owners<'c> {
    fn add(&mut self, candidate: &'c LoadCandidate<'c>, works: &'c Policy) {
        for mark in marks(works) {
            let owners = self.0.entry(mark).or_default();
            owners.insert(&candidate.newest.name, Owner { candidate, works });
        }
    }

    fn remove(&mut self, candidate: &LoadCandidate<'_>, worked: &'c Policy) {
        for mark in marks(worked) {
            if let Some(owners) = self.0.get_mut(&mark) {
                owners.remove(&*candidate.newest.name);
            }
        }
    }

    /// Refuses all candidates that lose a mark to another one, until none does, and returns them.
    fn refuse(&mut self) -> Vec<&'c LoadCandidate<'c>> {
        let mut refused = BTreeMap::new();
        let mut changed: BTreeSet<Mark<'c>> = self.0.keys().copied().collect();
        while !changed.is_empty() {
            let losers = changed.iter().flat_map(|mark| self.losers(*mark));
            let losers = losers.filter(|loser| !refused.contains_key(&loser.newest.name));
            let losers: BTreeMap<_, _> = losers.map(|one| (&one.newest.name, one)).collect();
            changed.clear();
            for loser in losers.values() {
                self.remove(loser, loser.newest);
                if let Some(active) = loser.active {
                    self.add(loser, active);
                    changed.extend(marks(active));
                }
            }
            refused.extend(losers);
        }
        refused.into_values().collect()
    }

    /// The owners of a mark that lose it to another one.
    fn losers(&self, mark: Mark<'c>) -> Vec<&'c LoadCandidate<'c>> {
        let owners = self.0.get(&mark).into_iter().flat_map(BTreeMap::values);
        let mut ranked: Vec<_> = owners.map(|owner| Ranked::of(mark, owner)).collect();
        // Most lose to the first one.
        ranked.sort_by_key(|one| one.rank(mark, one));
        let loses = |one: &&Ranked<'c>| ranked.iter().any(|other| other.takes(mark, one));
        let losers = ranked.iter().filter(loses);
        losers.map(|one| one.owner.candidate).collect()
    }

    /// The marks of a policy that another working one owns, each with the first such owner.
    fn of_others(&self, policy: &'c Policy) -> impl Iterator<Item = (Mark<'c>, &'c str)> {
        marks(policy).filter_map(move |mark| {
            let mut owners = self.0.get(&mark)?.iter();
            let other = |(name, owner): &(&&str, &Owner<'_>)| {
                **name != &*policy.name && meet(mark, owner.works, policy)
            };
            Some((mark, *owners.find(other)?.0))
        })
    }

    fn is_taken(&self, policy: &'c Policy) -> bool {
        self.of_others(policy).next().is_some()
    }

    /// The refusal of a policy when another working policy owns one of its marks.
    fn taken(&self, policy: &'c Policy) -> Option<Refusal> {
        let (name, kind) = (&policy.name, &policy.primary.kind);
        let (mark, winner) = self.of_others(policy).min()?;
        let (reason, message) = match mark {
            Mark::TaintKey { cluster, key } => (
                KnownReason::TaintKeyTaken,
                format!(
                    "spec.grant.write: the policies `{name}` and `{winner}` both own the taint key `{key}` of every \
                     {kind} of the connection `{cluster}`; `{winner}` keeps it"
                ),
            ),
            Mark::Finalizer {
                cluster,
                name: finalizer,
            } => (
                KnownReason::FinalizerTaken,
                format!(
                    "spec.grant.finalizer: the policies `{name}` and `{winner}` both keep the finalizer \
                     `{finalizer}` on a {kind} of the connection `{cluster}`; `{winner}` keeps it"
                ),
            ),
        };
        Some(Refusal::new(reason, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{kubeconfig_manifest, objects_manifest, policy, taints_manifest, with};
    use proptest::prelude::*;
    use serde_json::Value;
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

    /// A policy with a finalizer, and its primaries.
    fn keeping(name: &str, finalizer: &str, primary: &Value) -> Policy {
        let mut manifest = objects_manifest();
        manifest["metadata"]["name"] = json!(name);
        manifest["spec"]["grant"]["finalizer"] = json!(finalizer);
        for (field, value) in primary.as_object().unwrap() {
            manifest["spec"]["primary"][field] = value.clone();
        }
        policy(&manifest)
    }

    #[test]
    fn a_finalizer_has_one_keeper_on_an_object() {
        let labels = |expression: Value| json!({"labels": {"matchExpressions": [expression]}});
        let one_of =
            |values: &[&str]| labels(json!({"key": "k", "operator": "In", "values": values}));
        let is = |operator: &str| labels(json!({"key": "k", "operator": operator}));
        let not =
            |values: &[&str]| labels(json!({"key": "k", "operator": "NotIn", "values": values}));
        let hosted = |namespaces: &[&str]| {
            json!({"apiVersion": "hypershift.openshift.io/v1beta1",
            "kind": "HostedCluster", "namespaces": namespaces})
        };
        for (first, second, refused) in [
            (json!({}), json!({}), true),
            (json!({}), one_of(&["a"]), true),
            (one_of(&["a", "b"]), one_of(&["b"]), true),
            (one_of(&["a"]), one_of(&["b"]), false),
            (one_of(&["a"]), not(&["a", "b"]), false),
            (one_of(&["a", "c"]), not(&["a", "b"]), true),
            (is("DoesNotExist"), one_of(&["a"]), false),
            (is("DoesNotExist"), is("Exists"), false),
            (is("DoesNotExist"), not(&["a"]), true),
            (json!({}), json!({"cluster": "hub"}), false),
            (json!({}), hosted(&["*"]), false),
            (hosted(&["a", "b-*"]), hosted(&["c", "b-1"]), true),
            (hosted(&["a", "b-*"]), hosted(&["c", "d-*"]), false),
            (hosted(&["a-*"]), hosted(&["*-b"]), true),
        ] {
            let (a, b) = (keeping("a", "x/y", &first), keeping("b", "x/y", &second));
            for candidates in [[new(&a), new(&b)], [new(&b), new(&a)]] {
                let expected: &[&str] = if refused { &["b"] } else { &[] };
                assert_eq!(names(&candidates), expected, "{first} {second}");
            }
            let other = keeping("b", "x/z", &second);
            assert_eq!(names(&[new(&a), new(&other)]), Vec::<String>::new());
        }
    }

    #[test]
    fn a_finalizer_stays_with_the_policy_that_is_active_on_the_objects() {
        let hosted = |namespaces: &[&str]| {
            json!({"apiVersion": "hypershift.openshift.io/v1beta1",
            "kind": "HostedCluster", "namespaces": namespaces})
        };
        let of = |name, namespaces: &[&str]| keeping(name, "x/y", &hosted(namespaces));
        for (actives, newest, refused) in [
            // `a` comes to where `b` is active, and the other way round.
            ((&["1"], &["2"]), (&["1", "2"][..], &["2"][..]), &["a"][..]),
            ((&["1"], &["2"]), (&["1"], &["1", "2"]), &["b"]),
            // Each comes to where the other one is: both stay where they are.
            ((&["1"], &["2"]), (&["1", "2"], &["1", "2"]), &["a", "b"]),
            ((&["1"], &["2"]), (&["2"], &["1"]), &[]),
            ((&["1"], &["2"]), (&["1", "3"], &["2", "3"]), &["b"]),
        ] {
            let (a, b) = (of("a", newest.0), of("b", newest.1));
            let (before_a, before_b) = (of("a", actives.0), of("b", actives.1));
            let [a, b] = [working(&before_a, new(&a)), working(&before_b, new(&b))];
            assert_eq!(names(&[a, b]), refused, "{newest:?}");
            assert_eq!(names(&[b, a]), refused, "{newest:?}");
        }
    }

    #[test]
    fn a_refused_finalizer_names_both_policies() {
        let (a, b) = (
            keeping("a", "x/y", &json!({})),
            keeping("b", "x/y", &json!({})),
        );
        let refused = refused(&[working(&b, new(&b)), new(&a)]);
        let refusal = &refused["a"];
        assert_eq!(refusal.reason, KnownReason::FinalizerTaken);
        assert_eq!(
            &*refusal.message,
            "spec.grant.finalizer: the policies `a` and `b` both keep the finalizer `x/y` on a ManagedCluster of the \
             connection `local`; `b` keeps it"
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
