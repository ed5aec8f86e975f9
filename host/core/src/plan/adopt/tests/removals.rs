//! What a guest removes by name, and what else holds it up or not.

use super::*;
use crate::contract::decide::FailedWrite;
use crate::plan::Unplanned;
use crate::plan::contention::Contention;
use crate::plan::kept::Kept;
use std::collections::BTreeSet;

fn gone(there: &Object) -> Desired<'static> {
    Desired::Gone(there.reference.clone())
}

#[test]
fn a_guest_removes_nothing_that_pruning_would_spare() {
    let removed = |policy: &Value, there: &Object, rivals| {
        let removed = planned(&crate::sample::policy(policy), there, rivals, gone(there));
        removed.map(|step| step.is_some())
    };
    let there = full(&json!({}));
    assert_eq!(removed(&makes(), &there, Rivals::None), Ok(true));
    let Ok(Some(Step::Update { desired: ours, .. })) =
        planned(&policy(&makes()), &there, Rivals::None, wanted(&there))
    else {
        panic!("it is adopted")
    };
    assert_eq!(removed(&makes(), &ours, Rivals::None), Ok(true));
    let claimed = removed(&makes(), &ours, Rivals::OfPolicy).unwrap_err();
    assert!(claimed.ends_with("another primary claims it"), "{claimed}");
    // One that is not located yet may take it over.
    let waits = removed(&makes(), &ours, Rivals::Unlocated(2)).unwrap_err();
    assert!(
        waits.contains("2 primaries may want it, and it is not known"),
        "{waits}"
    );
    // It was made for another primary that does not claim it now.
    let mut moved = ours.clone();
    let source = json!({"cluster": "local", "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "name": "c2", "uid": "other"});
    moved.body["metadata"]["annotations"]["transom.dev/source"] = source.to_string().into();
    let made = removed(&makes(), &moved, Rivals::None).unwrap_err();
    assert!(made.contains("it was made for"), "{made}");
    // What all share, and what is kept for something else, is left to pruning.
    let shared = |mut there: Object| {
        there.reference = role("shared");
        there
    };
    assert_eq!(
        removed(&makes(), &shared(ours.clone()), Rivals::None),
        Ok(false)
    );
    assert!(removed(&makes(), &shared(there.clone()), Rivals::None).is_err());
    let read =
        json!([{"role": "r", "apiVersion": RBAC, "kind": "ClusterRole", "name": "{primary.name}"}]);
    let keeps = with(
        makes(),
        &[
            ("/spec/grant/read", read),
            ("/spec/own", json!({"keepUntilAbsent": ["r"]})),
        ],
    );
    assert_eq!(removed(&keeps, &ours, Rivals::None), Ok(false));
    assert!(removed(&keeps, &there, Rivals::None).is_err());
}

#[test]
fn a_removal_stops_when_another_makes_the_object_again_and_again() {
    let (policy, there) = (policy(&makes()), full(&json!({})));
    let key = {
        let cluster = "cluster.open-cluster-management.io/v1";
        Key::new(
            &policy.name,
            &ObjectRef::local(cluster, "ManagedCluster", None, "c1"),
        )
    };
    let contentions = Contentions::default();
    let remove = || {
        let alone = Ownership::Owner {
            rivals: Rivals::None,
        };
        let targets = [claimed(&there, alone)];
        let planned = all(&policy, &targets, &[gone(&there)], &contentions).unwrap();
        for step in &planned.plan.steps {
            contentions.wrote(&key, step, &Kept::default());
        }
        assert_eq!(planned.refused, None);
        (planned.plan.steps.len(), planned.waits)
    };
    // The first one was there before; two were made again.
    for _ in 0..3 {
        assert_eq!(remove(), (1, None));
    }
    let (steps, waits) = remove();
    assert_eq!(steps, 0);
    assert_eq!(waits.unwrap().reason, KnownReason::Contended.into());
    // What is pruned was no fight.
    let pruned = Contentions::default();
    pruned.of_whole(&key, &there.reference, |_| {});
    let delete = Step::Delete {
        reference: there.reference.clone(),
        version: String::new(),
        uid: String::new(),
        why: String::new(),
    };
    pruned.wrote(&key, &delete, &Kept::default());
    let is_new = |contention: &mut Contention| *contention == Contention::default();
    assert!(pruned.of_whole(&key, &there.reference, is_new));
}

#[test]
fn what_cannot_be_made_holds_up_no_removal() {
    let (policy, there) = (policy(&makes()), full(&json!({})));
    let plan = |ownership: Ownership, desired: &[Desired<'_>]| {
        let targets = [claimed(&there, ownership)];
        all(&policy, &targets, desired, &Contentions::default())
    };
    let owner = |rivals| Ownership::Owner { rivals };
    // A refused removal is told beside what is waited for, and makes no plan partial.
    let refused = plan(owner(Rivals::OfOthers), &[gone(&there)]).unwrap();
    assert_eq!((refused.plan.steps.len(), refused.waits), (0, None));
    let why = refused.refused.unwrap();
    assert_eq!(why.reason, KnownReason::TargetNotOwned.into());
    // What is not known yet may be removed later: until then the plan is partial.
    let pending = plan(Ownership::Pending { remaining: 1 }, &[gone(&there)]).unwrap();
    let why = pending.waits.unwrap();
    assert_eq!(why.reason, KnownReason::OwnershipPending.into());
    assert_eq!(pending.refused, None);
}

/// The policy that also makes another role, `extra-{primary.name}`.
fn makes_extra() -> Value {
    let mut more = makes();
    let mut extra = more["spec"]["grant"]["write"][0].clone();
    extra["name"] = json!("extra-{primary.name}");
    let grants = more["spec"]["grant"]["write"].as_array_mut().unwrap();
    grants.push(extra);
    more
}

#[test]
fn a_removal_goes_on_when_an_object_is_not_taken_over_from_another_primary_now() {
    let more = makes_extra();
    let there = full(&json!({}));
    let mut former = there.clone();
    former.reference = role("extra-c1");
    for reason in [KnownReason::TargetNotOwned, KnownReason::StillNeeded] {
        let alone = || Ownership::Owner {
            rivals: Rivals::None,
        };
        let withheld = TargetState {
            withheld: Some(Failure::known(reason, "m")),
            ..claimed(&former, alone())
        };
        let targets = [claimed(&there, alone()), withheld];
        let plan = |desired: &[Desired<'_>]| {
            all(&policy(&more), &targets, desired, &Contentions::default())
        };
        let planned = plan(&[wanted(&former), gone(&there)]).unwrap();
        assert_eq!(planned.waits.unwrap().reason, reason.into());
        let targets: Vec<_> = planned.plan.steps.iter().map(Step::target).collect();
        assert_eq!(targets, [&there.reference]);
        // Nor is it removed, which holds up no other removal.
        let planned = plan(&[gone(&former), gone(&there)]).unwrap();
        let targets: Vec<_> = planned.plan.steps.iter().map(Step::target).collect();
        assert_eq!(targets, [&there.reference]);
        let planned = plan(&[wanted(&former)]).unwrap();
        assert_eq!(
            (
                planned.plan.steps.len(),
                planned.waits.unwrap().message.as_str()
            ),
            (0, "m")
        );
    }
}

#[test]
fn a_removal_goes_on_when_an_object_is_not_ours_to_make() {
    let more = makes_extra();
    let there = full(&json!({}));
    let mut foreign = there.clone();
    foreign.reference = role("extra-c1");
    foreign.body["rules"] = json!([rule(&["delete"])]);
    let plan = |desired: &[Desired<'_>]| {
        let alone = || Ownership::Owner {
            rivals: Rivals::None,
        };
        let targets = [claimed(&there, alone()), claimed(&foreign, alone())];
        all(&policy(&more), &targets, desired, &Contentions::default())
    };
    let planned = plan(&[wanted(&foreign), Desired::Finalizer, gone(&there)]).unwrap();
    let why = planned.waits.expect("nothing of it counts as success");
    assert_eq!(why.reason, KnownReason::TargetNotOwned.into());
    let targets: Vec<_> = planned.plan.steps.iter().map(Step::target).collect();
    assert_eq!(targets, [&there.reference]);
    // Nothing else comes after it, and what stands before it is planned.
    let planned = plan(&[wanted(&foreign), wanted(&there), gone(&foreign)]).unwrap();
    assert_eq!(planned.plan.steps, []);
    assert!(planned.waits.is_some() && planned.refused.is_some());
    let planned = plan(&[wanted(&there), wanted(&foreign)]).unwrap();
    let targets: Vec<_> = planned.plan.steps.iter().map(Step::target).collect();
    assert_eq!(targets, [&there.reference]);
    // The guest is told of it as of a write that the API server refuses.
    let told = FailedWrite {
        object: foreign.reference.clone(),
        reason: "TargetNotOwned".to_owned(),
    };
    assert_eq!(planned.unplanned, Unplanned::Failed(told, BTreeSet::new()));
}

#[test]
fn a_right_is_taken_away_whatever_holds_up_another_object() {
    let mut more = makes_extra();
    let data = json!({"kind": "ConfigMap", "namespace": "n", "name": "c-{primary.name}",
        "verbs": ["create", "update", "delete"], "fields": ["data"]});
    let grants = more["spec"]["grant"]["write"].as_array_mut().unwrap();
    let extra = grants.last_mut().and_then(Value::as_object_mut).unwrap();
    extra.remove("finalizers");
    grants.push(data);
    let policy = policy(&more);
    let there = full(&json!({}));
    let mut held = there.clone();
    held.reference = role("extra-c1");
    held.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
    let data = object(
        ObjectRef::local("v1", "ConfigMap", Some("n"), "c-c1"),
        json!({"data": {}}),
    );
    let plan = |desired: &[Desired<'_>]| {
        let alone = || Ownership::Owner {
            rivals: Rivals::None,
        };
        let targets = [&there, &held, &data].map(|one| claimed(one, alone()));
        all(&policy, &targets, desired, &Contentions::default())
    };
    // What else is removed may be what cannot be written is to replace, and nothing else is made.
    let planned = plan(&[wanted(&held), Desired::Finalizer, gone(&data), gone(&there)]).unwrap();
    let why = planned.waits.expect("nothing of it counts as success");
    assert_eq!(why.reason, KnownReason::InputTerminating.into());
    let targets: Vec<_> = planned.plan.steps.iter().map(Step::target).collect();
    assert_eq!(targets, [&there.reference]);
    let planned = plan(&[wanted(&held), gone(&data)]).unwrap();
    assert_eq!(planned.plan.steps, []);
    // It passes, so that the guest is not told.
    assert!(planned.waits.is_some() && planned.unplanned == Unplanned::PutOff);
}

#[test]
fn what_all_share_is_right_before_the_one_that_is_to_keep_it_has_taken_it() {
    let mut manifest = makes();
    let mut hub = manifest["spec"]["grant"]["write"][1].clone();
    hub["cluster"] = json!("hub");
    let rules = manifest["spec"]["grant"]["write"].as_array_mut();
    rules.unwrap().push(hub);
    let policy = policy(&manifest);
    let planned_at = |place: ObjectRef, body: Value| {
        let there = object(place, body);
        let cluster = "cluster.open-cluster-management.io/v1";
        let other = ObjectRef::local(cluster, "ManagedCluster", None, "c0");
        let owner = Ownership::OwnedBy {
            owner: Key::new(&policy.name, &other),
            stands_in: false,
        };
        let targets = [claimed(&there, owner)];
        let planned = all(
            &policy,
            &targets,
            &[wanted(&there)],
            &Contentions::default(),
        );
        let planned = planned.unwrap();
        let right = planned.waits.is_none();
        right.then_some(planned.plan.steps.len())
    };
    let planned = |metadata: Value, rules: Value| {
        planned_at(
            role("shared"),
            json!({"metadata": metadata, "rules": rules}),
        )
    };
    let right = json!([rule(&["get"])]);
    assert_eq!(planned(json!({}), right.clone()), Some(0));
    assert_eq!(planned(json!({}), json!([rule(&["get", "update"])])), None);
    let going = json!({"deletionTimestamp": "2026-03-05T09:00:00Z"});
    assert_eq!(planned(going, right.clone()), None);
    let owned = json!({"ownerReferences": [{"name": "o"}]});
    assert_eq!(planned(owned, right.clone()), None);
    // On another connection the one that keeps it may not have named its cluster yet; that of another cluster is not
    // right, however it looks.
    let made = |cluster_uid: &str| {
        let (mut there, mut source) = (role("shared"), SourceRef::gone(&role("c0"), cluster_uid));
        (there.cluster, source.uid) = ("hub".to_owned(), "u0".to_owned());
        let mut body = json!({"rules": right});
        let key = Key::new(&policy.name, &source.reference);
        Stamp::of(&key, source, "", "").put(&mut body);
        planned_at(there, body)
    };
    assert_eq!(made(""), Some(0));
    assert_eq!(made(CLUSTER), Some(0));
    assert_eq!(made("other"), None);
}
