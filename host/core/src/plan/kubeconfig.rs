//! Plans the Secret that holds a kubeconfig: create, replace, adopt or leave alone. Its bytes come checked, and the
//! caller passes how to compare them.

use super::contention::{self, Contention};
use super::{Plan, Step};
use crate::failure::Failure;
use crate::managed_keys;
use crate::object::Object;
use crate::ownership::Ownership;
use crate::pattern::TemplateData;
use crate::policy::{Policy, SecretRule};
use crate::reference::ObjectRef;
use crate::stamp::{self, Stamp};
use crate::work::Key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::fmt;
use transom_api::KnownReason;
use transom_api::policy::{AdoptSpec, Verb};

/// Labels and annotations of this group say that an object belongs to a ManifestWork.
const MANIFEST_WORK: &str = "work.open-cluster-management.io/";

/// A checked kubeconfig, and how to compare an existing one with it.
pub struct Document<'a> {
    /// The bytes to write; they hold a credential.
    pub bytes: &'a [u8],
    /// Whether these bytes say the same: equal when parsed, credentials and CA by bytes.
    pub equals: &'a dyn Fn(&[u8]) -> bool,
    /// Whether the credential in these bytes is one of the source's.
    pub shares_credential: &'a dyn Fn(&[u8]) -> bool,
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.bytes.len())
    }
}

/// The arguments of [`plan`].
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Policy and primary by name.
    pub key: &'a Key,
    /// The primary as it is.
    pub data: TemplateData<'a>,
    /// The target.
    pub target: &'a ObjectRef,
    /// The target as it is, if it is there.
    pub existing: Option<&'a Object>,
    /// The answer of [`crate::ownership::OwnershipIndex::decide`].
    pub ownership: Ownership,
    /// The stamp to put on what is written.
    pub stamp: Stamp,
    /// The content.
    pub document: Document<'a>,
}

/// Plans the target: no step when it is as desired. Records the target in `contention`; call [`Contention::written`]
/// after a successful write.
///
/// # Errors
/// `OwnedByAnother`, `OwnershipPending`, `InputTerminating`, `TargetNotOwned`, `TargetImmutable`, `WriteNotGranted`,
/// `Contended`.
pub fn plan(
    wanted: &Wanted<'_>,
    contention: &mut Contention,
    now_seconds: i64,
) -> Result<Plan, Failure> {
    let target = wanted.target;
    let not_granted = |what: &str| {
        Failure::known(
            KnownReason::WriteNotGranted,
            format!("the policy does not grant the verb {what} for {target}"),
        )
    };
    let rule = wanted.policy.secret(target, &wanted.data)?;
    let sole = claimed(wanted)?;
    let step = match wanted.existing {
        None => Some(create(wanted, rule)),
        Some(existing) if existing.deleting() => {
            let failure = Failure::known(
                KnownReason::InputTerminating,
                format!("the target {target} is being deleted"),
            );
            return Err(failure.about([target.clone()]));
        }
        Some(existing) => {
            match Stamp::read(existing) {
                None => adopt(wanted, rule, existing, sole)?,
                Some(stamp) if *stamp.policy != *wanted.key.policy => {
                    let message = format!(
                        "{target} was made by the policy `{}`, which owns it",
                        stamp.policy
                    );
                    return Err(Failure::known(KnownReason::TargetNotOwned, message)
                        .about([target.clone()]));
                }
                Some(_) => {}
            }
            let step = update(wanted, rule, existing);
            check_mutable(existing, step.as_ref())?;
            step
        }
    };
    let Some(step) = step else {
        return Ok(Plan::new(wanted.key, None));
    };
    let (verb, what) = match step {
        Step::Create { .. } => (Verb::Create, "create"),
        _ => (Verb::Update, "update"),
    };
    if !rule.verbs.contains(&verb) {
        return Err(not_granted(what));
    }
    let desired = match &step {
        Step::Create { desired } | Step::Update { desired, .. } => Some(desired),
        Step::Patch { .. } | Step::Delete { .. } => None,
    };
    contention.permit(
        target,
        contention::whole(wanted.existing),
        contention::whole(desired),
        now_seconds,
    )?;
    Ok(Plan::new(wanted.key, Some(step)))
}

/// Whether the contender is the only one; an error when it does not keep the target.
fn claimed(wanted: &Wanted<'_>) -> Result<bool, Failure> {
    let Wanted { key, target, .. } = wanted;
    match &wanted.ownership {
        Ownership::Owner { sole } => Ok(*sole),
        Ownership::OwnedBy { owner } => {
            let message = match key.policy == owner.policy {
                true => format!(
                    "{target} is claimed by {} and {}; the latter owns it",
                    key.primary, owner.primary
                ),
                // One primary often has two policies, so the message names the policies.
                false => format!(
                    "{target} is claimed under two policies, `{}` for {} and `{}` for {}; the latter owns it",
                    key.policy, key.primary, owner.policy, owner.primary
                ),
            };
            Err(Failure::known(KnownReason::OwnedByAnother, message).about([(*target).clone()]))
        }
        Ownership::Pending { remaining } => Err(unlocated(target, *remaining)),
    }
}

