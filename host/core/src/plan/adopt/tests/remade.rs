//! Tests of an object that the policy made and that differs in a field that nobody can change.

use super::*;
use crate::plan::WriteKind::{Create, Delete, Patch, Update};
use crate::plan::kept::Kept;
use crate::plan::{Outcome, StepOutcome, WriteFailure};
use transom_api::KnownReason;

const ALL: [&str; 3] = ["create", "update", "delete"];

/// A policy that makes one binding for each cluster, with a finalizer where it may remove it.
fn binds(verbs: &[&str]) -> Value {
    let role_ref =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "right"});
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "agents"});
    let finalizers: &[&str] = if verbs == ALL { &[HOLD] } else { &[] };
    let grant = json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "name": "own-{primary.name}", "verbs": verbs,
        "fields": ["roleRef", "subjects"], "values": {"roleRef": [role_ref], "subjects": [subject]},
        "finalizers": finalizers});
    with(objects_manifest(), &[("/spec/grant/write", json!([grant]))])
}

fn bound(there: &Object, role: &str) -> Desired<'static> {
    let content = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "agents"}],
    });
    Desired::Whole(Whole {
        object: there.reference.clone(),
        fixed: Map::new(),
        content: content.as_object().cloned().unwrap_or_default(),
        data: BTreeMap::new(),
        ends_seconds: None,
    })
}

/// The binding as the policy makes it, with these finalizers, and then another role in it.
fn made(manifest: &Value, finalizers: &Value) -> Object {
    let nothing = TargetState {
        object: ObjectRef::local(RBAC, "ClusterRoleBinding", None, "own-c1"),
        existing: None,
        ownership: alone(),
        withheld: None,
    };
    let absent = object(nothing.object.clone(), json!({}));
    let desired = [bound(&absent, "right")];
    let plan = all(
        &policy(manifest),
        &[nothing],
        &desired,
        &Contentions::default(),
    );
    let Some(Step::Create { desired }) = plan.unwrap().plan.steps.pop() else {
        panic!("it is not there")
    };
    let mut there = desired;
    there.version = "7".to_owned();
    there.body["metadata"]["uid"] = json!("u7");
    there.body["metadata"]["finalizers"] = finalizers.clone();
    there.body["roleRef"]["name"] = json!("cluster-admin");
    there
}

fn alone() -> Ownership {
    Ownership::Owner {
        rivals: Rivals::None,
    }
}

/// The steps to the binding as it is wanted, or the reason why there are none.
fn steps(manifest: &Value, there: &Object, contentions: &Contentions) -> Result<Vec<Step>, String> {
    let desired = [bound(there, "right")];
    asked(&policy(manifest), &[claimed(there, alone())], |wanting| {
        let plan = plan::plan(wanting, &desired, contentions);
        let plan = plan.map_err(|failure| failure.reason.to_string())?;
        match plan.waits {
            Some(failure) => Err(failure.reason.to_string()),
            None => Ok(plan.plan.steps),
        }
    })
}

#[test]
fn what_nobody_can_change_is_made_anew_where_the_policy_may_remove_it() {
    let immutable = || Err(KnownReason::TargetImmutable.as_str().to_owned());
    let terminating = || Err(KnownReason::InputTerminating.as_str().to_owned());
    let never = with(binds(&ALL), &[("/spec/own", json!({"prune": "Never"}))]);
    let both = json!([HOLD, "a/b"]);
    let theirs = json!(["a/b"]);
    let table = [
        (binds(&ALL), json!([]), false, Ok(vec![Delete, Create])),
        // It may not be deleted: then it keeps its finalizer.
        (binds(&ALL), json!([HOLD]), false, Ok(vec![Delete])),
        (binds(&ALL), json!([HOLD]), true, Ok(vec![Patch])),
        // What others hold is made anew when it is gone.
        (binds(&ALL), both.clone(), false, Ok(vec![Delete])),
        (binds(&ALL), both, true, Ok(vec![Patch])),
        (binds(&ALL), theirs, true, terminating()),
        (binds(&["create", "update"]), json!([]), false, immutable()),
        (binds(&["create", "delete"]), json!([]), false, immutable()),
        (never, json!([]), false, immutable()),
    ];
    for (manifest, finalizers, is_going, expected) in table {
        let mut there = made(&manifest, &finalizers);
        if is_going {
            there.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
        }
        let planned = steps(&manifest, &there, &Contentions::default());
        let kinds = planned.map(|steps| steps.iter().map(Step::kind).collect());
        assert_eq!(kinds, expected, "{finalizers} {is_going}");
    }
}

