//! The plan of a fleet by value: what counts for its digest, how it is grouped, and that its size is bounded.

use super::*;
use crate::object::Object;
use crate::plan::Step;
use crate::plan::desired::Open;
use crate::sample::{hosted, object, stamp, target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_api::KnownReason;

const TOKEN: &str = "hunter2-hunter2";

fn cluster(name: &str) -> ObjectRef {
    ObjectRef::local(
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
        None,
        name,
    )
}

fn managed(name: &str, taints: Value) -> Object {
    object(
        cluster(name),
        json!({"metadata": {"name": name, "uid": "u"}, "spec": {"taints": taints}}),
    )
}

fn taint(key: &str, effect: &str, time: &str) -> Value {
    json!({"key": key, "effect": effect, "timeAdded": time})
}

/// What a reconcile writes that changes the taints of a cluster.
fn tainting(before: &Object, taints: Value) -> Writes {
    let step = Step::Patch {
        reference: before.reference.clone(),
        version: before.version.clone(),
        fields: vec![("spec.taints".to_owned(), taints)],
    };
    writes(&step, Some(before))
}

fn writes(step: &Step, before: Option<&Object>) -> Writes {
    let mut writes = Writes::default();
    writes.add([(step, before)], &Open::default());
    writes
}

/// A Secret with a kubeconfig.
fn secret(server: &str, token: &str) -> Object {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let data = STANDARD.encode(kubeconfig.to_string());
    let mut body =
        json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "data": {"kubeconfig": data}});
    stamp("a", "uid-a").put(&mut body);
    object(target("demo"), body)
}

fn updated(before: &Object, after: &Object) -> Writes {
    let step = Step::Update {
        desired: after.clone(),
        changed: vec!["data.kubeconfig".to_owned()],
    };
    writes(&step, Some(before))
}

fn key(primary: &ObjectRef) -> Key {
    Key::new(&"p".into(), primary)
}

/// A plan of primaries with what each of them writes, or the state in which it is.
fn plan(all: &[(Key, Writes, State)]) -> FleetPlan {
    listed(all, Listed::default())
}

fn listed(all: &[(Key, Writes, State)], listed: Listed) -> FleetPlan {
    let planned = all.iter().map(|(key, writes, state)| PlannedPrimary {
        key,
        state: *state,
        reason: match state {
            State::Applied => KnownReason::InSync.as_str(),
            State::Held => KnownReason::Suspended.as_str(),
            State::Waiting => KnownReason::OwnedByAnother.as_str(),
            State::Failed => KnownReason::GuestTrapped.as_str(),
        },
        message: "why",
        writes,
    });
    FleetPlan::of("p", planned, listed)
}

fn tainted(name: &str, key_of_taint: &str) -> (Key, Writes, State) {
    let before = managed(name, json!([]));
    let writes = tainting(&before, json!([taint(key_of_taint, "NoSelect", "1")]));
    (key(&before.reference), writes, State::Applied)
}

#[test]
fn counts_primaries_effects_and_groups() {
    let mut all: Vec<_> = (10..107)
        .map(|at| tainted(&format!("c{at}"), "x"))
        .collect();
    all.push(tainted("odd", "y"));
    for (name, state) in [
        ("a", State::Applied),
        ("h", State::Held),
        ("w", State::Waiting),
        ("f", State::Failed),
        ("g", State::Failed),
    ] {
        all.push((key(&cluster(name)), Writes::default(), state));
    }
    let plan = plan(&all);
    let shown = serde_json::to_value(&plan).unwrap();
    assert_eq!(
        shown["primaries"],
        json!({"total": 103, "unchanged": 1, "wouldChange": 98, "held": 1, "waiting": 1, "failed": 2})
    );
    let added = |element: &str, primaries: usize| json!({"kind": "ManagedCluster", "path": "spec.taints", "element": element, "verb": "added", "primaries": primaries});
    assert_eq!(shown["effects"], json!([added("x", 97), added("y", 1)]));
    let first: Vec<&str> = plan.groups[0]
        .first
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(
        (
            plan.groups.len(),
            plan.groups[0].primaries,
            plan.groups[1].primaries
        ),
        (2, 97, 1)
    );
    assert_eq!(
        first,
        [
            "c10", "c100", "c101", "c102", "c103", "c104", "c105", "c106", "c11", "c12"
        ]
    );
    let refused = plan
        .refusals
        .iter()
        .map(|one| (one.state, one.reason.as_str(), one.primaries));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [
            (State::Failed, "GuestTrapped", 2),
            (State::Waiting, "OwnedByAnother", 1),
            (State::Held, "Suspended", 1)
        ]
    );
    assert_eq!(plan.refusals[0].first[0].primary, cluster("f"));
    let again: FleetPlan = serde_json::from_value(shown).unwrap();
    assert_eq!(again, plan);
}

