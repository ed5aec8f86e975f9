//! Tests of what is adopted, kept and removed.

mod remade;
mod removals;
mod shared;

use super::*;
use crate::ownership::Ownership;
use crate::plan::contention::Contentions;
use crate::plan::desired::Desired;
use crate::plan::{self, Feasible, Step, TargetState, TimeAdded};
use crate::policy::Policy;
use crate::reference::ObjectRef;
use crate::sample::{agent, object, objects_manifest, policy, with};
use crate::stamp::SourceRef;
use crate::work::Key;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const HOLD: &str = "example.com/hold";
/// The uid of the cluster of the primary.
const CLUSTER: &str = "uid-here";

fn rule(verbs: &[&str]) -> Value {
    json!({"apiGroups": ["a.b"], "resources": ["things"], "verbs": verbs})
}

fn role(name: &str) -> ObjectRef {
    ObjectRef::local(RBAC, "ClusterRole", None, name)
}

/// A policy that makes one role for each cluster, with a label and a finalizer, and one that all share.
fn makes() -> Value {
    let grant = |name: &str, fields: Value, values: Value| {
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "name": name, "verbs": ["create", "update", "delete"],
            "fields": fields, "values": values})
    };
    let rules = json!([rule(&["get", "update"]), rule(&["get"])]);
    let mut own = grant(
        "own-{primary.name}",
        json!(["rules", "metadata.labels.cluster"]),
        json!({"rules": rules, "metadata.labels.cluster": ["{primary.name}"]}),
    );
    own["finalizers"] = json!([HOLD]);
    let shared = grant("shared", json!(["rules"]), json!({"rules": rules}));
    with(
        objects_manifest(),
        &[("/spec/grant/write", json!([own, shared]))],
    )
}

/// What becomes of a role that is there: a step, none, or why not.
fn planned(
    policy: &Policy,
    there: &Object,
    rivals: Rivals,
    desired: Desired<'_>,
) -> Result<Option<Step>, String> {
    let owner = Ownership::Owner { rivals };
    let Feasible {
        mut plan,
        waits,
        refused,
        ..
    } = all(
        policy,
        &[claimed(there, owner)],
        &[desired],
        &Contentions::default(),
    )?;
    match waits.or(refused) {
        Some(failure) => Err(failure.message),
        None => Ok(plan.steps.pop()),
    }
}

fn claimed(there: &Object, ownership: Ownership) -> TargetState {
    TargetState {
        object: there.reference.clone(),
        existing: Some(Arc::new(there.clone())),
        ownership,
        withheld: None,
    }
}

