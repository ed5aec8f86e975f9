//! Plans what is removed: own outputs whose source is gone or whose target moved.
//! Never removes what bears another stamp, what somebody else claims, or what is still needed.

use super::{Plan, Step};
use crate::claims::Claims;
use crate::failure::Failure;
use crate::object::Object;
use crate::policy::{Policy, ReadRule};
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::sync::Arc;
use transom_api::Word;
use transom_api::policy::{PruneSpec, Verb};

/// An output that is no longer desired.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The output as it is.
    pub object: Arc<Object>,
    /// Those of its [`keepers`] that are there, also while they are being deleted.
    pub kept_by: Vec<ObjectRef>,
}

/// Why outputs are no longer desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undesired {
    /// The subject is gone.
    SourceGone,
    /// The subject wants another target now.
    TargetMoved,
}

/// What is to be pruned for one key, and what could not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Pruned {
    /// The steps; empty when nothing can be removed now.
    pub plan: Plan,
    /// `StillNeeded`, with every object that keeps an output, when there is one.
    pub kept: Option<Failure>,
}

/// The objects that must be gone before an output is removed: for each role of `keepUntilAbsent` its object, the star
/// of the role's name standing for what the star of the output's namespace stands for. To be read, and to be waited for.
pub fn keepers(policy: &Policy, key: &Key, output: &ObjectRef) -> Vec<ObjectRef> {
    let Some(rule) = policy.secret(output, &key.subject) else { return Vec::new() };
    let stars = output.namespace.as_deref().and_then(|name| rule.namespace.captures(name, &key.subject));
    let roles = policy.own.keep_until_absent.iter().filter_map(|role| policy.read(role));
    roles.filter_map(|role| keeper(role, stars.as_deref()?, &key.subject)).collect()
}

fn keeper(role: &ReadRule, stars: &[String], subject: &ObjectRef) -> Option<ObjectRef> {
    let namespace = match &role.namespace {
        Some(pattern) => Some(pattern.fill(stars, subject)?),
        None => None,
    };
    Some(ObjectRef {
        cluster: role.cluster.clone(),
        api_version: role.api_version.clone(),
        kind: role.kind.clone(),
        namespace,
        name: role.name.fill(stars, subject)?,
    })
}

/// Plans the removal of outputs. What bears another stamp by now, is being deleted, or is claimed by somebody else
/// (who takes it over) is left out.
///
/// # Errors
/// `WriteNotGranted` when the policy does not grant to delete; `SourceGone` as *held* when it prunes nothing at all.
pub fn plan(
    policy: &Policy,
    key: &Key,
    candidates: &[Candidate],
    claims: &Claims,
    why: Undesired,
) -> Result<Pruned, Failure> {
    let mut pruned = Pruned { plan: Plan::new(key, None), kept: None };
    let ours = |object: &Object| Stamp::read(object).is_some_and(|stamp| stamp.names(key)) && !object.deleting();
    let unclaimed = |object: &Object| !claims.claimed_by_another(&object.reference, key);
    let mut kept_by = Vec::new();
    for candidate in candidates.iter().filter(|candidate| ours(&candidate.object) && unclaimed(&candidate.object)) {
        let target = &candidate.object.reference;
        if policy.own.prune == PruneSpec::Never {
            return Err(Failure::known(Word::SourceGone, format!("{target} is kept: the policy removes nothing")));
        }
        if !policy.secret(target, &key.subject).is_some_and(|rule| rule.verbs.contains(&Verb::Delete)) {
            return Err(Failure::known(Word::WriteNotGranted, format!("the policy does not grant to delete {target}")));
        }
        match candidate.kept_by.is_empty() {
            true => pruned.plan.steps.push(delete(&candidate.object, why)),
            false => kept_by.extend(candidate.kept_by.iter().map(|keeper| (target.clone(), keeper.clone()))),
        }
    }
    pruned.kept = kept_by.first().map(|(target, keeper)| {
        let message = format!("{target} is kept until {keeper} is gone");
        Failure::known(Word::StillNeeded, message).about(kept_by.iter().map(|(_, keeper)| keeper.clone()))
    });
    Ok(pruned)
}

fn delete(object: &Object, why: Undesired) -> Step {
    let why = match why {
        Undesired::SourceGone => "its source is gone",
        Undesired::TargetMoved => "its source has another target now",
    };
    Step::Delete { reference: object.reference.clone(), version: object.version.clone(), why: why.to_owned() }
}