/// `OwnershipPending`: can be told as soon as the target is known, before anything is read for it.
pub fn unlocated(target: &ObjectRef, remaining: usize) -> Failure {
    let message = format!(
        "{target} has no ownership labels, and {remaining} primaries that might claim it are not located yet"
    );
    Failure::known(KnownReason::OwnershipPending, message)
}

/// Checks that a target without a stamp may be adopted.
fn adopt(
    wanted: &Wanted<'_>,
    rule: &SecretRule,
    existing: &Object,
    sole: bool,
) -> Result<(), Failure> {
    let why = match wanted.policy.own.adopt {
        AdoptSpec::Never => "spec.own.adopt is Never",
        AdoptSpec::SoleOwner if !sole => "more than one primary claims it",
        AdoptSpec::SoleOwner if existing.has_owner() => "it has an owner reference",
        AdoptSpec::SoleOwner if of_manifest_work(existing) => "it belongs to a ManifestWork",
        AdoptSpec::SoleOwner => {
            let ours = data(existing, &rule.key)
                .is_some_and(|bytes| (wanted.document.shares_credential)(&bytes));
            if ours {
                return Ok(());
            }
            "the credential in it is not the source's"
        }
    };
    let message = format!(
        "{} exists without ownership labels and is not adopted: {why}",
        wanted.target
    );
    Err(Failure::known(KnownReason::TargetNotOwned, message).about([wanted.target.clone()]))
}

fn of_manifest_work(object: &Object) -> bool {
    ["/metadata/labels", "/metadata/annotations"]
        .iter()
        .filter_map(|pointer| object.body.pointer(pointer)?.as_object())
        .flat_map(Map::keys)
        .any(|key| key.starts_with(MANIFEST_WORK))
}

fn create(wanted: &Wanted<'_>, rule: &SecretRule) -> Step {
    let target = wanted.target;
    let mut body = json!({
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name, "namespace": target.namespace},
        "type": "Opaque",
        "data": {&rule.key: STANDARD.encode(wanted.document.bytes)},
    });
    managed_keys::put(&wanted.policy.own, None, &mut body);
    wanted.stamp.put(&mut body);
    Step::Create {
        desired: Object {
            reference: target.clone(),
            version: String::new(),
            body,
        },
    }
}

/// The whole object as it will be: our key, our stamp, the policy's labels and annotations, no stray key; labels of
/// others stay. `None` when content and owner are right: a changed digest in the stamp alone is no reason to write.
fn update(wanted: &Wanted<'_>, rule: &SecretRule, existing: &Object) -> Option<Step> {
    let mut changed = Vec::new();
    let right = data(existing, &rule.key).is_some_and(|bytes| (wanted.document.equals)(&bytes));
    if !right {
        changed.push(format!("data.{}", rule.key));
    }
    changed.extend(stray_keys(existing, &rule.key));
    if !Stamp::read(existing).is_some_and(|stamp| stamp.same_owner(&wanted.stamp)) {
        changed.push("metadata".to_owned());
    }
    changed.extend(managed_keys::changed(&wanted.policy.own, existing));
    if changed.is_empty() {
        return None;
    }
    let kept = existing.data(&rule.key).filter(|_| right).cloned();
    let value = kept.unwrap_or_else(|| Value::from(STANDARD.encode(wanted.document.bytes)));
    let mut body = existing.body.clone();
    if let Some(map) = body.as_object_mut() {
        map.insert("data".to_owned(), json!({&rule.key: value}));
    }
    managed_keys::put(&wanted.policy.own, Some(existing), &mut body);
    wanted.stamp.put(&mut body);
    if Stamp::read(existing).is_none() {
        stamp::put_adopted(&mut body);
    }
    let desired = Object {
        reference: existing.reference.clone(),
        version: existing.version.clone(),
        body,
    };
    Some(Step::Update { desired, changed })
}

/// Refuses a change to the content of an immutable Secret here, because the server would refuse the write.
fn check_mutable(existing: &Object, step: Option<&Step>) -> Result<(), Failure> {
    let immutable = existing.body.get("immutable") == Some(&Value::Bool(true));
    match step {
        Some(Step::Update { changed, .. })
            if immutable && changed.iter().any(|path| path.starts_with("data.")) =>
        {
            let target = &existing.reference;
            let message = format!(
                "{target} is immutable and differs in {}",
                changed.join(", ")
            );
            Err(Failure::known(KnownReason::TargetImmutable, message).about([target.clone()]))
        }
        _ => Ok(()),
    }
}

/// Paths of keys that are not ours.
fn stray_keys(existing: &Object, ours: &str) -> Vec<String> {
    let Some(map) = existing.body.get("data").and_then(Value::as_object) else {
        return Vec::new();
    };
    map.keys()
        .filter(|key| *key != ours)
        .map(|key| format!("data.{key}"))
        .collect()
}

/// The bytes under a key of a Secret's data; `None` when the key is not there or is not base64.
pub fn data(object: &Object, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(object.data(key)?.as_str()?.trim()).ok()
}
