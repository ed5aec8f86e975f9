//! Tests that a reconcile of what a watch keeps equals a reconcile of the whole object.

use super::{Keep, SecretReads, of};
use crate::catalogue::guest::GuestFacts;
use crate::catalogue::{Catalogue, Revision};
use crate::contract::decide::{Absence, Form, Need, Wake};
use crate::contract::description::{Description, Read, SuggestedGrant};
use crate::contract::taints::{Decision, MANAGED_CLUSTER, TaintEffect, WantedTaint};
use crate::inputs::secrets::Secrets;
use crate::inputs::{self, Found};
use crate::managed_cluster;
use crate::object::Object;
use crate::plan::TimeAdded;
use crate::plan::contention::Contentions;
use crate::reference::ObjectRef;
use crate::sample::{HOSTED, kubeconfig_manifest, object, planned, policy, taints_manifest};
use crate::trigger::{LastSeen, observe};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const KLUSTERLET: (&str, &str) = ("operator.open-cluster-management.io/v1", "Klusterlet");

/// A kind, the paths whose values cross, and those of which only changes cross.
type Reads<'a> = ((&'a str, &'a str), &'a [&'a str], &'a [&'a str]);

/// A guest that reads paths of kinds.
fn guest(reads: &[Reads<'_>]) -> GuestFacts {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let read = |((api_version, kind), fields, changes): &Reads<'_>| Read {
        api_version: (*api_version).to_owned(),
        kind: (*kind).to_owned(),
        fields: texts(fields),
        changes: texts(changes),
    };
    let description = Description {
        name: "sample".to_owned(),
        version: "1".to_owned(),
        reads: reads.iter().map(read).collect(),
        reasons: vec![],
        settings_schema: "{}".to_owned(),
        grant: SuggestedGrant::default(),
    };
    GuestFacts::load("sha256:1", description, &Map::new()).unwrap()
}

fn kubeconfig() -> Revision {
    let trigger = guest(&[(
        HOSTED,
        &["status.conditions[Available]", "status.version.history"],
        &["spec.platform"],
    )]);
    let decide = guest(&[
        (HOSTED, &["metadata.annotations", "spec.platform.type"], &[]),
        (KLUSTERLET, &["spec.deployOption.mode"], &[]),
    ]);
    Revision {
        policy: policy(&kubeconfig_manifest()),
        trigger: Some(trigger),
        decide,
    }
}

fn tainting(fields: &[&str]) -> Revision {
    let decide = guest(&[(MANAGED_CLUSTER, fields, &[])]);
    Revision {
        policy: policy(&taints_manifest()),
        trigger: None,
        decide,
    }
}

/// What is kept of the objects of a kind.
fn keep(revision: &Revision, kind: &str) -> Keep {
    let watches = of(
        &Catalogue::default().with(revision.clone(), "file"),
        &[],
        "local",
        SecretReads::Watch,
        &std::collections::BTreeSet::new(),
    );
    watches
        .into_iter()
        .find(|(scope, _)| scope.kind == kind)
        .unwrap()
        .1
}

fn kept(keep: &Keep, whole: &Object) -> Object {
    Object {
        body: keep.project(whole.body.clone()),
        ..whole.clone()
    }
}

fn hosted(body: Value) -> Object {
    object(crate::sample::hosted("demo"), body)
}

fn hosted_cluster() -> Value {
    json!({
        "apiVersion": HOSTED.0, "kind": HOSTED.1,
        "metadata": {"name": "demo", "uid": "u", "creationTimestamp": "2026-11-21T08:15:30Z", "annotations": {"a": "b"}},
        "spec": {"platform": {"type": "Agent", "agent": {"namespace": "n"}}, "release": {"image": "i"}},
        "status": {
            "conditions": [{"type": "Available", "status": "True"}, {"type": "Other", "status": "True"}],
            "version": {"history": [{"state": "Completed"}], "desired": {"image": "i"}},
        },
    })
}

fn managed_cluster() -> Value {
    json!({
        "apiVersion": MANAGED_CLUSTER.0, "kind": MANAGED_CLUSTER.1, "metadata": {"name": "c", "uid": "u"},
        "spec": {"hubAcceptsClient": true, "taints": [{"key": "user", "effect": "NoSelect"}, {"key": "a/one", "effect": "NoSelect"}]},
        "status": {"conditions": [{"type": "ManagedClusterConditionAvailable", "status": "False"}], "version": {"kubernetes": "v1"}},
    })
}

/// The value with odd values at some of its places, which numbers choose.
fn damaged(mut value: Value, damages: &[(usize, Value)]) -> Value {
    for (choice, odd) in damages {
        let places = places(&value, "");
        *value.pointer_mut(&places[choice % places.len()]).unwrap() = odd.clone();
    }
    value
}

/// Pointers to everything but the value itself, `apiVersion` and `kind`.
fn places(value: &Value, at: &str) -> Vec<String> {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (format!("{at}/{}", key.replace('/', "~1")), value))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(index, value)| (format!("{at}/{index}"), value))
            .collect(),
        _ => Vec::new(),
    };
    let named = below
        .into_iter()
        .filter(|(place, _)| !matches!(place.as_str(), "/apiVersion" | "/kind"));
    named
        .flat_map(|(place, value)| [vec![place.clone()], places(value, &place)].concat())
        .collect()
}

