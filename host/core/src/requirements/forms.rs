//! Checks that what a guest needs may be read in the form that it asks for.

use super::not_granted;
use crate::contract::decide::{Age, Form, Need};
use crate::failure::Failure;
use crate::inputs::request::is_request;
use crate::policy::ReadRule;
use crate::projection::path::Path;
use crate::reference::is_secret;
use std::collections::BTreeSet;
use transom_api::KnownReason;

/// Checks that a kind may be read in the form of a need.
pub(super) fn bind_form(rule: &ReadRule, need: &Need) -> Result<(), Failure> {
    let refused = |why: &str| Err(not_granted(need, why));
    let secret = is_secret(&rule.api_version, &rule.kind);
    match &need.form {
        Form::Presence => Ok(()),
        Form::Kubeconfig(key) if secret && rule.keys.contains(key) => Ok(()),
        Form::Kubeconfig(_) if secret => refused(&granted_keys(rule)),
        Form::Secret(keys) if secret => of_keys(rule, keys.iter(), refused),
        Form::Certificate(keys) if secret => of_keys(rule, keys.all(), refused),
        Form::Service if rule.kind == "Service" && rule.api_version == "v1" => Ok(()),
        Form::Object | Form::Age(_) | Form::Observed(_) if secret => {
            refused(": guests never see the fields of a Secret")
        }
        Form::Object => Ok(()),
        Form::Age(age) | Form::Observed(age) => of_age(age),
        Form::CertificateRequest if is_request(&rule.api_version, &rule.kind) => Ok(()),
        Form::Kubeconfig(_)
        | Form::Secret(_)
        | Form::Certificate(_)
        | Form::Service
        | Form::CertificateRequest
        | Form::Every(_)
        | Form::Count(_)
        | Form::Outcome
        | Form::FailedWrite
        | Form::Access(_) => refused(": its kind cannot be read in this form"),
    }
}

/// Checks that each key of a Secret is granted, and asked for once.
fn of_keys<'k>(
    rule: &ReadRule,
    keys: impl Iterator<Item = &'k String>,
    refused: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if !rule.keys.contains(key) {
            return refused(&granted_keys(rule));
        }
        if !seen.insert(key) {
            let message = format!("the guest asks for the key `{key}` of a Secret twice");
            return Err(Failure::known(KnownReason::ContractBroken, message));
        }
    }
    Ok(())
}

fn granted_keys(rule: &ReadRule) -> String {
    let keys: Vec<&str> = rule.keys.iter().map(String::as_str).collect();
    format!("; granted keys: {}", keys.join(", "))
}

/// Checks that an age is one of a single field, with a limit.
fn of_age(age: &Age) -> Result<(), Failure> {
    let path = Path::parse(&age.field).ok();
    if age.seconds > 0 && path.as_ref().and_then(Path::keys).is_some() {
        return Ok(());
    }
    let field: String = age.field.chars().take(80).collect();
    let message = format!(
        "the guest asks for the age of `{field}` with a limit of {} s",
        age.seconds
    );
    Err(Failure::known(KnownReason::ContractBroken, message))
}
