//! A native guest receives what the host would give it: compares the rules of `transom_guest::testing` and of
//! `transom_core` on generated paths, values and records. The unit tests of the core define the rules.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use transom_core::contract::description::Read;
use transom_core::contract::taints::{
    ClusterCondition, MANAGED_CLUSTER, ManagedCluster, Status, Taint, TaintEffect,
};
use transom_core::managed_cluster::declared;
use transom_core::projection::{Declared, Paths};
use transom_core::reference::ObjectRef;
use transom_guest::taints as native;
use transom_guest::testing::declared as sdk;
use transom_guest::{About, ObjectRef as NativeRef};

/// Segments that often match: those of a record, some foreign ones, quoted keys, and elements of lists.
const FIRST: [&str; 7] = [
    "metadata",
    "spec",
    "status",
    "labels",
    "a",
    "[\"a.b\"]",
    "[x]",
];
const NEXT: [&str; 23] = [
    ".labels",
    ".annotations",
    ".taints",
    ".hubAcceptsClient",
    ".leaseDurationSeconds",
    ".version",
    ".kubernetes",
    ".clusterClaims",
    ".conditions",
    "[A]",
    "[B]",
    ".status",
    ".reason",
    ".type",
    ".lastTransitionTime",
    ".name",
    ".a",
    ".b",
    "[\"a\"]",
    "[\"c.d/e\"]",
    ".deletionTimestamp",
    "[]",
    "..",
];

fn path() -> impl Strategy<Value = String> {
    let below = vec(prop::sample::select(&NEXT[..]), 0..4);
    (prop::sample::select(&FIRST[..]), below)
        .prop_map(|(first, below)| format!("{first}{}", below.concat()))
}

