//! Plans the removal of an object that others made, or that the policy itself makes.

use super::contention::{self, Contentions};
use super::{PlanInput, Step, TargetState, adopt, finalizer, prune, unnamed, whole};
use crate::failure::Failure;
use crate::object::Object;
use crate::ownership::Rivals;
use crate::pattern::TemplateData;
use crate::policy::{Policy, WriteRule};
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use transom_api::KnownReason;
use transom_api::policy::{PruneSpec, WriteVerb};

/// Plans the removal: no step when the object is gone. Of one that is being deleted the granted finalizers are taken
/// off. The API server confirms by uid and version that the object is the one that was read.
pub(super) fn plan(
    wanting: &PlanInput<'_>,
    object: &ObjectRef,
    contentions: &Contentions,
) -> Result<Option<Step>, Failure> {
    let mut targets = wanting.targets.iter();
    if let Some(claimed) = targets.find(|claimed| claimed.object == *object) {
        return own(wanting, claimed, contentions);
    }
    let mut others = wanting.others.iter();
    let Some(other) = others.find(|other| other.object == *object) else {
        return Err(unnamed("removes", object));
    };
    let Some(existing) = other.existing.as_deref() else {
        return Ok(None);
    };
    let rules = wanting.policy.writes.iter();
    let mut rules = rules.filter(|rule| rule.admits(object, &wanting.data));
    let another = of_another(object, existing, wanting.stamp);
    if existing.deleting() {
        let rule = rules.find(|rule| rule.lets(WriteVerb::Release, existing));
        let finalizers = rule.and_then(WriteRule::finalizers);
        let step = finalizers.and_then(|names| finalizer::take(existing, names));
        return match (step, another) {
            (Some(_), Some(failure)) => Err(failure),
            (step, _) => Ok(step),
        };
    }
    if let Some(failure) = another {
        return Err(failure);
    }
    if !rules.any(|rule| rule.lets(WriteVerb::Remove, existing)) {
        return Err(refused(object, existing));
    }
    Ok(Some(delete(existing)))
}

/// Plans the removal of an object that the policy makes, or could adopt: the policy's decision also holds for objects
/// that existed before it. An object that is being deleted loses the finalizers of the grant. Spares what pruning
/// spares, and waits as pruning does. Contention limits removals like other writes: they stop if another writer keeps
/// recreating the object.
fn own(
    wanting: &PlanInput<'_>,
    claimed: &TargetState,
    contentions: &Contentions,
) -> Result<Option<Step>, Failure> {
    let (policy, object) = (wanting.policy, &claimed.object);
    let rule = policy.whole(object, &wanting.data)?;
    let Some(existing) = claimed.existing.as_deref() else {
        contentions.settle(wanting.key, object, None);
        return Ok(None);
    };
    if policy.own.prune == PruneSpec::Never && existing.deleting() {
        return Ok(None);
    }
    if policy.own.prune == PruneSpec::Never {
        let message = format!("{object} is not removed: spec.own.prune is Never");
        let failure = Failure::known(KnownReason::TargetNotOwned, message);
        return Err(failure.about([object.clone()]));
    }
    if rule.creates_only() {
        let message =
            format!("{object} is not removed: it is made once, and then belongs to others");
        let failure = Failure::known(KnownReason::TargetNotOwned, message);
        return Err(failure.about([object.clone()]));
    }
    let rivals = whole::owned(wanting, claimed)?;
    adopt::check_removal(wanting, existing, (rule, rivals))?;
    spared(wanting, existing, rivals)?;
    if is_left_to_prune(policy, object, &wanting.data) {
        return Ok(None);
    }
    if existing.deleting() {
        return Ok(finalizer::take_all(rule, existing));
    }
    if !rule.verbs.contains(&WriteVerb::Delete) {
        let message = format!("the policy does not grant the verb delete for {object}");
        return Err(Failure::known(KnownReason::WriteNotGranted, message));
    }
    if let Rivals::Unlocated(others) = rivals {
        return Err(prune::unknown(object, others, "want"));
    }
    let (before, after) = (contention::whole(Some(existing)), contention::whole(None));
    contentions.of_whole(wanting.key, object, |contention| {
        contention.permit(object, before, after, wanting.now_seconds)
    })?;
    Ok(Some(delete(existing)))
}