#[test]
fn the_object_that_was_read_goes_and_comes_back_as_if_it_had_not_been_there() {
    let manifest = binds(&ALL);
    let there = made(&manifest, &json!([]));
    let steps = steps(&manifest, &there, &Contentions::default()).unwrap();
    let [Step::Delete { version, uid, .. }, Step::Create { desired }] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!((version.as_str(), uid.as_str()), ("7", "u7"));
    let mut right = there;
    right.version.clear();
    right.body["roleRef"]["name"] = json!("right");
    right.body["metadata"]["finalizers"] = json!([HOLD]);
    let metadata = right.body["metadata"].as_object_mut();
    metadata.unwrap().remove("uid");
    assert_eq!(*desired, right);
}

#[test]
fn only_a_field_that_nobody_can_change_calls_for_a_new_object() {
    let manifest = binds(&ALL);
    let mut there = made(&manifest, &json!([HOLD]));
    there.body["roleRef"]["name"] = json!("right");
    there.body["subjects"] = json!([]);
    let planned = steps(&manifest, &there, &Contentions::default()).unwrap();
    assert_eq!(planned.iter().map(Step::kind).collect::<Vec<_>>(), [Update]);
}

#[test]
fn it_is_not_made_anew_again_and_again() {
    let manifest = binds(&ALL);
    let there = made(&manifest, &json!([]));
    let cluster = "cluster.open-cluster-management.io/v1";
    let primary = ObjectRef::local(cluster, "ManagedCluster", None, "c1");
    let key = Key::new(&policy(&manifest).name, &primary);
    let contentions = Contentions::default();
    let remade = || {
        let steps = steps(&manifest, &there, &contentions)?;
        for step in &steps {
            let kept = match step {
                Step::Create { desired } => Kept::of(step, desired),
                _ => Kept::default(),
            };
            contentions.wrote(&key, step, &kept);
        }
        Ok(steps.len())
    };
    // The first one was there before; two were changed again.
    for _ in 0..3 {
        assert_eq!(remade(), Ok(2));
    }
    assert_eq!(remade(), Err(KnownReason::Contended.as_str().to_owned()));
}

#[test]
fn it_is_made_anew_as_a_whole_or_stays() {
    use KnownReason::{AdmissionRefused, QuotaExceeded, WriteConflict};
    let manifest = binds(&ALL);
    let removed = |object: &Object| Desired::Gone(object.reference.clone());
    for finalizers in [json!([]), json!([HOLD])] {
        let there = made(&manifest, &finalizers);
        // Whether each step to the binding follows a write of another object.
        let follows = |desired: Desired<'_>, kind, result: Result<(), KnownReason>| {
            let targets = [claimed(&there, alone())];
            let contentions = Contentions::default();
            let feasible = all(&policy(&manifest), &targets, &[desired], &contentions);
            let plan = feasible.unwrap().plan;
            let message = String::new();
            let result = result.map_err(|reason| WriteFailure { reason, message });
            let before = StepOutcome::of(role("other"), kind, result.map(|()| None));
            let outcome = Outcome {
                steps: vec![before],
                stopped: None,
            };
            let steps = plan.steps.iter();
            let follows: Vec<bool> = steps.map(|step| outcome.permits(&plan, step)).collect();
            follows
        };
        let anew = || bound(&there, "right");
        let steps = follows(anew(), Create, Ok(())).len();
        assert_eq!(follows(anew(), Create, Ok(())), vec![true; steps]);
        for (kind, reason) in [
            (Create, QuotaExceeded),
            (Update, AdmissionRefused),
            (Delete, AdmissionRefused),
            (Delete, WriteConflict),
        ] {
            let after = follows(anew(), kind, Err(reason));
            assert_eq!(
                after,
                vec![false; steps],
                "{finalizers} {kind:?} {reason:?}"
            );
            // A right that is not wanted goes all the same.
            assert_eq!(follows(removed(&there), kind, Err(reason)), [true]);
        }
    }
}
