//! Removes own outputs whose primary is gone or whose target moved. Spares objects with another stamp, objects that are
//! still needed, and objects that another primary of the policy is about to take over. [`crate::ownership`] decides
//! between contenders.

use super::{Plan, Step, finalizer};
use crate::failure::Failure;
use crate::object::Object;
use crate::ownership::OwnershipIndex;
use crate::pattern::{Captures, Pattern};
use crate::policy::{Policy, ReadRule, WriteRule};
use crate::reference::ObjectRef;
use crate::stamp::{SourceRef, Stamp};
use crate::work::Key;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_api::policy::{PruneSpec, WriteVerb};

/// An output that is no longer desired.
#[derive(Clone, Debug, PartialEq)]
pub struct PruneCandidate {
    /// The output as it is.
    pub object: Arc<Object>,
    /// Those of its [`dependents`] that exist, even when they are being deleted.
    pub kept_by: Vec<ObjectRef>,
}

/// Why outputs are no longer desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undesired {
    /// The primary is gone.
    SourceDeleted,
    /// The primary wants another target now.
    TargetMoved,
    /// Its guest has failed for too long.
    Withdrawn,
}

/// What is to be pruned for one key, and what has to stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Pruned {
    /// The steps; empty when nothing can be removed now.
    pub plan: Plan,
    /// Why an output that is no longer desired stays; for [`crate::report::Success::kept`]. `StillNeeded` with every
    /// object that keeps an output, `WriteNotGranted`, or `SourceDeleted` (held) when the policy removes nothing. What
    /// is withdrawn has a reason of its own ([`crate::failure::failing`]), which takes the message of this one.
    pub kept: Option<Failure>,
    /// Why an output stays that other primaries may share: `StillNeeded`. It goes with the last of them, so it holds up
    /// nothing else.
    pub shared: Option<Failure>,
}

/// The own outputs that may be no longer desired: all but a target that the primary certainly wants now.
pub fn undesired<'a>(
    outputs: impl Iterator<Item = &'a ObjectRef>,
    target: Option<&ObjectRef>,
) -> Vec<ObjectRef> {
    let others = outputs.filter(|output| Some(*output) != target);
    others.cloned().collect()
}

/// The objects that must be gone before an output is removed: for each role of `keepUntilAbsent`, the role's object.
/// Its name gets the stars and templates that the output's namespace matched, or its name where it has no namespace.
/// Read these objects, and wait for them.
pub fn dependents(policy: &Policy, key: &Key, output: &ObjectRef) -> Vec<ObjectRef> {
    let roles = &policy.own.keep_until_absent;
    if roles.is_empty() {
        return Vec::new();
    }
    let Some(rule) = policy.made(output, &key.primary) else {
        return Vec::new();
    };
    let named = rule.named().map(|(namespace, name)| match namespace {
        Some(pattern) => (pattern, output.namespace.as_deref().unwrap_or_default()),
        None => (name, output.name.as_str()),
    });
    let captured = named.and_then(|(pattern, text)| pattern.captures(text, &key.primary));
    roles
        .iter()
        .filter_map(|role| dependent(policy.read(role)?, captured.as_ref()?, &key.primary))
        .collect()
}

fn dependent(role: &ReadRule, captured: &Captures, primary: &ObjectRef) -> Option<ObjectRef> {
    let fill = |pattern: &Pattern| pattern.fill(captured, primary);
    Some(ObjectRef {
        cluster: role.cluster.clone(),
        api_version: role.api_version.clone(),
        kind: role.kind.clone(),
        namespace: match &role.namespace {
            Some(pattern) => Some(fill(pattern)?),
            None => None,
        },
        name: fill(&role.name)?,
    })
}