fn damages() -> impl Strategy<Value = Vec<(usize, Value)>> {
    let odd = prop_oneof![
        Just(json!(null)),
        Just(json!("odd")),
        Just(json!(1)),
        Just(json!([])),
        Just(json!({})),
        Just(json!(["odd", {"type": 1}])),
        Just(json!([{"type": "Available"}, {"type": "Available", "status": "False"}])),
        Just(json!({"type": {"mode": "x"}, "history": {}})),
    ];
    proptest::collection::vec((any::<usize>(), odd), 0..4)
}

proptest! {
    #[test]
    fn a_stored_primary_triggers_and_converts_like_the_whole(before in damages(), after in damages()) {
        let revision = kubeconfig();
        let keep = keep(&revision, HOSTED.1);
        let [old, new] = [before, after].map(|damages| hosted(damaged(hosted_cluster(), &damages)));
        let [kept_old, kept_new] = [kept(&keep, &old), kept(&keep, &new)];
        let predicate = revision.predicate();
        prop_assert_eq!(
            observe(predicate, Some(&LastSeen::of(&kept_old, predicate)), &kept_new),
            observe(predicate, Some(&LastSeen::of(&old, predicate)), &new)
        );
        for guest in [revision.trigger.as_ref().unwrap(), &revision.decide] {
            prop_assert_eq!(inputs::primary(&kept_new, guest), inputs::primary(&new, guest));
        }
    }

    #[test]
    fn a_stored_input_converts_like_the_whole(damages in damages()) {
        let revision = kubeconfig();
        let reference = ObjectRef::local(KLUSTERLET.0, KLUSTERLET.1, None, "klusterlet-demo");
        let body = json!({"metadata": {"name": "x"}, "spec": {"deployOption": {"mode": "Hosted", "x": 1}, "y": 1}});
        let whole = object(reference.clone(), damaged(body, &damages));
        let cross = |object: &Object, form| {
            let (role, reference) = ("klusterlet".to_owned(), reference.clone());
            let need = Need { role, reference, form, absence: Absence::Fine, wake: Wake::Change };
            let mut found = [Found::one(need, Some(Arc::new(object.clone())))];
            inputs::cross(&mut found, &revision.decide, 0, &mut Secrets::default(), |_, _, _| panic!("it is no Secret"))
        };
        let kept = kept(&keep(&revision, KLUSTERLET.1), &whole);
        for form in [Form::Object, Form::Presence] {
            prop_assert_eq!(cross(&kept, form.clone()), cross(&whole, form));
        }
    }

    #[test]
    fn plans_taints_as_for_the_whole(damages in damages(), declares_taints: bool) {
        let fields = ["status.conditions[ManagedClusterConditionAvailable]", "metadata.labels", "spec.taints"];
        let revision = tainting(&fields[..if declares_taints { 3 } else { 2 }]);
        let reference = ObjectRef::local(MANAGED_CLUSTER.0, MANAGED_CLUSTER.1, None, "c");
        let whole = object(reference, damaged(managed_cluster(), &damages));
        let kept = kept(&keep(&revision, MANAGED_CLUSTER.1), &whole);
        let declared = revision.predicate().declared;
        prop_assert_eq!(managed_cluster::view(&kept, declared), managed_cluster::view(&whole, declared));
        let answer = Decision::Own(vec![WantedTaint { key: "a/two".to_owned(), value: String::new(), effect: TaintEffect::NoSelect }]);
        let plan = |primary: &Object| {
            planned(&revision.policy, primary, &answer, TimeAdded::SetByUs(0), (&Contentions::default(), 0))
        };
        prop_assert_eq!(plan(&kept), plan(&whole));
    }
}
