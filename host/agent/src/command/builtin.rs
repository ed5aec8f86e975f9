//! Guests as they describe themselves: those of the binary, of a component, of policies.

use crate::policies::Source;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::path::Path;
use transom_artifacts::{Location, builtin_names};
use transom_core::contract::description::Description;
use transom_engine::{Engine, EngineOptions};

/// Asks every builtin guest for its description.
///
/// # Errors
/// When one of them cannot be loaded. A binary without builtin guests is no error.
pub(crate) fn descriptions() -> anyhow::Result<Vec<Description>> {
    let engine = Engine::new(EngineOptions::default())?;
    let describe = |name: &str| {
        let artifact = Location::Builtin(name.to_owned()).fetch(None)?;
        Ok(engine.inspect(&artifact.bytes)?.description?)
    };
    builtin_names().map(describe).collect()
}

/// Asks a component, and those of the policies at a path, for their descriptions; each once.
///
/// # Errors
/// When one of them cannot be loaded, or the policies cannot be read.
pub(crate) fn described(
    component: Option<&str>,
    policies: Option<&Path>,
) -> anyhow::Result<Vec<Description>> {
    let mut locations: Vec<Location> = component
        .iter()
        .map(|text| Location::anywhere(text))
        .collect();
    if let Some(path) = policies {
        let found = Source::new(Some(path), None).read();
        let found =
            found.with_context(|| format!("failed to read the policies `{}`", path.display()))?;
        for policy in found.policies {
            let named = [
                "/spec/guests/trigger/component",
                "/spec/guests/decide/component",
            ];
            let named = named
                .iter()
                .filter_map(|place| policy.value.pointer(place)?.as_str());
            locations.extend(named.map(|text| Location::parse(text, &policy.base)));
        }
    }
    let engine = Engine::new(EngineOptions::default())?;
    let mut seen = BTreeSet::new();
    locations.retain(|location| seen.insert(location.to_string()));
    let describe = |location: &Location| {
        let failed = || format!("failed to read the description of `{location}`");
        let artifact = location.fetch(None).with_context(failed)?;
        engine
            .inspect(&artifact.bytes)
            .with_context(failed)?
            .description
            .with_context(failed)
    };
    locations.iter().map(describe).collect()
}