/// A path that usually matches a field of the record.
fn filling() -> impl Strategy<Value = String> {
    prop_oneof![
        path(),
        prop::sample::select(
            &[
                "metadata",
                "metadata.labels",
                "metadata.labels.a",
                "metadata.annotations[\"c.d/e\"]",
                "spec",
                "spec.taints",
                "spec.hubAcceptsClient",
                "spec.leaseDurationSeconds",
                "status",
                "status.version",
                "status.clusterClaims",
                "status.conditions",
                "status.conditions[A]",
                "status.conditions[A].status",
                "status.conditions[B].status",
                "status.conditions[B].reason",
                "status.conditions[A].lastTransitionTime",
            ][..]
        )
        .prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(7),
        json!("text"),
        json!([]),
        json!({}),
    ]);
    leaf.prop_recursive(5, 60, 4, |inner| {
        let key = prop::sample::select(
            &[
                "metadata",
                "spec",
                "status",
                "labels",
                "conditions",
                "version",
                "a",
                "a.b",
                "type",
            ][..],
        );
        let element = (prop::sample::select(&["A", "B", "x"][..]), inner.clone()).prop_map(
            |(kind, value)| match value {
                Value::Object(mut map) => {
                    map.insert("type".to_owned(), kind.into());
                    Value::Object(map)
                }
                value => json!({"type": kind, "status": value}),
            },
        );
        prop_oneof![
            prop::collection::btree_map(key, inner.clone(), 0..4).prop_map(|map| json!(map)),
            vec(prop_oneof![inner, element], 0..4).prop_map(Value::from),
        ]
    })
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    btree_set(prop::sample::select(&["a", "b", "c.d/e", "z"][..]), 0..4)
        .prop_map(|keys| {
            keys.into_iter()
                .map(|key| (key.to_owned(), format!("of {key}")))
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

fn record() -> impl Strategy<Value = ManagedCluster> {
    let condition = |kind: &'static str| {
        let status = prop::sample::select(&[Status::Yes, Status::No, Status::Unknown][..]);
        (status, "[a-z]{0,3}", prop::option::of(0..5_000_000_000_i64)).prop_map(
            move |(status, reason, changed_seconds)| ClusterCondition {
                kind: kind.to_owned(),
                status,
                reason,
                changed_seconds,
            },
        )
    };
    let taint = prop::option::of(0..9_i64).prop_map(|added_seconds| Taint {
        key: "k".to_owned(),
        value: "v".to_owned(),
        effect: TaintEffect::PreferNoSelect,
        added_seconds,
    });
    let lists = (pairs(), pairs(), pairs(), vec(taint, 0..3));
    let conditions = (
        prop::option::of(condition("A")),
        prop::option::of(condition("B")),
    );
    (
        any::<(bool, bool)>(),
        0..200_u32,
        prop::option::of("v1.[0-9]"),
        lists,
        conditions,
    )
        .prop_map(
            |(
                (accepted, deleting),
                lease_duration_seconds,
                kubernetes_version,
                lists,
                conditions,
            )| ManagedCluster {
                reference: ObjectRef::local(MANAGED_CLUSTER.0, MANAGED_CLUSTER.1, None, "c1"),
                uid: "u".to_owned(),
                created_seconds: Some(1),
                deleting,
                accepted,
                lease_duration_seconds,
                kubernetes_version,
                labels: lists.0,
                annotations: lists.1,
                claims: lists.2,
                conditions: [conditions.0, conditions.1].into_iter().flatten().collect(),
                taints: lists.3,
            },
        )
}

/// A record in the SDK's form.
fn as_native(cluster: &ManagedCluster) -> native::ManagedCluster {
    let pairs = |pairs: &[(String, String)]| {
        let pair = |(key, value): &(String, String)| native::Pair {
            key: key.clone(),
            value: value.clone(),
        };
        pairs.iter().map(pair).collect()
    };
    let ObjectRef {
        cluster: connection,
        api_version,
        kind,
        namespace,
        name,
    } = cluster.reference.clone();
    native::ManagedCluster {
        reference: NativeRef {
            cluster: connection,
            api_version,
            kind,
            namespace,
            name,
        },
        uid: cluster.uid.clone(),
        created_seconds: cluster.created_seconds,
        deleting: cluster.deleting,
        accepted: cluster.accepted,
        lease_duration_seconds: cluster.lease_duration_seconds,
        kubernetes_version: cluster.kubernetes_version.clone(),
        labels: pairs(&cluster.labels),
        annotations: pairs(&cluster.annotations),
        claims: pairs(&cluster.claims),
        conditions: cluster.conditions.iter().map(as_native_condition).collect(),
        taints: cluster.taints.iter().map(as_native_taint).collect(),
    }
}

fn as_native_condition(condition: &ClusterCondition) -> native::Condition {
    native::Condition {
        kind: condition.kind.clone(),
        status: match condition.status {
            Status::Yes => native::Status::Yes,
            Status::No => native::Status::No,
            Status::Unknown => native::Status::Unknown,
        },
        reason: condition.reason.clone(),
        changed_seconds: condition.changed_seconds,
    }
}

fn as_native_taint(taint: &Taint) -> native::Taint {
    let (key, value) = (taint.key.clone(), taint.value.clone());
    native::Taint {
        key,
        value,
        effect: native::Effect::PreferNoSelect,
        added_seconds: taint.added_seconds,
    }
}

/// The read that a taints guest declares with these paths.
fn read(fields: &[String]) -> Read {
    let (version, kind) = MANAGED_CLUSTER;
    Read {
        api_version: version.to_owned(),
        kind: kind.to_owned(),
        fields: fields.to_vec(),
        changes: Vec::new(),
    }
}

/// Whether the SDK refuses them; a description there consists of constants.
fn refused_natively(fields: &[&str]) -> bool {
    let leaked = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let fields: Vec<&'static str> = fields.iter().map(|text| leaked(text)).collect();
    let (api_version, kind) = MANAGED_CLUSTER;
    let read = transom_guest::Read {
        api_version,
        kind,
        fields: Vec::leak(fields),
        changes: &[],
    };
    sdk::check(&About {
        reads: Vec::leak(vec![read]),
        ..About::EMPTY
    })
    .is_err()
}

proptest! {
    #[test]
    fn projects_a_value_like_the_reference(paths in vec(path(), 0..5), value in value()) {
        let texts: Vec<&str> = paths.iter().map(String::as_str).collect();
        let (host, native) = (Paths::parse(&texts), sdk::Declared::new(&texts, &[]));
        prop_assert_eq!(host.is_err(), native.is_err(), "{:?}", texts);
        if let (Ok(host), Ok(native)) = (host, native) {
            prop_assert_eq!(host.project(&value), native.project(&value));
        }
    }

    #[test]
    fn refuses_or_reduces_a_record_like_the_reference(paths in vec(filling(), 0..5), cluster in record()) {
        let texts: Vec<&str> = paths.iter().map(String::as_str).collect();
        let read = read(&paths);
        let host = Declared::compile(&read);
        let refused = host.is_err() || declared::fault(&read).is_some();
        prop_assert_eq!(refused, refused_natively(&texts), "{:?}: {:?}", texts, declared::fault(&read));
        if let (Ok(host), Ok(native), false) = (host, sdk::Declared::new(&texts, &[]), refused) {
            let cut = declared::cut(&cluster, &host).unwrap();
            prop_assert_eq!(as_native(&cut), native.cluster(as_native(&cluster)));
        }
    }
}

/// A guest that desires a taint if a claim says so. `READS` decides whether it declares claims.
struct TargetState<const READS: usize>;

const READS: [&[&str]; 3] = [
    &["status.clusterClaims"],
    &["spec.taints"],
    &["status.clusterClaim"],
];

impl<const READ: usize> transom_guest::Guest for TargetState<READ> {
    type Settings = transom_guest::NoSettings;
    const ABOUT: About = About {
        name: "claimed",
        version: "1.0.0",
        reads: &[transom_guest::Read {
            api_version: MANAGED_CLUSTER.0,
            kind: MANAGED_CLUSTER.1,
            fields: READS[READ],
            changes: &[],
        }],
        ..About::EMPTY
    };
}

impl<const READ: usize> transom_guest::Taints for TargetState<READ> {
    fn compute(
        _: &transom_guest::Context<transom_guest::NoSettings>,
        cluster: &native::ManagedCluster,
    ) -> Result<native::Answer, transom_guest::Failure> {
        let taint = native::Wanted {
            key: "old".to_owned(),
            ..native::Wanted::default()
        };
        let wanted = cluster
            .claims
            .iter()
            .any(|claim| claim.key == "old")
            .then_some(taint);
        Ok(native::Answer {
            decision: native::Decision::Own(wanted.into_iter().collect()),
            ask_again_at: None,
        })
    }
}

/// Runs one case natively, optionally with another name for one of its files.
fn run<const READ: usize>(renamed: Option<(&str, &str)>) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("one");
    std::fs::create_dir(&case).unwrap();
    let (version, kind) = MANAGED_CLUSTER;
    let given = json!({"cluster": {
        "reference": {"cluster": "local", "api-version": version, "kind": kind, "name": "c"},
        "claims": [{"key": "old", "value": "yes"}],
    }});
    let expected = json!({"ok": {"decision": {"own": [{"key": "old", "effect": "no-select"}]}}});
    for (name, text) in [("given.yaml", given), ("expected.yaml", expected)] {
        let name = renamed
            .filter(|(from, _)| *from == name)
            .map_or(name, |(_, to)| to);
        std::fs::write(case.join(name), text.to_string()).unwrap();
    }
    transom_guest::testing::taints::<TargetState<READ>>(folder.path())
        .map_err(|failed| failed.to_string())
}

#[test]
fn a_native_case_gives_no_undeclared_fields() {
    assert_eq!(run::<0>(None), Ok(()));
    let blind = run::<1>(None).unwrap_err();
    assert!(blind.contains("ok.decision.own"), "{blind}");
    let misspelt = run::<2>(None).unwrap_err();
    assert!(
        misspelt.contains("`status.clusterClaim`") && misspelt.contains("`status.clusterClaims`"),
        "{misspelt}"
    );
}

#[test]
fn a_native_case_with_a_misspelt_file_name_fails() {
    for (from, to) in [
        ("given.yaml", "given.yml"),
        ("expected.yaml", "expected.yml"),
    ] {
        let failed = run::<0>(Some((from, to))).unwrap_err();
        assert!(failed.contains(to), "{failed}");
    }
}
