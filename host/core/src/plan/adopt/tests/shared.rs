//! Tests of an object that all primaries share: what each of them plans for it, and whether it lets the next one try.

use super::*;
use crate::plan::WriteKind::{Create, Update};
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