/// Checks that no other primary claims the object, and that it was not made for one. An object that is left to pruning
/// must bear the policy's stamp, or nobody would ever remove it.
fn spared(wanting: &PlanInput<'_>, existing: &Object, rivals: Rivals) -> Result<(), Failure> {
    let object = &existing.reference;
    if let Some(failure) = of_another(object, existing, wanting.stamp) {
        return Err(failure);
    }
    let left = is_left_to_prune(wanting.policy, object, &wanting.data);
    let why = match rivals {
        Rivals::OfPolicy | Rivals::OfOthers => "another primary claims it",
        _ if left && Stamp::read(existing).is_none() => {
            "it bears no stamp, and something else may still need it"
        }
        _ => return Ok(()),
    };
    let message = format!("{object} is not removed: {why}");
    Err(Failure::known(KnownReason::TargetNotOwned, message).about([object.clone()]))
}

/// Whether only pruning may remove an object that the policy makes: only pruning checks what keeps the object and which
/// other primaries share it.
pub fn is_left_to_prune(policy: &Policy, object: &ObjectRef, data: &TemplateData<'_>) -> bool {
    let shared = policy.whole(object, data).is_ok_and(WriteRule::is_shared);
    shared || !policy.own.keep_until_absent.is_empty()
}

/// Whether a write failed because the object is another's.
pub(super) fn is_kept_from_us(failure: &Failure) -> bool {
    use KnownReason::{OwnedByAnother, TargetNotOwned};
    [OwnedByAnother, TargetNotOwned]
        .iter()
        .any(|reason| failure.reason == (*reason).into())
}

/// Whether the removal of an object that others made failed because of what that object is like now.
pub(super) fn is_left_alone(failure: &Failure) -> bool {
    use KnownReason::{TargetNotOwned, WriteNotGranted};
    [TargetNotOwned, WriteNotGranted]
        .iter()
        .any(|reason| failure.reason == (*reason).into())
}

fn delete(existing: &Object) -> Step {
    Step::delete(existing, "its guest removes it")
}

/// Whether steps end something that others made: they remove an object, or take a finalizer off one that is not the
/// primary. That cannot be undone.
pub fn ends_others(steps: &[Step], primary: &ObjectRef) -> bool {
    let ends = |step: &Step| match step {
        Step::Delete { .. } => true,
        step => step.is_of_finalizers() && step.target() != primary,
    };
    steps.iter().any(ends)
}

/// Why an object is left alone that a policy made for another primary of the same kind: whoever may edit one primary
/// must not end what belongs to another. On another connection that may be one of the same name on another cluster.
fn of_another(object: &ObjectRef, existing: &Object, stamp: &Stamp) -> Option<Failure> {
    let there = Stamp::read(existing)?;
    let (primary, source) = (&stamp.source, &there.source);
    let (ours, theirs) = (&primary.reference, &source.reference);
    let place = |one: &ObjectRef| (one.cluster.clone(), one.namespace.clone(), one.name.clone());
    // The connection may have been renamed since.
    let same = !source.uid.is_empty() && source.uid == primary.uid || place(ours) == place(theirs);
    let of_cluster = primary.is_cluster_of(object, &there);
    let alike = (ours.group(), &ours.kind) == (theirs.group(), &theirs.kind);
    // On its own connection a policy may clean up after agents of other clusters.
    let elsewhere = object.cluster != ours.cluster
        && theirs.cluster == ours.cluster
        && !source.cluster_uid.is_empty();
    (alike && !(same && of_cluster) || elsewhere && !of_cluster).then(|| {
        let message = format!("{object} is not removed for {ours}: it was made for {theirs}");
        Failure::known(KnownReason::TargetNotOwned, message).about([object.clone()])
    })
}

