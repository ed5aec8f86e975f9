//! Which objects that are there without a stamp a policy takes for its own.

use super::PlanInput;
use super::desired::{KeyContent, Whole};
use super::whole::is_right;
use crate::failure::Failure;
use crate::managed_keys::WantedKeys;
use crate::object::Object;
use crate::ownership::Rivals;
use crate::pattern::TemplateData;
use crate::policy::WriteRule;
use crate::projection::path::{self, Path};
use crate::reference::ObjectRef;
use crate::stamp::{SourceRef, Stamp};
use serde_json::Value;
use transom_api::policy::{AdoptSpec, OwnSpec};
use transom_api::{KnownReason, labels};

/// Labels and annotations of this group say that an object belongs to a ManifestWork.
const MANIFEST_WORK: &str = "work.open-cluster-management.io/";

/// Groups of the marks of Helm and Argo CD.
const TOOLS: [&str; 2] = ["meta.helm.sh", "argocd.argoproj.io"];
/// What the groups of the marks of Flux end with.
const FLUX: &str = ".toolkit.fluxcd.io";

/// Checks that an existing object is this policy's, or may be adopted.
pub(super) fn check(
    wanting: &PlanInput<'_>,
    whole: &Whole<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
) -> Result<(), Failure> {
    ours(wanting, existing, (rule, rivals), || {
        let bounded = whole.data.is_empty() && is_bounded(rule, existing, &wanting.data);
        match (bounded, of_tool(existing)) {
            (true, None) => None,
            (true, Some(tool)) => differs(whole, existing).map(|_| tool),
            (false, _) => differs(whole, existing),
        }
    })
}

/// Checks that an existing object is this policy's, or one that it could adopt whatever it wants of it: then it may
/// remove it.
pub(super) fn check_removal(
    wanting: &PlanInput<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
) -> Result<(), Failure> {
    ours(wanting, existing, (rule, rivals), || {
        match is_bounded(rule, existing, &wanting.data) {
            true => of_tool(existing),
            false => Some(OTHER_CONTENT),
        }
    })
}

/// Checks that an existing object is this policy's, or that nothing is against adopting it.
fn ours(
    wanting: &PlanInput<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
    differs: impl FnOnce() -> Option<&'static str>,
) -> Result<(), Failure> {
    let target = &existing.reference;
    let message = match Stamp::read(existing) {
        Some(stamp) if wanting.stamp.is_policy_of(target, &stamp) => return Ok(()),
        Some(stamp) if *stamp.policy == *wanting.key.policy => of_another_cluster(target, &stamp),
        Some(stamp) => format!(
            "{target} was made by the policy `{}`, which owns it",
            stamp.policy
        ),
        None => {
            let of_others = of_others(wanting, existing, (rule, rivals));
            let Some(why) = of_others.or_else(differs) else {
                return Ok(());
            };
            format!("{target} exists without ownership labels and is not adopted: {why}")
        }
    };
    Err(Failure::known(KnownReason::TargetNotOwned, message).about([target.clone()]))
}

/// What is wrong with an object that the policy of this name made on another cluster.
fn of_another_cluster(target: &ObjectRef, stamp: &Stamp) -> String {
    let SourceRef {
        reference,
        cluster_uid,
        ..
    } = &stamp.source;
    let of = match cluster_uid.is_empty() {
        true => "which may be on another cluster: its stamp does not name one".to_owned(),
        false => format!("on another cluster ({cluster_uid}), whose agent owns it"),
    };
    format!("{target} was made for {reference} {of}")
}

/// Why an object without a stamp is not adopted, whatever it holds. Rivals of the same policy do not prevent adoption
/// of an object that all its primaries share.
pub(super) fn of_others(
    wanting: &PlanInput<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
) -> Option<&'static str> {
    let alone = match rivals {
        Rivals::None => true,
        Rivals::OfPolicy => rule.is_shared(),
        Rivals::OfOthers | Rivals::Unlocated(_) => false,
    };
    match wanting.policy.own.adopt {
        AdoptSpec::Never => Some("spec.own.adopt is Never"),
        AdoptSpec::SoleOwner if !alone => Some("more than one primary claims it"),
        AdoptSpec::SoleOwner if existing.has_owner() => Some("it has an owner reference"),
        AdoptSpec::SoleOwner if of_manifest_work(existing) => Some("it belongs to a ManifestWork"),
        AdoptSpec::SoleOwner => None,
    }
}