#[test]
fn the_digest_is_of_what_is_written_and_of_nothing_else() {
    let digest = |all: &[_]| plan(all).digest;
    let all = [tainted("a", "x"), tainted("b", "y")];
    let [one, other] = all.clone();
    let same = digest(&all);
    assert_eq!(digest(&[other.clone(), one.clone()]), same, "order");
    let idle = (key(&cluster("idle")), Writes::default(), State::Failed);
    assert_eq!(
        digest(&[one.clone(), other.clone(), idle]),
        same,
        "nothing to write"
    );
    assert_eq!(
        listed(
            &all,
            Listed {
                primaries: 0,
                bytes: 0
            }
        )
        .digest,
        same,
        "not listed"
    );
    assert_ne!(digest(std::slice::from_ref(&one)), same, "one less");
    assert_ne!(digest(&[one, tainted("c", "y")]), same, "another object");
    let of = |before: Value, after: Value| {
        let before = managed("a", before);
        let mut touched = before.clone();
        touched.version = "8".to_owned();
        touched.body["metadata"]["uid"] = json!("other");
        touched.body["status"] = json!({"x": 1});
        let (one, other) = (tainting(&before, after.clone()), tainting(&touched, after));
        assert_eq!(one, other, "version, uid and status");
        one.digest
    };
    let plain = of(json!([]), json!([taint("x", "NoSelect", "1")]));
    assert_eq!(
        of(json!([]), json!([taint("x", "NoSelect", "2")])),
        plain,
        "time"
    );
    let user = taint("user", "NoSelect", "1");
    assert_eq!(
        of(json!([user]), json!([user, taint("x", "NoSelect", "1")])),
        plain,
        "another writer's taint"
    );
    assert_ne!(
        of(json!([]), json!([taint("x", "PreferNoSelect", "1")])),
        plain,
        "another effect of the taint"
    );
    let timed = of(json!([user]), json!([taint("user", "NoSelect", "2")]));
    assert!(
        timed.is_some() && timed != plain,
        "a time is a write as well"
    );
}

#[test]
fn a_text_that_is_a_time_is_no_part_of_the_digest() {
    let of = |text: &str| {
        let before = managed("a", json!([]));
        let mut after = Writes::default();
        let path = "metadata.annotations.on".to_owned();
        let step = Step::Patch {
            reference: before.reference.clone(),
            fields: vec![(path, json!(text))],
            version: before.version.clone(),
        };
        after.add([(&step, Some(&before))], &Open::default());
        after.digest
    };
    assert_eq!(of("2026-03-02T09:10:00Z"), of("2026-03-02T09:10:01Z"));
    assert_ne!(of("2026-03-02T09:10:00Z"), of("yes"));
    assert_ne!(of("no"), of("yes"));
}

#[test]
fn an_updated_kubeconfig_is_shown_by_its_fields_and_never_by_its_credential() {
    let before = secret("https://a:6443", TOKEN);
    let moved = updated(&before, &secret("https://b:6443", TOKEN));
    assert_eq!(moved.changes[0].fields, ["data.kubeconfig.server"]);
    let both = updated(&before, &secret("https://b:6443", "hunter3-hunter3"));
    assert_eq!(
        both.changes[0].fields,
        ["data.kubeconfig.credential", "data.kubeconfig.server"]
    );
    let elsewhere = updated(&before, &secret("https://c:6443", TOKEN));
    assert_ne!(elsewhere.digest, moved.digest, "another server");
    let other_before = updated(
        &secret("https://z:6443", TOKEN),
        &secret("https://b:6443", "new"),
    );
    let rotated = updated(
        &secret("https://z:6443", "old"),
        &secret("https://b:6443", "newer"),
    );
    assert_eq!(
        other_before.digest, rotated.digest,
        "a credential is not part of the digest"
    );
    let all = [(key(&hosted("a")), both, State::Applied)];
    let json = serde_json::to_string(&plan(&all)).unwrap();
    assert!(
        !json.contains("hunter") && !json.contains("https://"),
        "{json}"
    );
}