/// Why an object that a rule names is not removed.
fn refused(object: &ObjectRef, existing: &Object) -> Failure {
    let (reason, why) = match Stamp::read(existing) {
        Some(stamp) => {
            let why = format!("it was made by the policy `{}`", stamp.policy);
            (KnownReason::TargetNotOwned, why)
        }
        None => {
            let why = "no rule with the verb remove selects it as it is".to_owned();
            (KnownReason::WriteNotGranted, why)
        }
    };
    let message = format!("the policy does not grant removing {object}: {why}");
    Failure::known(reason, message).about([object.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::desired::Desired;
    use crate::plan::{Other, TimeAdded};
    use crate::sample::{agent, object, objects_manifest, policy, stamp, with};
    use crate::stamp::SourceRef;
    use crate::work::Key;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const HOLD: &str = "example.com/hold";
    /// The uid of the cluster of the primary.
    const UID: &str = "uid-here";

    fn work(name: &str) -> ObjectRef {
        let api_version = "work.open-cluster-management.io/v1";
        ObjectRef::local(api_version, "ManifestWork", Some("c1"), name)
    }

    /// A policy that keeps the cluster, removes works, and takes a finalizer off them.
    fn removes(verbs: &[&str]) -> Policy {
        let finalizers = match verbs.contains(&"release") {
            true => json!([HOLD]),
            false => json!([]),
        };
        let grants = json!([{"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "namespace": "{primary.name}", "name": "*", "verbs": verbs, "finalizers": finalizers}]);
        let changes = [
            ("/spec/grant/write", grants),
            ("/spec/grant/finalizer", json!("example.com/ours")),
        ];
        policy(&with(objects_manifest(), &changes))
    }

    /// A policy that removes works with these labels.
    fn with_labels(labels: &Value) -> Policy {
        let grants = json!([{"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "namespace": "{primary.name}", "name": "*", "verbs": ["remove"], "labels": labels}]);
        policy(&with(objects_manifest(), &[("/spec/grant/write", grants)]))
    }

    /// Plans with a ManagedCluster that has this metadata, and works that have this one.
    fn with_wanting<T>(
        policy: &Policy,
        (primary, works): (Value, Option<Value>),
        plan: impl FnOnce(&PlanInput<'_>) -> T,
    ) -> T {
        let reference = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c1",
        );
        let primary = object(reference, json!({"metadata": primary}));
        let there = works.map(|works| Arc::new(object(work("w"), json!({"metadata": works}))));
        let agent = agent("hub", true);
        let key = Key::new(&policy.name, &primary.reference);
        plan(&PlanInput {
            policy,
            key: &key,
            data: TemplateData {
                object: &primary,
                agent: &agent,
            },
            primary: &primary,
            targets: &[],
            others: &[Other {
                object: work("w"),
                existing: there,
            }],
            stamp: &Stamp::of(&key, SourceRef::of(&primary, UID), "", ""),
            time_added: TimeAdded::SetByCluster,
            now_seconds: 0,
        })
    }

    /// What becomes of a work with this metadata.
    fn removal(verbs: &[&str], works: Option<Value>) -> Result<Option<Step>, (String, String)> {
        let plan =
            |wanting: &PlanInput<'_>| super::plan(wanting, &work("w"), &Contentions::default());
        let planned = with_wanting(&removes(verbs), (json!({}), works), plan);
        planned.map_err(|failure| (failure.reason.to_string(), failure.message))
    }

    fn finalizers(step: Option<Step>) -> Option<Value> {
        match step? {
            Step::Patch { fields, .. } => Some(fields[0].1.clone()),
            other => panic!("{other:?}"),
        }
    }

    const SINCE: &str = "2026-03-05T09:00:00Z";

    #[test]
    fn a_removal_and_a_finalizer_taken_off_others_cannot_be_undone() {
        let (primary, other) = (ObjectRef::local("v1", "Node", None, "p"), work("w"));
        let finalizers = |reference: &ObjectRef| Step::Patch {
            reference: reference.clone(),
            version: "1".to_owned(),
            fields: vec![(finalizer::FIELD.to_owned(), Value::Null)],
        };
        let delete = Step::Delete {
            reference: other.clone(),
            version: "1".to_owned(),
            uid: String::new(),
            why: String::new(),
        };
        assert!(ends_others(&[finalizers(&primary), delete], &primary));
        assert!(ends_others(&[finalizers(&other)], &primary));
        // The policy's own finalizer.
        assert!(!ends_others(&[finalizers(&primary)], &primary));
    }

    #[test]
    fn removes_what_is_there_by_uid_and_version() {
        let step = removal(&["remove"], Some(json!({"uid": "u"}))).unwrap();
        let Some(Step::Delete {
            reference,
            uid,
            version,
            ..
        }) = step
        else {
            panic!("{step:?}")
        };
        let there = object(work("w"), json!({}));
        assert_eq!(
            (reference, uid, version),
            (work("w"), "u".to_owned(), there.version)
        );
        assert_eq!(removal(&["remove"], None), Ok(None), "it is gone");
        let going = json!({"deletionTimestamp": SINCE, "finalizers": [HOLD]});
        assert_eq!(removal(&["remove"], Some(going)), Ok(None), "it is going");
    }

    #[test]
    fn takes_only_granted_finalizers_off_what_is_being_deleted() {
        let taken = |names: Value| {
            let going = json!({"deletionTimestamp": SINCE, "finalizers": names});
            finalizers(removal(&["release"], Some(going)).unwrap())
        };
        assert_eq!(
            taken(json!(["a/b", HOLD, "c/d"])),
            Some(json!(["a/b", "c/d"]))
        );
        assert_eq!(taken(json!([HOLD])), Some(Value::Null));
        assert_eq!(taken(json!(["a/b"])), None);
        let (reason, _) = removal(&["release"], Some(json!({"finalizers": [HOLD]}))).unwrap_err();
        assert_eq!(reason, "WriteNotGranted", "nobody deleted it");
    }

    #[test]
    fn never_removes_what_a_policy_made_or_what_was_no_target() {
        let mut made = json!({});
        stamp("a", "uid").put(&mut made);
        let (reason, message) = removal(&["remove"], Some(made["metadata"].take())).unwrap_err();
        assert_eq!(reason, "TargetNotOwned", "{message}");
        let other =
            |wanting: &PlanInput<'_>| super::plan(wanting, &work("other"), &Contentions::default());
        let failure = with_wanting(&removes(&["remove"]), (json!({}), None), other).unwrap_err();
        assert_eq!(failure.reason.to_string(), "ContractBroken");
    }

    #[test]
    fn the_label_of_a_policy_alone_keeps_no_object() {
        let labelled =
            |labels: Value| removal(&["remove"], Some(json!({"uid": "u", "labels": labels})));
        for labels in [
            json!({"transom.dev/policy": "x"}),
            json!({"transom.dev/policy": "x", "app.kubernetes.io/managed-by": "transom"}),
        ] {
            let step = labelled(labels.clone()).unwrap();
            assert!(matches!(step, Some(Step::Delete { .. })), "{labels}");
        }
        let going = json!({"deletionTimestamp": SINCE, "finalizers": [HOLD], "labels": {"transom.dev/policy": "x"}});
        let step = removal(&["release"], Some(going)).unwrap();
        assert_eq!(finalizers(step), Some(Value::Null));
    }

    #[test]
    fn an_object_of_others_that_has_to_stay_holds_up_no_other_removal() {
        let mut made = json!({"metadata": {"uid": "u"}});
        stamp("a", "uid").put(&mut made);
        for (policy, kept, reason) in [
            (removes(&["remove"]), made, "TargetNotOwned"),
            (
                with_labels(&json!({"matchLabels": {"goes": "1"}})),
                json!({"metadata": {"uid": "u"}}),
                "WriteNotGranted",
            ),
        ] {
            let goes = json!({"metadata": {"uid": "u", "labels": {"goes": "1"}}});
            let others = [("w1", kept), ("w2", goes)].map(|(name, body)| Other {
                object: work(name),
                existing: Some(Arc::new(object(work(name), body))),
            });
            let plan = |wanting: &PlanInput<'_>| {
                let wanting = PlanInput {
                    others: &others,
                    ..wanting.clone()
                };
                let gone = ["w1", "w2"].map(|name| Desired::Gone(work(name)));
                crate::plan::plan(&wanting, &gone, &Contentions::default())
            };
            let feasible = with_wanting(&policy, (json!({}), None), plan).unwrap();
            let removed: Vec<_> = feasible.plan.steps.iter().map(Step::target).collect();
            assert_eq!(removed, [&work("w2")]);
            // That holds the release of the primary.
            let waits = feasible.waits.map(|failure| failure.reason.to_string());
            assert_eq!(waits.as_deref(), Some(reason));
        }
    }

    #[test]
    fn never_removes_what_was_made_for_another_primary_of_the_kind() {
        let mut policy_of = objects_manifest();
        let grants = json!([{"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "namespace": "{primary.name}", "name": "*", "verbs": ["remove", "release"], "finalizers": [HOLD],
            "labels": {"matchExpressions": [{"key": "transom.dev/policy", "operator": "Exists"}]}}]);
        policy_of["spec"]["grant"]["write"] = grants;
        let policy = policy(&policy_of);
        let removal = |name: &str, kind: &str, deleting: bool| {
            let primary =
                ObjectRef::local("cluster.open-cluster-management.io/v1", kind, None, name);
            let of = crate::stamp::Stamp::of(
                &Key::new(&"other".into(), &primary),
                SourceRef::of(&object(primary.clone(), json!({})), ""),
                "",
                "",
            );
            let mut made = json!({"metadata": {"uid": "u", "finalizers": [HOLD]}});
            of.put(&mut made);
            if deleting {
                made["metadata"]["deletionTimestamp"] = json!(SINCE);
            }
            let plan =
                |wanting: &PlanInput<'_>| super::plan(wanting, &work("w"), &Contentions::default());
            let planned = with_wanting(&policy, (json!({}), Some(made["metadata"].take())), plan);
            planned
                .map(|step| step.is_some())
                .map_err(|one| one.reason.to_string())
        };
        for deleting in [false, true] {
            assert_eq!(removal("c1", "ManagedCluster", deleting), Ok(true));
            assert_eq!(
                removal("c1", "Other", deleting),
                Ok(true),
                "a primary of another kind"
            );
            let refused = Err("TargetNotOwned".to_owned());
            assert_eq!(removal("c2", "ManagedCluster", deleting), refused);
        }
    }

    #[test]
    fn never_removes_what_an_agent_of_another_cluster_made() {
        let mut policy_of = objects_manifest();
        policy_of["spec"]["grant"]["write"] = json!([{"apiVersion": "work.open-cluster-management.io/v1",
            "kind": "ManifestWork", "namespace": "{primary.name}", "name": "*", "verbs": ["remove"], "cluster": "hub",
            "labels": {"matchExpressions": [{"key": "transom.dev/policy", "operator": "Exists"}]}}]);
        let policy = policy(&policy_of);
        let mut there = work("w");
        there.cluster = "hub".to_owned();
        let removal = |uid: &str, kind: &str| {
            let plan = |wanting: &PlanInput<'_>| {
                let mut source = SourceRef::of(wanting.primary, uid);
                source.reference.kind = kind.to_owned();
                let other = &Key::new(&"other".into(), &source.reference);
                let of = Stamp::of(other, source, "", "");
                let mut body = json!({"metadata": {"uid": "u"}});
                of.on(&there).put(&mut body);
                let existing = Some(Arc::new(object(there.clone(), body)));
                let others = &[Other {
                    object: there.clone(),
                    existing,
                }];
                let wanting = PlanInput {
                    others,
                    ..wanting.clone()
                };
                super::plan(&wanting, &there, &Contentions::default())
            };
            let planned = with_wanting(&policy, (json!({"uid": "p"}), None), plan);
            planned
                .map(|step| step.is_some())
                .map_err(|failure| failure.reason.to_string())
        };
        let (alike, refused) = ("ManagedCluster", Err("TargetNotOwned".to_owned()));
        assert_eq!(removal(UID, alike), Ok(true));
        assert_eq!(removal("", alike), Ok(true), "made for this very primary");
        assert_eq!(removal("other", alike), refused);
        assert_eq!(removal(UID, "Other"), Ok(true), "a primary of another kind");
        assert_eq!(removal("other", "Other"), refused);
    }

    #[test]
    fn the_finalizer_of_the_policy_comes_and_goes_among_those_of_others() {
        let policy = removes(&["remove"]);
        let kept = |primary| finalizers(with_wanting(&policy, (primary, None), finalizer::keep));
        let released = |primary: Value| {
            let release = |wanting: &PlanInput<'_>| finalizer::release(&policy, wanting.primary);
            finalizers(with_wanting(&policy, (primary, None), release))
        };
        let (ours, both) = (
            "example.com/ours",
            json!({"finalizers": ["a/b", "example.com/ours"]}),
        );
        assert_eq!(kept(json!({})), Some(json!([ours])));
        assert_eq!(
            kept(json!({"finalizers": ["a/b"]})),
            Some(json!(["a/b", ours]))
        );
        assert_eq!(kept(both.clone()), None, "it is there");
        assert_eq!(
            kept(json!({"deletionTimestamp": SINCE})),
            None,
            "no server takes one then"
        );
        assert_eq!(released(both), Some(json!(["a/b"])));
        assert_eq!(released(json!({"finalizers": ["a/b"]})), None);
        assert_eq!(released(json!({})), None);
    }
}
