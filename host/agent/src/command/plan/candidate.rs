//! The policies as they are written, with the planned one changed as the command line says.

use crate::args::plan::PlannedPolicy;
use crate::input;
use crate::policies::{self, FoundPolicies, Written};
use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value};
use std::path::Path;
use transom_artifacts::{Base, Location, Sources};
use transom_core::document::{ParseLimits, parse_one};

/// The names of the two flags of components, with the guest that each is about.
const COMPONENTS: [(&str, &str); 2] = [
    ("--component", "decide"),
    ("--trigger-component", "trigger"),
];
/// Limits of a file with settings.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 20,
    nodes: 100_000,
    depth: 64,
};

/// What is planned, as it was read.
pub(super) struct PlanRequest {
    /// The name of the policy.
    pub(super) name: String,
    /// All policies, with the planned one as it would be.
    pub(super) policies: FoundPolicies,
    /// Whether a policy of this name is written that differs from the planned one.
    pub(super) replaces: bool,
}

/// The allowed sources, with those of the components that the user names.
///
/// # Errors
/// When one is not a component.
pub(super) fn sources(allowed: Sources, candidate: &PlannedPolicy) -> anyhow::Result<Sources> {
    let named = [&candidate.component, &candidate.trigger_component];
    let mut named = COMPONENTS.iter().zip(named);
    named.try_fold(allowed, |allowed, ((flag, _), component)| {
        let Some(component) = component else {
            return Ok(allowed);
        };
        Ok(allowed.and(&location(flag, component)?))
    })
}

/// Where a component lies that a user names.
fn location(flag: &str, component: &str) -> anyhow::Result<Location> {
    let location = Location::anywhere(component);
    location.map_err(|why| anyhow::anyhow!("failed to use {flag}: {why}"))
}

/// Lays the candidate over the policies.
///
/// # Errors
/// When there is no such policy, or a file cannot be used.
pub(super) fn lay(
    found: FoundPolicies,
    candidate: &PlannedPolicy,
    components: Option<&Path>,
) -> anyhow::Result<PlanRequest> {
    let mut policies = found.clone();
    let name = match is_file(candidate, &found) {
        true => exchange(&mut policies, file(&candidate.policy, components)?)?,
        false => candidate.policy.clone(),
    };
    let mut own = policies
        .policies
        .iter_mut()
        .filter(|one| one.name() == Some(&*name))
        .peekable();
    if own.peek().is_none() {
        bail!("failed to find the policy `{name}`: {}", known(&found));
    }
    for policy in own {
        change(policy, candidate)?;
    }
    let of = |found: &FoundPolicies| -> Vec<Written> {
        let own = found
            .policies
            .iter()
            .filter(|one| one.name() == Some(&*name));
        own.cloned().collect()
    };
    let before = of(&found);
    let replaces = !before.is_empty() && before != of(&policies);
    Ok(PlanRequest {
        name,
        policies,
        replaces,
    })
}

/// Whether the argument names a file, not a policy.
fn is_file(candidate: &PlannedPolicy, found: &FoundPolicies) -> bool {
    let text = candidate.policy.as_str();
    let is_named = found.policies.iter().any(|one| one.name() == Some(text));
    let ends = [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| text.ends_with(end));
    !is_named && (text == "-" || text.contains('/') || ends || Path::new(text).is_file())
}

/// The one policy in a file.
fn file(path: &str, components: Option<&Path>) -> anyhow::Result<Written> {
    let found = policies::read(Some(Path::new(path)), components)?;
    if let Some((place, why)) = found.broken.first() {
        bail!("failed to read `{place}`: {why}");
    }
    match <[Written; 1]>::try_from(found.policies) {
        Ok([one]) => Ok(one),
        Err(many) => bail!(
            "failed to plan `{path}`: it holds {} policies, expected one",
            many.len()
        ),
    }
}