/// What becomes of all that is desired.
fn all(
    policy: &Policy,
    targets: &[TargetState],
    desired: &[Desired<'_>],
    contentions: &Contentions,
) -> Result<Feasible, String> {
    asked(policy, targets, |wanting| {
        plan::plan(wanting, desired, contentions).map_err(|failure| failure.message)
    })
}

/// Asks something about what is wanted for the one cluster.
fn asked<T>(policy: &Policy, targets: &[TargetState], ask: impl FnOnce(&PlanInput<'_>) -> T) -> T {
    let cluster = "cluster.open-cluster-management.io/v1";
    let reference = ObjectRef::local(cluster, "ManagedCluster", None, "c1");
    let primary = object(reference, json!({"metadata": {"name": "c1", "uid": "u"}}));
    let wanting = PlanInput {
        policy,
        key: &Key::new(&policy.name, &primary.reference),
        data: TemplateData {
            object: &primary,
            agent: &agent("hub", true),
        },
        primary: &primary,
        targets,
        others: &[],
        stamp: &Stamp {
            policy: policy.name.to_string(),
            source: SourceRef {
                reference: primary.reference.clone(),
                uid: "u".to_owned(),
                cluster_uid: CLUSTER.to_owned(),
            },
            inputs: String::new(),
            component: String::new(),
        },
        time_added: TimeAdded::SetByCluster,
        now_seconds: 0,
    };
    ask(&wanting)
}

/// A role that wants only to read.
fn wanted(there: &Object) -> Desired<'static> {
    let content = json!({"rules": [rule(&["get"])], "metadata": {"labels": {"cluster": "c1"}}});
    let mut content = content.as_object().cloned().unwrap_or_default();
    if there.reference.name == "shared" {
        content.remove("metadata");
    }
    Desired::Whole(Whole {
        object: there.reference.clone(),
        fixed: Map::new(),
        content,
        data: BTreeMap::new(),
        ends_seconds: None,
    })
}

fn own(metadata: Value, rules: &Value) -> Object {
    let mut there = object(role("own-c1"), json!({"metadata": {}, "rules": rules}));
    there.body["metadata"] = metadata;
    there
}

const TWICE: &str = "more than one primary claims it";

fn adopted(there: &Object, rivals: Rivals) -> Result<(), String> {
    let step = planned(&policy(&makes()), there, rivals, wanted(there));
    let why = |message: String| message.rsplit(": ").next().unwrap_or_default().to_owned();
    match step.map_err(why)? {
        Some(Step::Update { desired, .. }) => {
            assert!(Stamp::read(&desired).is_some(), "{desired:?}");
            assert_eq!(desired.body["rules"], json!([rule(&["get"])]));
            Ok(())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn adopts_what_says_only_what_the_grant_lists() {
    let labelled = |more: Value| {
        let mut metadata = json!({"labels": {"cluster": "c1", "other": "kept"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            metadata[key] = value.clone();
        }
        metadata
    };
    let full = json!([rule(&["get", "update"]), rule(&["get"])]);
    let of = |metadata, rules: &Value| adopted(&own(metadata, rules), Rivals::None);
    assert_eq!(of(labelled(json!({})), &full), Ok(()));
    let other = Err(OTHER_CONTENT.to_owned());
    let beyond = json!([rule(&["get"]), rule(&["delete"])]);
    assert_eq!(of(labelled(json!({})), &beyond), other, "a right beyond");
    let another = json!({"labels": {"cluster": "c2"}});
    assert_eq!(of(another, &full), other, "of another cluster");
    assert_eq!(of(json!({}), &full), other, "it lacks a granted field");
    assert_eq!(of(labelled(json!({})), &Value::Null), other, "no rules");
    let owner = labelled(json!({"ownerReferences": [{"name": "o"}]}));
    assert_eq!(of(owner, &full), Err("it has an owner reference".into()));
    let work = labelled(json!({"annotations": {"work.open-cluster-management.io/x": ""}}));
    assert_eq!(of(work, &full), Err("it belongs to a ManifestWork".into()));
}

#[test]
fn what_an_agent_of_another_cluster_made_is_not_taken_over() {
    let on_hub = [("/spec/grant/write/0/cluster", json!("hub"))];
    let policy = policy(&with(makes(), &on_hub));
    let said = |uid: &str, cluster_uid: &str| {
        let mut there = own(json!({"labels": {"cluster": "c1"}}), &json!([]));
        there.reference.cluster = "hub".to_owned();
        let primary = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c1",
        );
        let source = SourceRef {
            reference: primary.clone(),
            uid: uid.to_owned(),
            cluster_uid: cluster_uid.to_owned(),
        };
        let key = Key::new(&policy.name, &primary);
        Stamp::of(&key, source, "", "").put(&mut there.body);
        let step = planned(&policy, &there, Rivals::None, wanted(&there));
        step.map(|step| step.is_some())
    };
    assert_eq!(said("u", CLUSTER), Ok(true));
    assert_eq!(said("before", CLUSTER), Ok(true), "a primary made anew");
    assert_eq!(said("u", ""), Ok(true), "made for this very primary");
    let other = said("u", "other").unwrap_err();
    assert!(
        other.contains("on another cluster (other), whose agent owns it"),
        "{other}"
    );
    let unknown = said("before", "").unwrap_err();
    assert!(unknown.contains("its stamp does not name one"), "{unknown}");
}

/// What becomes of a role whose annotation `cluster` may have these values, or any. Those of a label are listed.
fn annotated(pattern: Option<&str>) -> Result<Option<Step>, String> {
    let mut manifest = makes();
    let grant = &mut manifest["spec"]["grant"]["write"][0];
    grant["fields"] = json!(["rules", "metadata.annotations.cluster"]);
    let rules = grant["values"]["rules"].take();
    grant["values"] = json!({"rules": rules});
    if let Some(pattern) = pattern {
        grant["values"]["metadata.annotations.cluster"] = json!([pattern]);
    }
    let metadata = json!({"annotations": {"cluster": "c1"}});
    let there = own(metadata.clone(), &json!([rule(&["get", "update"])]));
    let mut desired = wanted(&there);
    if let Desired::Whole(whole) = &mut desired {
        whole.content.insert("metadata".to_owned(), metadata);
    }
    planned(&policy(&manifest), &there, Rivals::None, desired)
}

#[test]
fn a_field_without_listed_values_is_adopted_only_as_it_is_wanted() {
    assert!(annotated(None).unwrap_err().ends_with(OTHER_CONTENT));
}

#[test]
fn what_all_primaries_share_is_adopted_by_one_of_them() {
    let full = json!([rule(&["get", "update"])]);
    // The label is none that the policy writes here.
    let body = json!({"metadata": {"labels": {"cluster": ""}}, "rules": full});
    let shared = object(role("shared"), body);
    assert_eq!(adopted(&shared, Rivals::None), Ok(()));
    assert_eq!(adopted(&shared, Rivals::OfPolicy), Ok(()));
    assert_eq!(adopted(&shared, Rivals::OfOthers), Err(TWICE.to_owned()));
    let own = own(json!({"labels": {"cluster": "c1"}}), &full);
    assert_eq!(adopted(&own, Rivals::OfPolicy), Err(TWICE.to_owned()));
}

#[test]
fn a_guest_removes_what_it_could_adopt_and_takes_the_finalizer_off() {
    let removed = |metadata: Value, rules: &Value, rivals| {
        let there = own(metadata, rules);
        let gone = Desired::Gone(there.reference.clone());
        planned(&policy(&makes()), &there, rivals, gone)
    };
    let full = json!([rule(&["get", "update"])]);
    let there = json!({"labels": {"cluster": "c1"}, "finalizers": [HOLD, "a/b"]});
    let step = removed(there.clone(), &full, Rivals::None).unwrap();
    assert!(matches!(step, Some(Step::Delete { .. })), "{step:?}");
    let mut going = there.clone();
    going["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
    let step = removed(going.clone(), &full, Rivals::None).unwrap();
    let Some(Step::Patch { fields, .. }) = step else {
        panic!("{step:?}")
    };
    assert_eq!(fields[0].1, json!(["a/b"]));
    let beyond = json!([rule(&["delete"])]);
    for (metadata, rules, rivals) in [
        (&there, &beyond, Rivals::None),
        (&going, &beyond, Rivals::None),
        (&there, &full, Rivals::OfOthers),
    ] {
        assert!(removed(metadata.clone(), rules, rivals).is_err());
    }
    let mut never = makes();
    never["spec"]["own"] = json!({"prune": "Never"});
    let (there, gone) = (own(there, &full), Desired::Gone(role("own-c1")));
    let kept = planned(&policy(&never), &there, Rivals::None, gone);
    let why = "ClusterRole own-c1 is not removed: spec.own.prune is Never";
    assert_eq!(kept, Err(why.to_owned()));
}

#[test]
fn what_a_policy_makes_bears_its_finalizers_and_is_held_by_them_while_it_is_wanted() {
    let full = json!([rule(&["get"])]);
    let metadata = json!({"labels": {"cluster": "c1"}, "finalizers": ["a/b"]});
    let there = own(metadata, &full);
    let plan = |there: &Object| {
        let desired = wanted(there);
        planned(&policy(&makes()), there, Rivals::None, desired)
    };
    let Ok(Some(Step::Update { desired, changed })) = plan(&there) else {
        panic!("it lacks the finalizer")
    };
    assert!(changed.contains(&"metadata.finalizers".to_owned()));
    assert_eq!(desired.body["metadata"]["finalizers"], json!(["a/b", HOLD]));
    assert_eq!(plan(&desired), Ok(None), "it is as wanted");
    let mut held = desired;
    held.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
    assert_eq!(plan(&held), Ok(None), "it works on");
    let mut edited = held.clone();
    edited.body["rules"] = json!([]);
    let Ok(Some(Step::Update { desired, .. })) = plan(&edited) else {
        panic!("it is put right as long as it works on")
    };
    assert_eq!(desired.body, held.body);
    held.body["metadata"]["finalizers"] = json!(["a/b"]);
    assert_eq!(plan(&held), Ok(None), "others hold it");
    // One that the policy did not make is no such object, whatever it says.
    let mut theirs = there;
    theirs.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
    let message = plan(&theirs).unwrap_err();
    assert!(message.ends_with(" is being deleted"), "{message}");
}

/// The same policy, whose grant names no finalizer any more.
fn without_finalizers() -> Value {
    let mut manifest = makes();
    manifest["spec"]["grant"]["write"][0]["finalizers"] = json!([]);
    manifest
}

/// The finalizers that an object has after the plan; none when nothing is written.
fn finalizers_after(manifest: &Value, there: &Object) -> Option<Value> {
    let step = planned(&policy(manifest), there, Rivals::None, wanted(there));
    match step.unwrap()? {
        Step::Update { desired, .. } => Some(desired.body["metadata"]["finalizers"].clone()),
        Step::Patch { fields, .. } => Some(fields[0].1.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_finalizer_that_the_grant_names_no_longer_is_taken_off_if_the_policy_put_it_there() {
    let full = json!([rule(&["get"])]);
    let metadata = json!({"labels": {"cluster": "c1"}, "finalizers": ["a/b"]});
    let there = own(metadata, &full);
    let Ok(Some(Step::Update { desired: made, .. })) =
        planned(&policy(&makes()), &there, Rivals::None, wanted(&there))
    else {
        panic!("it lacks the finalizer")
    };
    assert_eq!(finalizers_after(&makes(), &made), None, "it is as wanted");
    let without = without_finalizers();
    assert_eq!(finalizers_after(&without, &made), Some(json!(["a/b"])));
    // It holds the object no longer, whether the guest wants it or not.
    let mut going = made.clone();
    going.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
    assert_eq!(finalizers_after(&without, &going), Some(json!(["a/b"])));
    let gone = Desired::Gone(going.reference.clone());
    let removed = planned(&policy(&without), &going, Rivals::None, gone).unwrap();
    assert!(removed.is_some_and(|step| step.is_of_finalizers()));
    // Others had put it there before the policy adopted the object.
    let mut theirs = there;
    theirs.body["metadata"]["finalizers"] = json!([HOLD]);
    let Ok(Some(Step::Update {
        desired: adopted, ..
    })) = planned(&policy(&makes()), &theirs, Rivals::None, wanted(&theirs))
    else {
        panic!("it is adopted")
    };
    assert_eq!(finalizers_after(&without, &adopted), None);
}

#[test]
fn a_finalizer_that_was_never_noted_stays() {
    let there = own(
        json!({"labels": {"cluster": "c1"}}),
        &json!([rule(&["get"])]),
    );
    let Ok(Some(Step::Update { desired, .. })) =
        planned(&policy(&makes()), &there, Rivals::None, wanted(&there))
    else {
        panic!("it is adopted")
    };
    // As an agent made it that did not note them yet.
    let mut made = desired;
    let metadata = made.body["metadata"].as_object_mut().unwrap();
    let labels = metadata["labels"].as_object_mut().unwrap();
    drop(labels.remove(labels::ADOPTED));
    let noted = metadata["annotations"][labels::MANAGED_KEYS]
        .as_str()
        .unwrap();
    let mut noted: Value = serde_json::from_str(noted).unwrap();
    assert!(noted["finalizers"].is_array());
    drop(noted.as_object_mut().unwrap().remove("finalizers"));
    metadata["annotations"][labels::MANAGED_KEYS] = noted.to_string().into();
    assert_eq!(finalizers_after(&makes(), &made), None);
    made.body["rules"] = json!([rule(&["update"])]);
    let step = planned(&policy(&makes()), &made, Rivals::None, wanted(&made));
    let Ok(Some(Step::Update { desired, .. })) = step else {
        panic!("{step:?}")
    };
    assert_eq!(finalizers_after(&without_finalizers(), &desired), None);
}

/// A role of the cluster with what the grant lists, and with more metadata.
fn full(more: &Value) -> Object {
    let mut metadata = json!({"labels": {"cluster": "c1"}});
    for (field, more) in more.as_object().into_iter().flatten() {
        for (key, value) in more.as_object().into_iter().flatten() {
            metadata[field][key] = value.clone();
        }
    }
    own(metadata, &json!([rule(&["get", "update"])]))
}

#[test]
fn what_another_tool_keeps_is_neither_written_over_nor_removed() {
    let tool = "another tool manages it";
    let managed_by = |manager: &str| json!({"labels": {"app.kubernetes.io/managed-by": manager}});
    for marks in [
        managed_by("Helm"),
        json!({"annotations": {"meta.helm.sh/release-name": "r"}}),
        json!({"annotations": {"argocd.argoproj.io/tracking-id": "t"}}),
        json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "k"}}),
    ] {
        let there = full(&marks);
        assert_eq!(adopted(&there, Rivals::None), Err(tool.to_owned()));
        let gone = Desired::Gone(there.reference.clone());
        let removed = planned(&policy(&makes()), &there, Rivals::None, gone);
        assert!(removed.unwrap_err().ends_with(tool), "{marks}");
        // It is as wanted already: the tool has nothing to write back.
        let mut same = there;
        same.body["rules"] = json!([rule(&["get"])]);
        assert_eq!(adopted(&same, Rivals::None), Ok(()), "{marks}");
    }
    assert_eq!(adopted(&full(&managed_by("transom")), Rivals::None), Ok(()));
    let other = json!({"annotations": {"meta.helm.shy/x": "", "toolkit.fluxcd.iox/y": ""}});
    assert_eq!(adopted(&full(&other), Rivals::None), Ok(()));
    let mut aggregated = full(&json!({}));
    aggregated.body["aggregationRule"] = json!({"clusterRoleSelectors": []});
    let refused = adopted(&aggregated, Rivals::None).unwrap_err();
    assert_eq!(refused, "its rules are aggregated from other roles");
}

#[test]
fn a_star_bounds_nothing_and_an_empty_list_says_nothing() {
    let other = Err(OTHER_CONTENT.to_owned());
    let empty = own(json!({"labels": {"cluster": "c1"}}), &json!([]));
    assert_eq!(adopted(&empty, Rivals::None), other);
    assert!(annotated(Some("*")).unwrap_err().ends_with(OTHER_CONTENT));
    assert!(annotated(Some("c*")).is_ok());
}