#[test]
fn secrets_are_counted_as_created_updated_and_deleted() {
    let (before, after) = (secret("https://a", "1"), secret("https://b", "1"));
    let create = Step::Create {
        desired: after.clone(),
    };
    let delete = Step::Delete {
        reference: before.reference.clone(),
        version: String::new(),
        uid: String::new(),
        why: String::new(),
    };
    let mut moved = Writes::default();
    moved.add(
        [(&create, None), (&delete, Some(&before))],
        &Open::default(),
    );
    let all = [
        (key(&hosted("a")), writes(&create, None), State::Applied),
        (key(&hosted("b")), updated(&before, &after), State::Applied),
        (key(&hosted("c")), moved, State::Waiting),
    ];
    let plan = plan(&all);
    let effects: Vec<_> = plan
        .effects
        .iter()
        .map(|one| (one.effect.verb.as_str(), one.primaries))
        .collect();
    assert_eq!(effects, [("created", 2), ("updated", 1), ("deleted", 1)]);
    assert_eq!(
        plan.effects[1].fields,
        BTreeMap::from([("data.kubeconfig.server".to_owned(), 1)])
    );
    // One that waits for the rest is counted by what it would write.
    assert_eq!(
        (
            plan.primaries.would_change,
            plan.primaries.waiting,
            plan.refusals[0].primaries
        ),
        (3, 0, 1)
    );
    let other = writes(&Step::Create { desired: before }, None);
    assert_ne!(
        Some(other.digest),
        Some(all[0].1.digest),
        "what is created counts"
    );
}

#[test]
fn an_effect_is_kept_as_the_same_text_in_a_change_and_in_a_count() {
    const CHANGE: &str =
        r#"{"kind":"Secret","verb":"updated","fields":["data.kubeconfig.server"]}"#;
    const COUNT: &str = r#"{"kind":"ManagedCluster","path":"spec.taints","element":"x","verb":"added","primaries":2}"#;
    let change: PlannedChange = serde_json::from_str(CHANGE).unwrap();
    let count: EffectCount = serde_json::from_str(COUNT).unwrap();
    assert_eq!(serde_json::to_string(&change).unwrap(), CHANGE);
    assert_eq!(serde_json::to_string(&count).unwrap(), COUNT);
    assert_eq!(
        count.effect.to_string(),
        "ManagedCluster spec.taints x added"
    );
}

#[test]
fn steps_that_are_added_one_by_one_count_like_those_added_at_once() {
    let (create, before) = (
        Step::Create {
            desired: secret("https://b", "1"),
        },
        managed("a", json!([])),
    );
    let patch = Step::Patch {
        reference: before.reference.clone(),
        version: String::new(),
        fields: vec![(
            "spec.taints".to_owned(),
            json!([taint("x", "NoSelect", "1")]),
        )],
    };
    let (mut at_once, mut by_one) = (Writes::default(), Writes::default());
    at_once.add([(&create, None), (&patch, Some(&before))], &Open::default());
    by_one.add([(&create, None)], &Open::default());
    by_one.add([(&patch, Some(&before))], &Open::default());
    assert_eq!(at_once, by_one);
    assert_eq!(at_once.changes.len(), 2);
}

