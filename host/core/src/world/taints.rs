//! The taints world: a guest says which taints a ManagedCluster carries, among the keys that the policy owns.

use super::{Answer, Granted, Lowering, World};
use crate::contract::taints::{Decision, MANAGED_CLUSTER, WantedTaint};
use crate::failure::{Class, Failure};
use crate::managed_cluster::TAINTS_FIELD;
use crate::plan::desired::{Desired, Elements, Field, Fields};
use crate::policy::check::{at_most, unique};
use crate::policy::manifest::PolicyError;
use crate::policy::{Policy, Target, WriteRule};
use crate::projection::path::Path;
use crate::reference::{ObjectRef, dns};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use transom_api::KnownReason;
use transom_api::policy::WriteGrantSpec;
use transom_api::policy::bounds::MANY;

/// The taints world.
pub const TAINTS: &dyn World = &Taints;

/// The most bytes of a taint's value.
const MAX_VALUE: usize = 1024;

#[derive(Debug)]
struct Taints;

impl World for Taints {
    fn name(&self) -> &'static str {
        "taints-guest"
    }

    fn takes(&self, grants: &[WriteGrantSpec]) -> bool {
        // With values, the whole list is meant, whoever owns its taints.
        let is_taints = |grant: &WriteGrantSpec| {
            !grant.taint_keys.is_empty()
                || grant.fields == [TAINTS_FIELD] && grant.values.is_empty()
        };
        let mut grants = grants.iter().filter(|grant| grant.target.is_some());
        grants.any(is_taints)
    }

    fn rule(&self, granted: &Granted<'_>) -> Result<WriteRule, PolicyError> {
        let Granted { field, grant, .. } = *granted;
        primary_only(granted)?;
        if grant.fields != [TAINTS_FIELD] {
            return Err(PolicyError::new(
                format!("{field}.fields"),
                "is not [spec.taints]",
            ));
        }
        Ok(WriteRule {
            fields: vec![path(field)?],
            taint_keys: keys(&format!("{field}.taintKeys"), &grant.taint_keys)?,
            ..granted.rule(Target::Primary)
        })
    }

    fn requires(&self) -> bool {
        false
    }

    fn nothing(&self, policy: &Policy, primary: &ObjectRef) -> Vec<Fields> {
        let rule = owned(policy).into_iter();
        rule.map(|rule| fields(rule, primary, &elements(rule, &[])))
            .collect()
    }
}

/// The path of the taints.
pub(super) fn path(field: &str) -> Result<Path, PolicyError> {
    Path::parse(TAINTS_FIELD).map_err(|error| PolicyError::new(field, error.to_string()))
}

/// Checks the keys that a policy is to own.
pub(super) fn keys(field: &str, keys: &[String]) -> Result<BTreeSet<String>, PolicyError> {
    let invalid = |key: &String| !dns::is_qualified_name(key);
    if keys.is_empty() || keys.iter().any(invalid) {
        return Err(PolicyError::new(field, "is empty, or has an invalid key"));
    }
    at_most(field, keys, MANY)?;
    unique(field, keys.iter())?;
    Ok(keys.iter().cloned().collect())
}

/// Checks that a grant is about the primary, which is a ManagedCluster, and nothing else.
pub(super) fn primary_only(granted: &Granted<'_>) -> Result<(), PolicyError> {
    let Granted { field, grant, .. } = *granted;
    let (api_version, kind) = MANAGED_CLUSTER;
    if grant.kubeconfig.is_some() {
        return Err(PolicyError::new(
            format!("{field}.kubeconfig"),
            "cannot be used with `target: primary`",
        ));
    }
    if granted.primary.api_version != api_version || granted.primary.kind != kind {
        return Err(PolicyError::new(
            format!("{field}.target"),
            format!("only a {kind} of {api_version} has taints"),
        ));
    }
    granted.patches_primary()
}

impl Answer for Decision {
    fn lower<'a>(&'a self, given: &Lowering<'a>) -> Result<Vec<Desired<'a>>, Failure> {
        let wanted = match self {
            Self::Own(wanted) => wanted,
            Self::Hold(problem) => return Err(given.guest.failure(Class::Held, problem)),
        };
        let Some(rule) = owned(given.policy) else {
            let message = format!("the policy does not grant the taints of {}", given.target);
            return Err(Failure::known(KnownReason::WriteNotGranted, message));
        };
        let field = owned_elements(rule, wanted)?;
        Ok(vec![Desired::Fields(fields(rule, given.target, &field))])
    }

    fn shown(&self) -> Option<Value> {
        let Self::Own(wanted) = self else { return None };
        let taint = |WantedTaint {
                         key,
                         value,
                         effect: kind,
                     }: &WantedTaint| json!({"key": key, "value": value, "effect": kind.as_str()});
        Some(json!({"taints": wanted.iter().map(taint).collect::<Vec<_>>()}))
    }
}

/// The grant of the taints.
fn owned(policy: &Policy) -> Option<&WriteRule> {
    let mut rules = policy.writes.iter();
    rules.find(|rule| rule.target == Target::Primary)
}

/// The field of a ManagedCluster with what is wanted of it.
fn fields(rule: &WriteRule, object: &ObjectRef, field: &Field) -> Fields {
    let fields = rule.fields.iter().cloned();
    Fields {
        object: object.clone(),
        fields: fields.map(|path| (path, field.clone())).collect(),
    }
}

/// These of the owned taints, and no other one of them. Every taint with another key stays.
///
/// # Errors
/// `TaintKeyNotGranted`, `ContractBroken`.
pub(super) fn owned_elements(rule: &WriteRule, wanted: &[WantedTaint]) -> Result<Field, Failure> {
    check(wanted, &rule.taint_keys)?;
    Ok(elements(rule, wanted))
}

fn elements(rule: &WriteRule, wanted: &[WantedTaint]) -> Field {
    let wanted = wanted.iter().map(taint).collect();
    Field::Elements(Elements::of_taints(rule.taint_keys.clone(), wanted))
}

/// Checks that every key is owned and occurs once, and that no value is too long.
fn check(wanted: &[WantedTaint], owned: &BTreeSet<String>) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for taint in wanted {
        let shown: String = taint.key.chars().take(100).collect();
        let (reason, message) = if !owned.contains(&taint.key) {
            let message = format!("the policy does not grant the taint key `{shown}`");
            (KnownReason::TaintKeyNotGranted, message)
        } else if !seen.insert(&taint.key) {
            let message = format!("the guest proposed the taint key `{shown}` twice");
            (KnownReason::ContractBroken, message)
        } else if taint.value.len() > MAX_VALUE {
            let message = format!("the guest's value for the taint key `{shown}` is too long");
            (KnownReason::ContractBroken, message)
        } else {
            continue;
        };
        return Err(Failure::known(reason, message));
    }
    Ok(())
}

/// A taint as a list of a ManagedCluster has it, without its time.
fn taint(wanted: &WantedTaint) -> Map<String, Value> {
    let mut taint = Map::new();
    taint.insert("key".to_owned(), wanted.key.as_str().into());
    if !wanted.value.is_empty() {
        taint.insert("value".to_owned(), wanted.value.as_str().into());
    }
    taint.insert("effect".to_owned(), wanted.effect.as_str().into());
    taint
}