/// Plans the removal of outputs. Leaves out those that have another stamp by now, that an agent of another cluster
/// made, that are being deleted, or that another key of the policy is about to take over. A claim of another policy
/// does not keep an output: that policy can only create it anew.
pub fn plan(
    policy: &Policy,
    (key, source): (&Key, &SourceRef),
    candidates: &[PruneCandidate],
    ownership: &mut OwnershipIndex,
    why: Undesired,
) -> Pruned {
    let mut pruned = Pruned {
        plan: Plan::new(key, None),
        kept: None,
        shared: None,
    };
    let mut dependents = Vec::new();
    for candidate in candidates {
        if !is_left(&candidate.object, (key, source), ownership) {
            continue;
        }
        if let Some(step) = released(policy, key, candidate) {
            pruned.plan.steps.push(step);
            continue;
        }
        if candidate.object.deleting() {
            continue;
        }
        if policy.own.prune == PruneSpec::Never {
            let target = &candidate.object.reference;
            let message = format!("{target} is kept: spec.own.prune is Never");
            pruned.kept = (why != Undesired::TargetMoved)
                .then(|| Failure::known(KnownReason::SourceDeleted, message));
            return pruned;
        }
        let shared = is_shared(policy, key, &candidate.object.reference);
        let free = unwanted(key, candidate, (shared, ownership));
        match (removal(policy, key, candidate), free) {
            (Ok(()), Ok(())) => pruned.plan.steps.push(delete(&candidate.object, why)),
            (Ok(()), Err(wanted)) if shared => drop(pruned.shared.get_or_insert(wanted)),
            (Ok(()), Err(wanted)) => drop(pruned.kept.get_or_insert(wanted)),
            (Err(failure), _) => {
                dependents.extend(failure.objects.iter().cloned());
                pruned.kept.get_or_insert(failure);
            }
        }
    }
    pruned.kept = pruned.kept.map(|kept| Failure {
        objects: dependents,
        ..kept
    });
    pruned
}

/// Whether what bears a stamp was made by an agent of the cluster of this source.
pub fn is_made_by(source: &SourceRef, object: &Object) -> bool {
    Stamp::read(object).is_some_and(|stamp| source.is_cluster_of(&object.reference, &stamp))
}

/// Whether an output still has the key's stamp, of the cluster of its source, and no other key of the policy takes it
/// over.
fn is_left(
    object: &Object,
    (key, source): (&Key, &SourceRef),
    ownership: &mut OwnershipIndex,
) -> bool {
    let stamped = Stamp::read(object)
        .is_some_and(|stamp| stamp.names(key) && source.is_cluster_of(&object.reference, &stamp));
    stamped && !ownership.leaves_to_sibling(&object.reference, key)
}

/// The step that takes the finalizers of its grant off an output that is being deleted: nobody wants it any more.
fn released(policy: &Policy, key: &Key, candidate: &PruneCandidate) -> Option<Step> {
    let object = &candidate.object;
    let may = policy.own.prune != PruneSpec::Never && candidate.kept_by.is_empty();
    if !object.deleting() || !may {
        return None;
    }
    let rule = policy.made(&object.reference, &key.primary)?;
    finalizer::take_all(rule, object)
}

/// Checks that an output may be removed now.
fn removal(policy: &Policy, key: &Key, candidate: &PruneCandidate) -> Result<(), Failure> {
    let target = &candidate.object.reference;
    let rule = policy.made(target, &key.primary);
    if !rule.is_some_and(|rule| rule.verbs.contains(&WriteVerb::Delete)) {
        let message = format!("the policy does not grant the verb delete for {target}");
        return Err(Failure::known(KnownReason::WriteNotGranted, message));
    }
    let Some(dependent) = candidate.kept_by.first() else {
        return Ok(());
    };
    let message = format!("{target} is kept until {dependent} is gone");
    let failure = Failure::known(KnownReason::StillNeeded, message);
    Err(failure.about(candidate.kept_by.iter().cloned()))
}

/// Whether all primaries of the policy have an object.
fn is_shared(policy: &Policy, key: &Key, target: &ObjectRef) -> bool {
    let rule = policy.made(target, &key.primary);
    rule.is_some_and(WriteRule::is_shared)
}

/// Checks that no other primary of the policy may want an output without having said so yet: of an output that all
/// share, none whose guest is silent; of any other, none that was not located since the start, which may take it over.
fn unwanted(
    key: &Key,
    candidate: &PruneCandidate,
    (shared, ownership): (bool, &mut OwnershipIndex),
) -> Result<(), Failure> {
    let target = &candidate.object.reference;
    let (others, may) = match shared {
        true => (ownership.wait_for_known(key), "share"),
        false => (ownership.wait_for_located(key), "want"),
    };
    if others == 0 {
        return Ok(());
    }
    Err(unknown(target, others, may))
}

/// Why an output stays that others of the policy may want, which have not said so.
pub(super) fn unknown(target: &ObjectRef, others: usize, may: &str) -> Failure {
    let message = format!(
        "{target} is kept: {others} primaries may {may} it, and it is not known whether they do"
    );
    Failure::known(KnownReason::StillNeeded, message)
}