/// Puts a policy in the place of the one with its name. What a server set on that one stays: it is the same policy.
fn exchange(policies: &mut FoundPolicies, mut policy: Written) -> anyhow::Result<String> {
    let name = policy
        .name()
        .context("failed to plan the policy: metadata.name: missing")?
        .to_owned();
    let mut others = policies
        .policies
        .iter()
        .filter(|one| one.name() == Some(&*name));
    if let Some(before) = others.next() {
        policy.place.clone_from(&before.place);
        policy.value["metadata"] = before.value["metadata"].clone();
    }
    policies.policies.retain(|one| one.name() != Some(&*name));
    policies.policies.push(policy);
    Ok(name)
}

/// Which policies there are, for people.
fn known(found: &FoundPolicies) -> String {
    let mut names: Vec<_> = found.policies.iter().filter_map(Written::name).collect();
    names.sort_unstable();
    let unread = match found.broken.first() {
        Some((place, why)) => format!("; failed to read {place}: {why}"),
        None => String::new(),
    };
    match names.as_slice() {
        [] => format!("there is none; `--policies` names a folder or file with policies{unread}"),
        names => format!("there are `{}`{unread}", names.join("`, `")),
    }
}

/// Changes a policy as the flags say.
fn change(policy: &mut Written, candidate: &PlannedPolicy) -> anyhow::Result<()> {
    let named = [&candidate.component, &candidate.trigger_component];
    for ((flag, guest), component) in COMPONENTS.into_iter().zip(named) {
        let Some(component) = component else { continue };
        let text = component_text(&mut policy.base, flag, component)?;
        let spec = guest_of(policy, guest, flag)?;
        spec.insert("component".to_owned(), text.into());
        spec.remove("digest");
    }
    if let Some(file) = &candidate.settings {
        let settings = settings(file)?;
        let spec = guest_of(policy, "decide", "--settings")?;
        spec.insert("settings".to_owned(), settings);
    }
    Ok(())
}

/// The guest of a policy, as it is written.
fn guest_of<'p>(
    policy: &'p mut Written,
    guest: &str,
    flag: &str,
) -> anyhow::Result<&'p mut Map<String, Value>> {
    let guests = policy
        .value
        .pointer_mut("/spec/guests")
        .and_then(Value::as_object_mut);
    let guests = guests.with_context(|| format!("failed to use {flag}: spec.guests: not a map"))?;
    let spec = guests.entry(guest).or_insert_with(|| Map::new().into());
    spec.as_object_mut()
        .with_context(|| format!("failed to use {flag}: spec.guests.{guest}: not a map"))
}

/// The text for a component that a user names: of a file the absolute path, which no policy may name.
fn component_text(base: &mut Base, flag: &str, component: &str) -> anyhow::Result<String> {
    if location(flag, component)?.file().is_none() {
        return Ok(component.to_owned());
    }
    let path = std::path::absolute(component);
    let path = path.with_context(|| format!("failed to use {flag}: `{component}`"))?;
    ensure!(
        path.is_file(),
        "failed to use {flag}: there is no file `{component}`"
    );
    let text = path.display().to_string();
    let inner = std::mem::replace(base, Base::Nowhere);
    let (mut files, inner) = match inner {
        Base::Named { files, base } => (files, base),
        other => (Default::default(), Box::new(other)),
    };
    files.insert(text.clone(), path);
    *base = Base::Named { files, base: inner };
    Ok(text)
}

/// The settings in a file.
fn settings(file: &Path) -> anyhow::Result<Value> {
    let failed = || format!("failed to read the settings `{}`", file.display());
    let text = match input::is_meant(file) {
        true => input::read("the settings", LIMITS.bytes)?,
        false => input::file(file, LIMITS.bytes).with_context(failed)?,
    };
    let value = parse_one(&text, LIMITS).with_context(failed)?;
    ensure!(value.is_object(), "{}: not a map", failed());
    Ok(value)
}
