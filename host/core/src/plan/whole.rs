//! Plans a whole object that the policy makes: create, replace, adopt or leave alone.

use super::contention::{self, Contentions};
use super::desired::{KeyContent, Whole};
use super::{PlanInput, Step, TargetState, adopt, finalizer, immutable, unnamed};
use crate::failure::Failure;
use crate::managed_keys::{self, WantedKeys, finalizers_left};
use crate::object::Object;
use crate::ownership::{Ownership, Rivals};
use crate::policy::WriteRule;
use crate::projection::path;
use crate::reference::ObjectRef;
use crate::stamp::{self, Stamp};
use crate::work::Key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use transom_api::KnownReason;
use transom_api::policy::WriteVerb;

/// Plans the object: no step when it is as desired, several when it is made anew.
pub(super) fn plan(
    wanting: &PlanInput<'_>,
    whole: &Whole<'_>,
    contentions: &Contentions,
) -> Result<Vec<Step>, Failure> {
    let target = &whole.object;
    let rule = wanting.policy.whole(target, &wanting.data)?;
    let claimed = wanting.targets.iter().find(|one| one.object == *target);
    let Some(claimed) = claimed else {
        return Err(unnamed("wants", target));
    };
    let existing = claimed.existing.as_deref();
    let wanted = WantedKeys::of(&wanting.policy.own, &whole.content, &rule.fields);
    let forms = contentions.form(wanting.key, target);
    let wanted = wanted.kept_as(&forms).bearing(rule, existing);
    if rule.creates_only() && existing.is_some() {
        // Made once; whoever made it, it belongs to others.
        return Ok(Vec::new());
    }
    if rule.is_shared() && is_kept_by_another(wanting, claimed, whole, (&wanted, rule)) {
        return Ok(Vec::new());
    }
    let rivals = owned(wanting, claimed)?;
    let steps = match existing {
        None => vec![create(wanting, whole, &wanted, rule)],
        Some(existing) => {
            let checked = adopt::check(wanting, whole, existing, (rule, rivals));
            steps(wanting, whole, existing, (wanted, rule, checked))?
        }
    };
    let Some(first) = steps.first() else {
        contentions.settle(wanting.key, target, existing);
        return Ok(steps);
    };
    granted(rule, first)?;
    let Some(first) = steps.iter().find(|step| !step.is_of_finalizers()) else {
        return Ok(steps);
    };
    let desired = match first {
        Step::Create { desired } | Step::Update { desired, .. } => Some(desired),
        Step::Patch { .. } | Step::Delete { .. } => None,
    };
    let (before, after) = (contention::whole(existing), contention::whole(desired));
    contentions.of_whole(wanting.key, target, |contention| {
        contention.permit(target, before, after, wanting.now_seconds)
    })?;
    Ok(steps)
}