#[test]
fn ten_thousand_different_primaries_with_hostile_names_stay_small_and_are_all_counted() {
    let long = "\u{202e}<b>".repeat(200);
    let one = |at: usize| {
        let before = managed(&format!("{at}{long}"), json!([]));
        let taints: Vec<Value> = (0..4)
            .map(|nth| taint(&format!("{at}-{nth}-{long}"), "NoSelect", "1"))
            .collect();
        let state = if at.is_multiple_of(2) {
            State::Applied
        } else {
            State::Failed
        };
        (
            key(&before.reference),
            tainting(&before, taints.into()),
            state,
        )
    };
    let all: Vec<_> = (0..10_000).map(one).collect();
    let plan = plan(&all);
    let size = serde_json::to_vec(&plan).unwrap().len();
    assert!(size <= Listed::default().bytes, "{size}");
    let groups: usize = plan.groups.iter().map(|group| group.primaries).sum();
    assert_eq!(plan.primaries.would_change, 10_000);
    assert_eq!(groups + plan.more_groups.primaries, 10_000);
    assert_eq!(plan.groups.len() + plan.more_groups.entries, 10_000);
    assert_eq!(plan.effects.len() + plan.more_effects, 40_000);
    let refused = plan.refusals.first();
    assert_eq!(
        refused.map(|refused| refused.primaries),
        Some(5_000),
        "the small list stays"
    );
    assert!(
        !plan.groups.is_empty()
            && plan
                .groups
                .iter()
                .all(|group| group.first.iter().all(|one| one.name.len() <= 320))
    );
    let all: Vec<_> = (0..10_000)
        .map(|at| tainted(&format!("c{at}"), "x"))
        .collect();
    let everything = Listed {
        primaries: 10_000,
        bytes: usize::MAX,
    };
    assert_eq!(listed(&all, everything).groups[0].first.len(), 10_000);
}

#[test]
fn a_candidate_is_compared_with_the_active_revision_by_primary() {
    let of = |all: &[(&str, State)]| -> BTreeMap<Key, (State, Writes)> {
        let one = |(name, state): &(&str, State)| {
            let (name, element) = name.split_once('=').unwrap();
            let (key, writes, _) = tainted(name, element);
            let writes = if element.is_empty() {
                Writes::default()
            } else {
                writes
            };
            (key, (*state, writes))
        };
        all.iter().map(one).collect()
    };
    let (applied, failed) = (State::Applied, State::Failed);
    let active = of(&[
        ("a=x", applied),
        ("b=x", applied),
        ("c=x", applied),
        ("d=", applied),
        ("e=", failed),
    ]);
    let candidate = of(&[
        ("a=x", applied),
        ("b=y", applied),
        ("d=y", applied),
        ("e=", failed),
        ("f=", failed),
    ]);
    let beside = Beside {
        pending: 3,
        same: 1,
        different: 3,
        newly_refused: 1,
    };
    assert_eq!(Beside::of(&active, &candidate), beside);
    assert_eq!(Beside::of(&active, &active).different, 0);
}

#[test]
fn of_many_fields_the_frequent_ones_are_listed() {
    let before = secret("https://a", "1");
    let with = |at: usize| {
        let step = Step::Update {
            desired: before.clone(),
            changed: vec!["data.shared".to_owned(), format!("data.stray{at}")],
        };
        (
            key(&hosted(&at.to_string())),
            writes(&step, Some(&before)),
            State::Applied,
        )
    };
    let all: Vec<_> = (0..100).map(with).collect();
    let effects = plan(&all).effects;
    assert_eq!(
        (
            effects.len(),
            effects[0].fields.len(),
            effects[0].more_fields
        ),
        (1, 32, 69)
    );
    assert_eq!(effects[0].fields.get("data.shared"), Some(&100));
}

#[test]
fn many_changes_of_one_primary_are_counted_and_all_are_in_the_digest() {
    let many = |last: &str| {
        let before = managed("a", json!([]));
        let keys = (0..500)
            .map(|at| format!("k{at:03}"))
            .chain([last.to_owned()]);
        let taints: Vec<Value> = keys.map(|key| taint(&key, "NoSelect", "1")).collect();
        tainting(&before, taints.into())
    };
    let (one, other) = (many("y"), many("z"));
    assert_eq!(
        (one.changes.len(), one.more, one.changes == other.changes),
        (64, 437, true)
    );
    assert_ne!(one.digest, other.digest);
}

#[test]
fn the_elements_of_a_long_list_take_no_square_of_their_number() {
    let before = managed("a", json!([]));
    let taints = (0..80_000).map(|at| taint(&format!("k{at}"), "NoSelect", "1"));
    let writes = tainting(&before, taints.collect());
    assert_eq!((writes.changes.len(), writes.more), (64, 80_000 - 64));
}
