//! Lays the settings and names of a case over those of the policy that the case belongs to, and over no other policy's.

use super::CaseSpec;
use crate::policies::{self, FoundPolicies, PolicySource, Written};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::path::Path;

/// The folder that holds the folder `cases` above a path.
pub(crate) fn above_cases(path: &Path) -> Option<&Path> {
    let is_cases = |folder: &&Path| folder.file_name().is_some_and(|name| name == "cases");
    path.ancestors().find(is_cases)?.parent()
}

/// The policies above a folder or file of cases.
///
/// # Errors
/// When there is no such path, no folder above it is named `cases`, or there is no policy above it that can be read.
pub(crate) fn policies_above(folder: &Path) -> anyhow::Result<Vec<Written>> {
    // A relative path does not name the folders above the current one.
    let whole = folder
        .canonicalize()
        .with_context(|| format!("failed to find `{}`", folder.display()))?;
    let above = above_cases(&whole).with_context(|| {
        format!(
            "failed to find the policy of `{}`: it is not below a folder `cases`",
            folder.display()
        )
    })?;
    let found = readable(policies::read(Some(above), None)?)?;
    if found.policies.is_empty() {
        bail!("failed to find a policy in `{}`", above.display());
    }
    Ok(found.policies)
}

fn readable(found: FoundPolicies) -> anyhow::Result<FoundPolicies> {
    if let Some((place, why)) = found.broken.first() {
        bail!("failed to read `{place}`: {why}");
    }
    Ok(found)
}

/// Lays the settings and names of a case over those of a policy, key by key.
pub(crate) fn lay(policy: &mut Written, case: &CaseSpec) {
    for (place, field, laid) in [
        ("/spec/guests/trigger", "settings", &case.settings.trigger),
        ("/spec/guests/decide", "settings", &case.settings.decide),
        ("/spec/grant", "names", &case.names),
    ] {
        let above = policy.value.pointer_mut(place);
        let above = above.and_then(Value::as_object_mut);
        if let (Some(above), false) = (above, laid.is_empty()) {
            let own = above.entry(field).or_insert_with(|| json!({}));
            own.as_object_mut()
                .into_iter()
                .for_each(|own| own.extend(laid.clone()));
        }
    }
}

/// The source with the settings and names of the case in a file laid over the policies that this file belongs to.
///
/// # Errors
/// When the case has some, and its policy or the source cannot be read.
pub(crate) fn laid(
    source: PolicySource,
    case: &CaseSpec,
    file: &Path,
) -> anyhow::Result<PolicySource> {
    if [&case.settings.trigger, &case.settings.decide, &case.names]
        .iter()
        .all(|laid| laid.is_empty())
    {
        return Ok(source);
    }
    let above = policies_above(file)?;
    let mut found = readable(source.read().context("failed to read the policies")?)?;
    for policy in &mut found.policies {
        if above.iter().any(|own| own.name() == policy.name()) {
            lay(policy, case);
        }
    }
    Ok(PolicySource::Given(found))
}
