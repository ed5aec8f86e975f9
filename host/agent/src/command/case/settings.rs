//! Lays the settings and names of a case over those of the policy that the case belongs to, and over no other policy's.

use super::Case;
use crate::policies::{Source, Written};
use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The policies above a folder of cases.
///
/// # Errors
/// When no folder above is named `cases`, or there is no policy above it that can be read.
pub(crate) fn policies_above(folder: &Path) -> anyhow::Result<Vec<Written>> {
    let cases = folder
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "cases"));
    let above = cases.and_then(Path::parent).with_context(|| {
        format!(
            "failed to find the policy of `{}`: it is not below a folder `cases`",
            folder.display()
        )
    })?;
    let found = Source::new(Some(above), None)
        .read()
        .with_context(|| format!("failed to read the policies in `{}`", above.display()))?;
    if let Some((place, why)) = found.broken.first() {
        bail!("failed to read `{place}`: {why}");
    }
    if found.policies.is_empty() {
        bail!("failed to find a policy in `{}`", above.display());
    }
    Ok(found.policies)
}

/// Lays the settings and names of a case over those of a policy, key by key.
pub(crate) fn lay(policy: &mut Written, case: &Case) {
    lay_over(
        policy,
        "/spec/guests/trigger",
        "settings",
        &case.settings.trigger,
    );
    lay_over(
        policy,
        "/spec/guests/decide",
        "settings",
        &case.settings.decide,
    );
    lay_over(policy, "/spec/grant", "names", &case.names);
}

/// The source with the settings and names of the case in a file laid over the policies that this file belongs to.
///
/// # Errors
/// When the case has some, and its policy or the source cannot be read.
pub(crate) fn laid(source: Source, case: &Case, file: &Path) -> anyhow::Result<Source> {
    if [&case.settings.trigger, &case.settings.decide, &case.names]
        .iter()
        .all(|laid| laid.is_empty())
    {
        return Ok(source);
    }
    let file = file
        .canonicalize()
        .with_context(|| format!("failed to find `{}`", file.display()))?;
    let above = policies_above(&file)?;
    let name = |policy: &Written| policy.value.pointer("/metadata/name").cloned();
    let mut found = source.read().context("failed to read the policies")?;
    if let Some((place, why)) = found.broken.first() {
        bail!("failed to read `{place}`: {why}");
    }
    for policy in found
        .policies
        .iter_mut()
        .filter(|policy| above.iter().any(|own| name(own) == name(policy)))
    {
        lay(policy, case);
    }
    Ok(Source::Given(found))
}

fn lay_over(policy: &mut Written, place: &str, field: &str, laid: &Map<String, Value>) {
    let above = policy
        .value
        .pointer_mut(place)
        .and_then(Value::as_object_mut);
    let Some(above) = above.filter(|_| !laid.is_empty()) else {
        return;
    };
    let own = above.entry(field).or_insert_with(|| json!({}));
    if let Some(own) = own.as_object_mut() {
        own.extend(laid.clone());
    }
}