/// The steps to an object that is there, if it may be written ("checked"); none when it is right.
fn steps(
    wanting: &PlanInput<'_>,
    whole: &Whole<'_>,
    existing: &Object,
    (wanted, rule, checked): (WantedKeys<'_>, &WriteRule, Result<(), Failure>),
) -> Result<Vec<Step>, Failure> {
    if existing.deleting() && !works_on(existing, rule, checked.is_ok()) {
        return Ok(vec![going(existing, rule, checked)?]);
    }
    checked?;
    let Some(update) = update(wanting, whole, existing, (&wanted, rule)) else {
        return Ok(Vec::new());
    };
    immutable::replaced(wanting, (existing, rule), update, || {
        create(wanting, whole, &wanted.bearing(rule, None), rule)
    })
}

/// The step for an object that is being deleted: what the policy put on it and its grant names no longer is taken off.
fn going(
    existing: &Object,
    rule: &WriteRule,
    checked: Result<(), Failure>,
) -> Result<Step, Failure> {
    if let Some(step) = finalizer::take(existing, &finalizers_left(rule, existing)) {
        return checked.map(|()| step);
    }
    Err(immutable::terminating(&existing.reference))
}

/// Whether an object that is being deleted works on until its guest leaves it out: the policy made or adopted it, and
/// its grant names finalizers.
fn works_on(existing: &Object, rule: &WriteRule, is_ours: bool) -> bool {
    let holds = rule.finalizers().is_some_and(|names| !names.is_empty());
    let is_made = holds && is_ours && Stamp::read(existing).is_some();
    is_made && finalizers_left(rule, existing).is_empty()
}

/// Checks that the policy grants the verb of a step.
fn granted(rule: &WriteRule, step: &Step) -> Result<(), Failure> {
    let (verb, what) = match step {
        Step::Create { .. } => (WriteVerb::Create, "create"),
        _ => (WriteVerb::Update, "update"),
    };
    if rule.verbs.contains(&verb) {
        return Ok(());
    }
    let target = step.target();
    let message = format!("the policy does not grant the verb {what} for {target}");
    Err(Failure::known(KnownReason::WriteNotGranted, message))
}

/// Whether it is this primary's turn to write a shared object, which is not as it wants it, or to keep one that nobody
/// keeps. One that is being deleted is left to its keeper.
pub(super) fn lacks(wanting: &PlanInput<'_>, whole: &Whole<'_>, contentions: &Contentions) -> bool {
    let mut targets = wanting.targets.iter();
    let claimed = targets.find(|one| one.object == whole.object);
    let rule = wanting.policy.whole(&whole.object, &wanting.data);
    let shared = rule.ok().filter(|rule| rule.is_shared());
    let Some((rule, claimed)) = shared.zip(claimed) else {
        return false;
    };
    let stands_in = claimed.ownership.stands_in();
    if !stands_in && !matches!(claimed.ownership, Ownership::Owner { .. }) {
        return false;
    }
    let Some(existing) = claimed.existing.as_deref() else {
        return true;
    };
    if existing.deleting() || rule.creates_only() {
        return false;
    }
    let forms = contentions.form(wanting.key, &whole.object);
    let wanted = WantedKeys::of(&wanting.policy.own, &whole.content, &rule.fields);
    let wanted = wanted.kept_as(&forms).bearing(rule, Some(existing));
    let is_kept = stands_in && whole.data.is_empty() && wanted.is_in(existing);
    !is_kept && update(wanting, whole, existing, (&wanted, rule)).is_some()
}

/// Whether a shared object exists as this primary wants it, and another primary of the policy owns it. When the owner
/// goes, or no longer wants the object, another primary takes it over. The owner need not have stamped it yet: it may
/// fail before that, which must not block all others.
fn is_kept_by_another(
    wanting: &PlanInput<'_>,
    claimed: &TargetState,
    whole: &Whole<'_>,
    (wanted, rule): (&WantedKeys<'_>, &WriteRule),
) -> bool {
    let policy = &wanting.key.policy;
    let (Ownership::OwnedBy { owner, .. }, Some(existing)) =
        (&claimed.ownership, &claimed.existing)
    else {
        return false;
    };
    let ours = match Stamp::read(existing) {
        // The one that keeps it may not have named its cluster yet.
        Some(stamp) if stamp.source.cluster_uid.is_empty() => *stamp.policy == **policy,
        Some(stamp) => wanting.stamp.is_policy_of(&existing.reference, &stamp),
        None => adopt::of_others(wanting, existing, (rule, Rivals::OfPolicy)).is_none(),
    };
    let right = ours && !existing.deleting() && wanted.is_in(existing);
    owner.policy == *policy && whole.data.is_empty() && right
}

/// Checks that the primary may have the target, now. Returns who else claims it.
pub(super) fn owned(wanting: &PlanInput<'_>, claimed: &TargetState) -> Result<Rivals, Failure> {
    let target = &claimed.object;
    if let Some(failure) = &claimed.withheld {
        return Err(failure.clone());
    }
    match &claimed.ownership {
        Ownership::Owner { rivals } => Ok(*rivals),
        decided if decided.stands_in() => Ok(Rivals::OfPolicy),
        Ownership::OwnedBy { owner, .. } => {
            let message = owned_by(wanting, claimed, owner);
            Err(Failure::known(KnownReason::OwnedByAnother, message).about([target.clone()]))
        }
        Ownership::Pending { remaining } => Err(unlocated(target, *remaining)),
    }
}

/// Why a primary may not have a target that another one has, or writes first.
fn owned_by(wanting: &PlanInput<'_>, claimed: &TargetState, owner: &Key) -> String {
    let (key, target) = (wanting.key, &claimed.object);
    let shared = wanting.policy.whole(target, &wanting.data);
    let shared = shared.is_ok_and(WriteRule::is_shared) && key.policy == owner.policy;
    let (primary, other) = (&key.primary, &owner.primary);
    match (shared, key.policy == owner.policy) {
        (true, _) if claimed.existing.is_none() => {
            format!("{target} is shared by all primaries, and {other} makes it first")
        }
        (true, _) => format!(
            "{target} is shared by all primaries, and {other} keeps it: it is not as {primary} wants it"
        ),
        (false, true) => {
            format!("{target} is claimed by {primary} and {other}; the latter owns it")
        }
        // One primary often has two policies, so the message names the policies.
        (false, false) => format!(
            "{target} is claimed under two policies, `{}` for {primary} and `{}` for {other}; the latter owns it",
            key.policy, owner.policy
        ),
    }
}

/// The failure while primaries that may claim an object are not located yet.
pub fn unlocated(target: &ObjectRef, remaining: usize) -> Failure {
    let message = format!(
        "{target} has no ownership labels, and {remaining} primaries that might claim it are not located yet"
    );
    Failure::known(KnownReason::OwnershipPending, message)
}

fn create(
    wanting: &PlanInput<'_>,
    whole: &Whole<'_>,
    wanted: &WantedKeys<'_>,
    rule: &WriteRule,
) -> Step {
    let target = &whole.object;
    let data = whole
        .data
        .iter()
        .map(|(key, content)| (key.clone(), value(content)));
    let mut body = json!({
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name},
    });
    if let Some(namespace) = &target.namespace {
        body["metadata"]["namespace"] = namespace.as_str().into();
    }
    if let Some(map) = body.as_object_mut() {
        if !whole.data.is_empty() {
            map.insert("data".to_owned(), data.collect::<Map<_, _>>().into());
        }
        map.extend(whole.fixed.clone());
    }
    match rule.creates_only() {
        true => managed_keys::put_once(wanted, &mut body),
        false => {
            managed_keys::put(wanted, None, &mut body);
            wanting.stamp.on(target).put(&mut body);
            finalizer::put(rule, &mut body);
        }
    }
    Step::Create {
        desired: Object {
            reference: target.clone(),
            version: String::new(),
            body,
        },
    }
}

/// The step to the desired object; `None` when the existing one is right. What is right keeps its bytes.
fn update(
    wanting: &PlanInput<'_>,
    whole: &Whole<'_>,
    existing: &Object,
    (wanted, rule): (&WantedKeys<'_>, &WriteRule),
) -> Option<Step> {
    let (mut changed, mut data) = (Vec::new(), Map::new());
    for (key, content) in &whole.data {
        let kept = existing.data(key);
        let kept = kept.filter(|_| is_right(existing, key, content));
        if kept.is_none() {
            changed.push(path::of(&["data", key]));
        }
        data.insert(key.clone(), kept.cloned().unwrap_or_else(|| value(content)));
    }
    if !whole.data.is_empty() {
        changed.extend(stray_keys(existing, whole));
    }
    let (ours, stamp) = (wanting.stamp.on(&existing.reference), Stamp::read(existing));
    if !stamp.as_ref().is_some_and(|stamp| stamp.same_owner(&ours)) {
        changed.push("metadata".to_owned());
    }
    changed.extend(managed_keys::changed(wanted, existing));
    changed.extend(finalizer::wrong(rule, existing));
    if changed.is_empty() {
        return None;
    }
    let mut body = existing.body.clone();
    if let Some(map) = body.as_object_mut().filter(|_| !whole.data.is_empty()) {
        map.insert("data".to_owned(), data.into());
    }
    managed_keys::put(wanted, Some(existing), &mut body);
    ours.put(&mut body);
    finalizer::put(rule, &mut body);
    finalizer::drop_left(rule, existing, &mut body);
    if stamp.is_none() {
        stamp::put_adopted(&mut body);
    }
    let desired = Object {
        reference: existing.reference.clone(),
        version: existing.version.clone(),
        body,
    };
    Some(Step::Update { desired, changed })
}

/// Whether a key of an existing object means what is desired.
pub(super) fn is_right(existing: &Object, key: &str, content: &KeyContent<'_>) -> bool {
    match content {
        KeyContent::Text(text) => existing.data(key).and_then(Value::as_str) == Some(text),
        KeyContent::Hole(hole) => existing
            .secret_bytes(key)
            .is_some_and(|bytes| hole.equals(&bytes)),
    }
}

/// A content as the API has it.
fn value(content: &KeyContent<'_>) -> Value {
    match content {
        KeyContent::Text(text) => text.as_str().into(),
        KeyContent::Hole(hole) => STANDARD.encode(hole.bytes()).into(),
    }
}

/// Keys that others put into the data; the policy owns all of it.
fn stray_keys(existing: &Object, whole: &Whole<'_>) -> Vec<String> {
    let map = existing.body.get("data").and_then(Value::as_object);
    let keys = map.into_iter().flat_map(Map::keys);
    let stray = keys.filter(|key| !whole.data.contains_key(*key));
    stray.map(|key| path::of(&["data", key])).collect()
}