fn delete(object: &Object, why: Undesired) -> Step {
    let why = match why {
        Undesired::SourceDeleted => "its source was deleted",
        Undesired::TargetMoved => "its source now has another target",
        Undesired::Withdrawn => "its guest has failed for too long",
    };
    Step::delete(object, why)
}

/// A target with this policy's stamp for another primary than the one that claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The target.
    pub target: ObjectRef,
    /// The key that it was made for.
    pub former: Key,
    /// The objects that the target is kept for while they are being deleted; read them before [`Self::permit`].
    pub dependents: Vec<ObjectRef>,
}

impl Handover {
    /// `None` when the target has no stamp of this policy and cluster, or the stamp of this primary. A primary with the
    /// same name and another uid is another one; one with the same uid is the same, in whatever version of its kind the
    /// policy reads it.
    pub fn of(policy: &Policy, source: &SourceRef, key: &Key, existing: &Object) -> Option<Self> {
        let ours = |stamp: &Stamp| {
            *stamp.policy == *key.policy && source.is_cluster_of(&existing.reference, stamp)
        };
        let stamp = Stamp::read(existing).filter(ours)?;
        let (uid, stamped) = (source.uid.as_str(), stamp.source.uid.as_str());
        let same = match uid.is_empty() || stamped.is_empty() {
            true => stamp.names(key),
            false => uid == stamped && stamp.source.reference.cluster == key.primary.cluster,
        };
        if same {
            return None;
        }
        let (target, former) = (existing.reference.clone(), stamp.key());
        let dependents = dependents(policy, &former, &target);
        Some(Self {
            target,
            former,
            dependents,
        })
    }

