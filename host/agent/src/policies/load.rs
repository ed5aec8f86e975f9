//! From a policy's manifest to compiled guests with accepted settings. A revision that fails anywhere is refused as a
//! whole.

use super::Written;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_api::policy::{Capability, GuestSpec};
use transom_artifacts::{Base, Location};
use transom_core::catalogue::guest::Guest;
use transom_core::catalogue::{Refusal, Revision};
use transom_core::contract::description::Role;
use transom_core::policy::{Policy, check, manifest};
use transom_engine::{Capabilities, Engine, Limits, LoadError};

/// One policy ready to be reconciled: what decisions need, and the compiled guests.
pub(crate) struct Loaded {
    /// The checked policy with its guests as values.
    pub(crate) revision: Arc<Revision>,
    /// The compiled guest that decides when.
    pub(crate) trigger: Option<transom_engine::Guest>,
    /// The compiled guest that decides what.
    pub(crate) decide: transom_engine::Guest,
}

/// Why a policy is not loaded.
pub(super) enum Unloaded {
    /// It cannot be loaded.
    Refused(Refusal),
    /// Compiling takes long, and the engine is set not to wait.
    Slow,
}

/// Checks a manifest, fetches and compiles its guests, and has them judge their settings.
///
/// # Errors
/// With the first thing that is wrong.
pub(crate) fn load(engine: &Engine, written: &Written) -> Result<Loaded, Refusal> {
    assemble(engine, check(&written.value)?, &written.base).map_err(|unloaded| match unloaded {
        Unloaded::Refused(refusal) => refusal,
        Unloaded::Slow => Refusal {
            reason: KnownReason::ComponentTooLarge,
            message: LoadError::Slow.to_string(),
        },
    })
}

/// Checks a manifest without its components.
///
/// # Errors
/// With the first thing that is wrong.
pub(super) fn check(value: &Value) -> Result<Policy, Refusal> {
    let invalid = |error: manifest::PolicyError| Refusal {
        reason: KnownReason::PolicyInvalid,
        message: error.to_string(),
    };
    manifest::parse(value)
        .and_then(check::policy)
        .map_err(invalid)
}

/// Refuses a policy that names a cluster without a connection.
///
/// # Errors
/// With the field that names it.
pub(super) fn connected(policy: &Policy, connections: &BTreeSet<String>) -> Result<(), Refusal> {
    let mut clusters = policy.clusters();
    let absent = clusters.find(|(_, cluster)| !connections.contains(*cluster));
    let Some((field, cluster)) = absent else {
        return Ok(());
    };
    let known: Vec<_> = connections.iter().map(|name| format!("`{name}`")).collect();
    let message = format!(
        "{field}: no connection `{cluster}`; known connections: {}",
        known.join(", ")
    );
    Err(Refusal {
        reason: KnownReason::PolicyInvalid,
        message,
    })
}

/// Fetches and compiles the guests of a policy, and has them judge their settings.
///
/// # Errors
/// With the first thing that is wrong.
pub(super) fn assemble(engine: &Engine, policy: Policy, base: &Base) -> Result<Loaded, Unloaded> {
    let (decide, decide_guest) = guest(
        engine,
        "decide",
        &policy.decide,
        Role::Decide(policy.world),
        base,
    )?;
    let triggering = policy
        .trigger
        .as_ref()
        .map(|spec| guest(engine, "trigger", spec, Role::Trigger, base))
        .transpose()?;
    let (trigger, trigger_guest) = triggering.unzip();
    let revision = Arc::new(Revision {
        policy,
        trigger: trigger_guest,
        decide: decide_guest,
    });
    Ok(Loaded {
        revision,
        trigger,
        decide,
    })
}

/// The components that a manifest names, even if the policy is not valid.
pub(super) fn components(written: &Written) -> BTreeSet<Location> {
    let named = [
        "/spec/guests/decide/component",
        "/spec/guests/trigger/component",
    ]
    .into_iter()
    .filter_map(|place| written.value.pointer(place)?.as_str());
    named
        .map(|text| Location::parse(text, &written.base))
        .collect()
}

/// Loads one guest: bytes, code, description, settings.
fn guest(
    engine: &Engine,
    role: &str,
    spec: &GuestSpec,
    built_for: Role,
    base: &Base,
) -> Result<(transom_engine::Guest, Guest), Unloaded> {
    let at = Location::parse(&spec.component, base);
    let refused = |reason: KnownReason, why: &dyn std::fmt::Display| {
        Unloaded::Refused(Refusal {
            reason,
            message: format!("spec.guests.{role}: {why}"),
        })
    };
    let artifact = at
        .fetch(spec.digest.as_deref())
        .map_err(|error| refused(error.reason(), &chain(&error)))?;
    let granted = Capabilities::of(
        spec.capabilities
            .iter()
            .map(|Capability::Log| transom_engine::Capability::Log),
    );
    let failed = |word: KnownReason, why: &dyn std::fmt::Display| {
        refused(word, &format_args!("component `{at}`: {why}"))
    };
    let compiled =
        engine
            .load(&artifact.bytes, built_for, &granted)
            .map_err(|error| match error {
                LoadError::Slow => Unloaded::Slow,
                error => failed(word(error.reason()), &error),
            })?;
    let guest = Guest::load(
        compiled.digest(),
        compiled.description().clone(),
        &spec.settings,
    )
    .map_err(|failure| refused(word(failure.reason.as_str()), &failure.message))?;
    judge_settings(&compiled, &spec.settings).map_err(|(word, why)| refused(word, &why))?;
    Ok((compiled, guest))
}

/// Has a guest judge its settings.
fn judge_settings(
    guest: &transom_engine::Guest,
    settings: &Map<String, Value>,
) -> Result<(), (KnownReason, String)> {
    let text = Value::Object(settings.clone()).to_string();
    let problems = guest
        .validate(&Limits::default(), &text)
        .result
        .map_err(|failure| (word(failure.reason()), failure.to_string()))?;
    match problems.first() {
        None => Ok(()),
        Some(problem) => {
            let field = problem
                .field
                .as_ref()
                .map(|field| format!(".{field}"))
                .unwrap_or_default();
            Err((
                KnownReason::SettingsRefused,
                format!("settings{field}: {}", problem.message),
            ))
        }
    }
}

/// The agent's reason with this text, which the engine only spells; `ContractBroken` for any other text.
pub(crate) fn word(text: &str) -> KnownReason {
    KnownReason::ALL
        .iter()
        .copied()
        .find(|word| word.as_str() == text)
        .unwrap_or(KnownReason::ContractBroken)
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_engine_is_a_reason_of_the_agent() {
        for spelled in [
            "GuestTimedOut",
            "GuestMemoryExceeded",
            "GuestTablesExceeded",
            "GuestStackOverflowed",
            "GuestTrapped",
            "AnswerTooLarge",
            "ArgumentTooLarge",
            "LogFlooded",
            "HostCallsExceeded",
            "ContractBroken",
            "WorldMismatch",
            "EngineBusy",
            "ComponentTooLarge",
            "ComponentInvalid",
            "ImportNotGranted",
            "DescriptionInvalid",
        ] {
            assert_eq!(word(spelled).as_str(), spelled);
        }
    }
}
