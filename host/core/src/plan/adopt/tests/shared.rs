//! Tests of an object that all primaries share: what each of them plans for it, and whether it lets the next one try.

use super::*;
use crate::plan::WriteKind::{Create, Update};
use crate::plan::kept::Kept;
use crate::plan::lacking;

fn of_another(stands_in: bool) -> Ownership {
    let cluster = "cluster.open-cluster-management.io/v1";
    let other = ObjectRef::local(cluster, "ManagedCluster", None, "c0");
    Ownership::OwnedBy {
        owner: Key::new(&"sets".into(), &other),
        stands_in,
    }
}

/// The shared role, made for another cluster.
fn made(verbs: &[&str]) -> Object {
    let cluster = "cluster.open-cluster-management.io/v1";
    let other = ObjectRef::local(cluster, "ManagedCluster", None, "c0");
    let mut body = json!({"metadata": {}, "rules": [rule(verbs)]});
    let source = SourceRef::gone(&other, "");
    Stamp::of(&Key::new(&"sets".into(), &other), source, "", "").put(&mut body);
    object(role("shared"), body)
}

fn going() -> Object {
    let mut there = made(&["update"]);
    there.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
    there
}

#[test]
fn the_one_whose_turn_it_is_writes_and_all_others_find_it_right_or_wait() {
    let owner = || Ownership::Owner {
        rivals: Rivals::OfPolicy,
    };
    let (right, other) = (made(&["get"]), made(&["get", "update"]));
    let is_shared = "ClusterRole shared is shared by all primaries, and ManagedCluster c0";
    let first = format!("{is_shared} makes it first");
    let keeps = format!("{is_shared} keeps it: it is not as ManagedCluster c1 wants it");
    let leaves = "the target ClusterRole shared is being deleted";
    // Who asks, what is there, what is planned, and whether it lacks it.
    let table = [
        (owner(), None, Ok(Some(Create)), true),
        // It takes over the stamp of one that is gone.
        (owner(), Some(right.clone()), Ok(Some(Update)), true),
        (owner(), Some(other.clone()), Ok(Some(Update)), true),
        (owner(), Some(going()), Err(leaves), false),
        (of_another(false), None, Err(first.as_str()), false),
        (of_another(false), Some(right.clone()), Ok(None), false),
        (
            of_another(false),
            Some(other.clone()),
            Err(keeps.as_str()),
            false,
        ),
        (of_another(true), None, Ok(Some(Create)), true),
        // Nothing differs, so nothing is written.
        (of_another(true), Some(right), Ok(None), false),
        (of_another(true), Some(other), Ok(Some(Update)), true),
        (of_another(true), Some(going()), Err(leaves), false),
    ];
    let policy = policy(&makes());
    for (ownership, existing, planned, lacks) in table {
        let given = format!("{ownership:?} {existing:?}");
        let target = TargetState {
            object: role("shared"),
            existing: existing.map(Arc::new),
            ownership,
            withheld: None,
        };
        let desired = [wanted(&made(&[]))];
        let contentions = Contentions::default();
        let targets = [target];
        let lacking = asked(&policy, &targets, |wanting| {
            lacking(wanting, &desired, &contentions)
        });
        assert_eq!(!lacking.is_empty(), lacks, "{given}");
        let plan = all(&policy, &targets, &desired, &contentions);
        let plan = plan.and_then(|planned| match planned.waits {
            Some(failure) => Err(failure.message),
            None => Ok(planned.plan.steps.first().map(Step::kind)),
        });
        assert_eq!(
            plan.as_ref().map_err(String::as_str),
            planned.as_ref().map_err(|why| *why),
            "{given}"
        );
    }
}

#[test]
fn of_an_object_of_one_primary_nobody_is_let_try() {
    let policy = policy(&makes());
    let target = TargetState {
        object: role("own-c1"),
        existing: None,
        ownership: Ownership::Owner {
            rivals: Rivals::None,
        },
        withheld: None,
    };
    let desired = [wanted(&own(json!({}), &json!([])))];
    let lacking = asked(&policy, &[target], |wanting| {
        lacking(wanting, &desired, &Contentions::default())
    });
    assert!(lacking.is_empty());
}

#[test]
fn the_form_in_which_a_server_keeps_it_is_right_for_all_who_want_the_same() {
    let grant = json!({"apiVersion": "v1", "kind": "ResourceQuota", "namespace": "n", "name": "shared",
        "verbs": ["create", "update"], "fields": ["spec"]});
    let policy = policy(&with(
        objects_manifest(),
        &[("/spec/grant/write", json!([grant]))],
    ));
    let quota = ObjectRef::local("v1", "ResourceQuota", Some("n"), "shared");
    let wants = |spec: Value| {
        let content = json!({"spec": spec});
        [Desired::Whole(Whole {
            object: quota.clone(),
            fixed: Map::new(),
            content: content.as_object().cloned().unwrap_or_default(),
            data: BTreeMap::new(),
            ends_seconds: None,
        })]
    };
    let target = |ownership, there: Option<&Object>| {
        [TargetState {
            object: quota.clone(),
            existing: there.cloned().map(Arc::new),
            ownership,
            withheld: None,
        }]
    };
    let contentions = Contentions::default();
    let spec = || json!({"hard": {"pods": "1"}, "scopeSelector": {}});
    // The first one makes it, and the server leaves out the empty map.
    let stands_in = target(of_another(true), None);
    let mut plan = all(&policy, &stands_in, &wants(spec()), &contentions).unwrap();
    let made = plan.plan.steps.pop().unwrap();
    let Step::Create { desired } = &made else {
        panic!("{made:?}")
    };
    let mut there = desired.clone();
    there.body["spec"] = json!({"hard": {"pods": "1"}});
    let mut others = there.clone();
    others.body["spec"] = json!({"hard": {"pods": "2"}});
    let Ownership::OwnedBy { owner, .. } = of_another(false) else {
        panic!("another one owns it")
    };
    let wrote = |step: &Step| contentions.wrote(&owner, step, &Kept::of(step, &there));
    let is_right_for = |ownership: Ownership, there: &Object, spec: Value| {
        let targets = target(ownership, Some(there));
        let plan = all(&policy, &targets, &wants(spec), &contentions);
        plan.is_ok_and(|planned| planned.waits.is_none() && planned.plan.steps.is_empty())
    };
    let is_right = |there, spec| is_right_for(of_another(false), there, spec);
    assert!(!is_right(&there, spec()), "it is not known to be a form");
    wrote(&made);
    assert!(is_right(&there, spec()));
    assert!(!is_right(&others, spec()));
    assert!(!is_right(
        &there,
        json!({"hard": {"pods": "1"}, "scopes": []})
    ));
    // Nor has the next one that keeps it anything to write.
    let owns = Ownership::Owner {
        rivals: Rivals::OfPolicy,
    };
    assert!(is_right_for(owns, &there, spec()));
    // Of one that is made anew nothing is known.
    contentions.forget_form(&owner, &quota);
    assert!(!is_right(&there, spec()));
}