    /// Whether the primary may have the target. A cluster that is not `connected` may still have the former primary;
    /// and a dependent that is being deleted still uses the old content, so it must not get another cluster's.
    ///
    /// # Errors
    /// `TargetNotOwned`; `StillNeeded` with the dependents that are being deleted.
    pub fn permit(
        &self,
        connected: bool,
        dependents: &[Option<Arc<Object>>],
    ) -> Result<(), Failure> {
        let Self { target, former, .. } = self;
        let primary = &former.primary;
        if !connected {
            let message = format!(
                "{target} was made for {primary}, but there is no connection `{}`",
                primary.cluster
            );
            let failure = Failure::known(KnownReason::TargetNotOwned, message);
            return Err(failure.about([target.clone()]));
        }
        let dependents = dependents.iter().flatten();
        let leaving: Vec<_> = dependents.filter(|one| one.deleting()).collect();
        let Some(first) = leaving.first() else {
            return Ok(());
        };
        let message = format!(
            "{target} was made for {primary} and is kept until {} is gone",
            first.reference
        );
        let failure = Failure::known(KnownReason::StillNeeded, message);
        Err(failure.about(leaving.iter().map(|dependent| dependent.reference.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, hosted, key, kubeconfig_manifest, object, stamp, target};
    use serde_json::{Value, json};
    use transom_api::Reason;

    /// The primary, which is gone.
    fn source(name: &str) -> SourceRef {
        SourceRef::gone(&hosted(name), "")
    }

    fn handover(stamped: &Stamp, uid: &str) -> Option<Handover> {
        let mut body = json!({});
        stamped.put(&mut body);
        let primary = object(hosted("a"), json!({"metadata": {"uid": uid}}));
        let policy = sample::policy(&kubeconfig_manifest());
        Handover::of(
            &policy,
            &SourceRef::of(&primary, ""),
            &key("a"),
            &object(target("demo"), body),
        )
    }

    fn klusterlet(metadata: Value) -> Option<Arc<Object>> {
        let reference = ObjectRef::local(
            "operator.open-cluster-management.io/v1",
            "Klusterlet",
            None,
            "klusterlet-demo",
        );
        Some(Arc::new(object(reference, json!({"metadata": metadata}))))
    }

    #[test]
    fn an_object_that_all_primaries_share_stays_until_it_is_known_what_all_of_them_want() {
        use crate::ownership::Contender;
        let shared = sample::with(
            kubeconfig_manifest(),
            &[
                ("/spec/grant/write/0/namespace", json!("shared")),
                ("/spec/own/keepUntilAbsent", json!([])),
            ],
        );
        let mut reference = target("demo");
        reference.namespace = Some("shared".to_owned());
        let mut body = json!({});
        stamp("a", "uid-a").put(&mut body);
        let candidates = [PruneCandidate {
            object: Arc::new(object(reference, body)),
            kept_by: Vec::new(),
        }];
        let policy = sample::policy(&shared);
        let mut ownership = OwnershipIndex::default();
        let mut prune = |change: fn(&mut OwnershipIndex)| {
            change(&mut ownership);
            let why = Undesired::SourceDeleted;
            let pruned = plan(
                &policy,
                (&key("a"), &source("a")),
                &candidates,
                &mut ownership,
                why,
            );
            assert_eq!(pruned.kept, None);
            let shared = pruned.shared.map(|shared| shared.reason);
            (pruned.plan.steps.len(), shared)
        };
        let kept = (0, Some(Reason::from(KnownReason::StillNeeded)));
        assert_eq!(prune(|index| index.expect(&key("b"))), kept);
        let says_nothing = |index: &mut OwnershipIndex| {
            drop(index.keep(Contender::of(&key("b"), None), []));
        };
        assert_eq!(prune(says_nothing), kept);
        let wants_nothing = |index: &mut OwnershipIndex| {
            drop(index.set(Contender::of(&key("b"), None), []));
        };
        assert_eq!(prune(wants_nothing), (1, None));
    }

    #[test]
    fn an_output_stays_until_every_other_primary_was_located_since_the_start() {
        use crate::ownership::Contender;
        let manifest = sample::with(
            kubeconfig_manifest(),
            &[("/spec/own/keepUntilAbsent", json!([]))],
        );
        let policy = sample::policy(&manifest);
        let mut body = json!({});
        stamp("a", "uid-a").put(&mut body);
        let candidates = [PruneCandidate {
            object: Arc::new(object(target("demo"), body)),
            kept_by: Vec::new(),
        }];
        let ownership = &mut OwnershipIndex::default();
        let prune = |ownership: &mut OwnershipIndex| {
            let why = Undesired::TargetMoved;
            let from = (&key("a"), &source("a"));
            plan(&policy, from, &candidates, ownership, why)
        };
        ownership.expect(&key("a"));
        ownership.expect(&key("b"));
        let pruned = prune(ownership);
        let why = pruned.kept.map(|kept| kept.reason);
        assert_eq!(why, Some(KnownReason::StillNeeded.into()));
        assert_eq!(pruned.plan.steps, []);
        ownership.set(Contender::of(&key("a"), None), []);
        // Its guest says nothing, so it is not known to want the output.
        let woken = ownership.keep(Contender::of(&key("b"), None), []);
        assert_eq!(woken, [key("a")]);
        let pruned = prune(ownership);
        assert_eq!((pruned.kept, pruned.plan.steps.len()), (None, 1));
    }

    #[test]
    fn what_is_left_over_and_being_deleted_loses_the_finalizers_of_its_grant() {
        const HOLD: &str = "example.com/hold";
        let grants = json!([{"kind": "ConfigMap", "namespace": "a", "name": "b", "fields": ["data.x"],
            "verbs": ["create", "update", "delete"], "finalizers": [HOLD]}]);
        let policy = sample::policy(&sample::with(
            sample::objects_manifest(),
            &[("/spec/grant/write", grants)],
        ));
        let released = |finalizers: &[&str], kept_by: Vec<ObjectRef>| {
            let since = "2026-03-05T09:00:00Z";
            let mut body =
                json!({"metadata": {"deletionTimestamp": since, "finalizers": finalizers}});
            stamp("a", "uid-a").put(&mut body);
            let reference = ObjectRef::local("v1", "ConfigMap", Some("a"), "b");
            let object = Arc::new(object(reference, body));
            let candidates = [PruneCandidate { object, kept_by }];
            let (ownership, why) = (&mut OwnershipIndex::default(), Undesired::TargetMoved);
            let mut pruned = plan(
                &policy,
                (&key("a"), &source("a")),
                &candidates,
                ownership,
                why,
            );
            match pruned.plan.steps.pop() {
                Some(Step::Patch { fields, .. }) => Some(fields[0].1.clone()),
                other => {
                    assert_eq!(other, None);
                    None
                }
            }
        };
        assert_eq!(released(&[HOLD, "a.b/c"], vec![]), Some(json!(["a.b/c"])));
        assert_eq!(released(&["a.b/c"], vec![]), None);
        assert_eq!(
            released(&[HOLD], vec![target("demo")]),
            None,
            "it is still needed"
        );
    }

    #[test]
    fn leaves_what_an_agent_of_another_cluster_made_and_takes_nothing_over_from_it() {
        let on_hub = [
            ("/spec/grant/write/0/cluster", json!("hub")),
            ("/spec/own/keepUntilAbsent", json!([])),
        ];
        let policy = sample::policy(&sample::with(kubeconfig_manifest(), &on_hub));
        let made = |name: &str, uid: &str| {
            let mut there = target("demo");
            there.cluster = "hub".to_owned();
            let (mut body, mut stamp) = (json!({}), stamp(name, "uid-a"));
            stamp.source.cluster_uid = uid.to_owned();
            stamp.on(&there).put(&mut body);
            object(there, body)
        };
        let pruned = |source: &SourceRef, uid: &str| {
            let candidates = [PruneCandidate {
                object: Arc::new(made("a", uid)),
                kept_by: Vec::new(),
            }];
            let (mut none, key) = (OwnershipIndex::default(), key("a"));
            let why = Undesired::SourceDeleted;
            let pruned = plan(&policy, (&key, source), &candidates, &mut none, why);
            assert_eq!((pruned.kept, pruned.shared), (None, None));
            pruned.plan.steps.len() == 1
        };
        let gone = SourceRef::gone(&hosted("a"), "here");
        assert!(pruned(&gone, "here"));
        assert!(!pruned(&gone, "other"));
        assert!(!pruned(&gone, ""), "of which cluster is not known");
        let primary = object(hosted("a"), json!({"metadata": {"uid": "uid-a"}}));
        let present = SourceRef::of(&primary, "here");
        assert!(pruned(&present, ""), "it was made for this very primary");
        let handed = |uid: &str| Handover::of(&policy, &present, &key("a"), &made("b", uid));
        assert_eq!(handed("other"), None);
        // Those of one uid are one primary; of another one, the former primary.
        let mut remade = present.clone();
        remade.uid = "uid-b".to_owned();
        let handed = |uid: &str| Handover::of(&policy, &remade, &key("a"), &made("b", uid));
        assert!(handed("here").is_some());
        assert_eq!((handed("other"), handed("")), (None, None));
    }

    #[test]
    fn hands_over_only_between_primaries_of_the_same_policy() {
        assert_eq!(handover(&stamp("a", "uid-a"), "uid-a"), None);
        assert_eq!(
            handover(&stamp("a", ""), "uid-a"),
            None,
            "a directory gives no uid"
        );
        let other_policy = Stamp {
            policy: "other".to_owned(),
            ..stamp("b", "uid-b")
        };
        assert_eq!(handover(&other_policy, "uid-a"), None);
        let mut other_version = stamp("a", "uid-a");
        other_version.source.reference.api_version = "hypershift.openshift.io/v1alpha1".to_owned();
        assert_eq!(handover(&other_version, "uid-a"), None);
        let remade = handover(&stamp("a", "uid-before"), "uid-a").unwrap();
        assert_eq!(remade.former, key("a"));
        let handed = handover(&stamp("b", "uid-b"), "uid-a").unwrap();
        assert_eq!(handed.former, key("b"));
        assert_eq!(
            handed.dependents,
            [klusterlet(json!({})).unwrap().reference.clone()]
        );
    }

    #[test]
    fn waits_for_a_blocker_being_deleted_and_a_disconnected_cluster() {
        let handover = handover(&stamp("b", "uid-b"), "uid-a").unwrap();
        let reason = |connected, dependents: &[_]| {
            handover
                .permit(connected, dependents)
                .map_err(|failure| failure.reason)
        };
        assert_eq!(reason(true, &[None]), Ok(()));
        assert_eq!(
            reason(true, &[klusterlet(json!({}))]),
            Ok(()),
            "a Klusterlet that stays goes to who comes next"
        );
        let leaving = klusterlet(json!({"deletionTimestamp": "2026-03-05T09:00:00Z"}));
        assert_eq!(
            reason(true, std::slice::from_ref(&leaving)),
            Err(Reason::from(KnownReason::StillNeeded))
        );
        assert_eq!(
            reason(false, &[leaving]),
            Err(Reason::from(KnownReason::TargetNotOwned))
        );
    }
}