/// Whether an object says in every granted field something that the grant lists: the policy could have written all of
/// it, so nothing of others is lost when it is written over. An object that lacks a field may be one of others with the
/// same name.
fn is_bounded(rule: &WriteRule, existing: &Object, data: &TemplateData<'_>) -> bool {
    let lists = |field: &Path| {
        let mut values = rule.values.iter();
        values.any(|values| values.path.grants(field) && !values.is_free(data))
    };
    // An empty list or map, and null, say nothing.
    let has = |field: &Path| {
        let there = path::at(&existing.body, &field.to_string());
        there.is_some_and(|there| match there {
            Value::Null => false,
            Value::Array(all) => !all.is_empty(),
            Value::Object(all) => !all.is_empty(),
            _ => true,
        })
    };
    let mut values = rule.values.iter();
    rule.holes.is_empty()
        && rule.kubeconfig.is_none()
        && !rule.fields.is_empty()
        && rule.fields.iter().all(|field| lists(field) && has(field))
        && (existing.fields()).is_some_and(|body| values.all(|one| one.admits(body, data)))
}

/// Why an object is not written over although its content is bounded: a tool keeps it, and would write it back. What is
/// as wanted already gets only a stamp, which is no harm to the tool.
fn of_tool(object: &Object) -> Option<&'static str> {
    let is_of_tool = |(key, value): (&String, &Value)| {
        let group = key.split_once('/').map_or("", |(group, _)| group);
        let manages = key == labels::MANAGED_BY && value.as_str() != Some(labels::MANAGER);
        manages || TOOLS.contains(&group) || group.ends_with(FLUX)
    };
    let marked = marks(object).any(is_of_tool);
    let rule = object.body.get("aggregationRule");
    let aggregated = rule.is_some_and(|rule| !rule.is_null());
    match (marked, aggregated) {
        (true, _) => Some("another tool manages it"),
        (false, true) => Some("its rules are aggregated from other roles"),
        (false, false) => None,
    }
}

/// Why an existing object is not the one that the policy would have made.
fn differs(whole: &Whole<'_>, existing: &Object) -> Option<&'static str> {
    let is_in = WantedKeys::of(&OwnSpec::default(), &whole.content, &[]).is_in(existing);
    let mut data = whole.data.iter();
    let of_data = data.find_map(|one| differs_in(existing, one));
    of_data.or_else(|| (!is_in).then_some(OTHER_CONTENT))
}

fn differs_in(
    existing: &Object,
    (key, content): (&String, &KeyContent<'_>),
) -> Option<&'static str> {
    match content {
        KeyContent::Hole(hole) => {
            let bytes = existing.secret_bytes(key);
            let ours = bytes.is_some_and(|bytes| hole.shares_credential(&bytes));
            (!ours).then_some("the credential in it is not the source's")
        }
        KeyContent::Text(_) if is_right(existing, key, content) => None,
        KeyContent::Text(_) => Some(OTHER_CONTENT),
    }
}

const OTHER_CONTENT: &str = "its content is not what the policy would write";

fn of_manifest_work(object: &Object) -> bool {
    marks(object).any(|(key, _)| key.starts_with(MANIFEST_WORK))
}

/// The labels and annotations of an object.
fn marks(object: &Object) -> impl Iterator<Item = (&String, &Value)> {
    let metadata = object.body.get("metadata");
    let both = ["labels", "annotations"].into_iter();
    both.filter_map(move |field| metadata?.get(field)?.as_object())
        .flatten()
}

#[cfg(test)]
mod tests;
