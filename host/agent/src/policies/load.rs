//! From a policy's manifest to compiled guests with accepted settings. A revision that fails anywhere is refused as a
//! whole.

use super::cases::{self, PassedCases};
use super::{Written, verify};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};
use transom_api::KnownReason;
use transom_api::policy::{GuestCapability, GuestSpec};
use transom_artifacts::signature::Demand;
use transom_artifacts::{Artifact, Base, FetchError, GatheredComponents, Location, Sources};
use transom_core::catalogue::guest::GuestFacts;
use transom_core::catalogue::{Refusal, Revision};
use transom_core::contract::description::Role;
use transom_core::digest::Digest;
use transom_core::policy::budget::usage::Usage;
use transom_core::policy::{Policy, bound, check, manifest};
use transom_core::rollout::Gate;
use transom_core::rollout::expected::Expecting;
use transom_core::share::lock::MutexExt as _;
use transom_engine::{CallLimits, Capabilities, Engine, LoadError};

/// Maximum number of places of one policy that are named.
const NAMED_PLACES: usize = 3;

/// One policy ready to be reconciled: what decisions need, and the compiled guests.
#[derive(Clone)]
pub(crate) struct LoadedPolicy {
    /// The checked policy with its guests as values.
    pub(crate) revision: Arc<Revision>,
    /// The compiled guest that decides when.
    pub(crate) trigger: Option<transom_engine::Guest>,
    /// The compiled guest that decides what.
    pub(crate) decide: transom_engine::Guest,
    /// The keys that verified the components, by name.
    pub(crate) keys: BTreeMap<String, Digest>,
    /// What one call of a guest may use.
    pub(crate) limits: CallLimits,
    /// What the calls used so far.
    pub(crate) usage: Arc<Mutex<Usage>>,
    /// What its trial planned, while it is watched.
    pub(crate) expecting: Option<Arc<Expecting>>,
}

impl LoadedPolicy {
    /// What the calls used so far.
    pub(crate) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.locked()
    }

    /// The digests of its components.
    pub(super) fn digests(&self) -> BTreeSet<&str> {
        let guests = self.revision.guests();
        guests.map(|guest| guest.digest.as_ref()).collect()
    }

    /// The same, as it works in the mode `Shadow`.
    pub(super) fn shadowed(&self) -> Self {
        Self {
            expecting: None,
            ..self.under(bound::shadowed(&self.revision.policy))
        }
    }

    /// The same guests under another form of their policy.
    pub(crate) fn under(&self, policy: Policy) -> Self {
        let revision = Revision {
            policy,
            ..(*self.revision).clone()
        };
        Self {
            revision: Arc::new(revision),
            ..self.clone()
        }
    }
}

/// Why a policy is not loaded.
pub(super) enum Unloaded {
    /// It cannot be loaded.
    Refused(Refusal),
    /// Compiling takes long, and the engine is set not to wait.
    Slow,
}

/// Where the components of a policy may come from, and what was read for them.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The allowed sources.
    pub(crate) sources: &'a Sources,
    /// Where the component files lie that it may name.
    pub(crate) base: &'a Base,
    /// What requests gave for what lies in a cluster or a registry.
    pub(crate) gathered: &'a GatheredComponents,
    /// Which components need not pass their own cases again.
    pub(crate) passed: PassedCases<'a>,
}

/// Checks a manifest, fetches and compiles its guests, and has them check their settings. Reads no cluster.
///
/// # Errors
/// With the first thing that is wrong.
pub(crate) fn load(
    engine: &Engine,
    written: &Written,
    sources: &Sources,
) -> Result<LoadedPolicy, Refusal> {
    let inputs = Inputs {
        sources,
        base: &written.base,
        gathered: &GatheredComponents::default(),
        passed: PassedCases::Nothing,
    };
    assemble(engine, check(&written.value)?, inputs).map_err(|unloaded| match unloaded {
        Unloaded::Refused(refusal) => refusal,
        Unloaded::Slow => Refusal::new(KnownReason::ComponentTooLarge, LoadError::Slow.to_string()),
    })
}

/// Checks a manifest without its components.
///
/// # Errors
/// With the first thing that is wrong.
pub(crate) fn check(value: &Value) -> Result<Policy, Refusal> {
    let checked = manifest::parse(value).and_then(check::policy);
    checked.map_err(|error| invalid(error.to_string()))
}

/// What one call of a policy's guests may use.
///
/// # Errors
/// When the policy asks for more than the engine allows.
pub(crate) fn limits(engine: &Engine, policy: &Policy) -> Result<CallLimits, Refusal> {
    CallLimits::of_policy(&policy.budget, engine.limits())
        .map_err(|error| Refusal::new(KnownReason::BudgetNotAllowed, error.to_string()))
}

pub(crate) fn invalid(message: String) -> Refusal {
    Refusal::new(KnownReason::PolicyInvalid, message)
}

/// The refusal of manifests that have one name. Names only the first places: one file may hold thousands of them, and
/// each shows the refusal.
pub(crate) fn defined_in_several(places: impl Iterator<Item = String>) -> Refusal {
    let places: Vec<_> = places.collect();
    let mut named = Vec::new();
    for place in &places {
        if named.len() < NAMED_PLACES && !named.contains(place) {
            named.push(place.clone());
        }
    }
    let more = match places.iter().all(|place| named.contains(place)) {
        true => "",
        false => ", ...",
    };
    invalid(format!(
        "metadata.name: the policy is defined in {} places: {}{more}",
        places.len(),
        named.join("; ")
    ))
}

/// Fetches and compiles the guests of a policy, and has them check their settings.
///
/// # Errors
/// With the first thing that is wrong.
pub(super) fn assemble(
    engine: &Engine,
    policy: Policy,
    inputs: Inputs<'_>,
) -> Result<LoadedPolicy, Unloaded> {
    let limits = limits(engine, &policy).map_err(Unloaded::Refused)?;
    let demand = policy.verify.as_ref();
    let demand = demand.map(|spec| verify::demand(spec, inputs)).transpose();
    let demand = demand.map_err(Unloaded::Refused)?;
    let keys = demand.as_ref().map(Demand::digests).unwrap_or_default();
    let load = |role: &str, spec: &GuestSpec, built_for| {
        let load = Load {
            engine,
            limits: &limits,
            demand: demand.as_ref(),
            inputs,
            observes: policy.writes.is_empty(),
        };
        load.guest(role, spec, built_for)
    };
    let world = Role::Decide(policy.world);
    let (decide, decide_guest) = load("decide", &policy.decide, world)?;
    let triggering = policy.trigger.as_ref();
    let triggering = triggering
        .map(|spec| load("trigger", spec, Role::Trigger))
        .transpose()?;
    let (trigger, trigger_guest) = triggering.unzip();
    let revision = Arc::new(Revision {
        policy,
        trigger: trigger_guest,
        decide: decide_guest,
    });
    Ok(LoadedPolicy {
        revision,
        trigger,
        decide,
        keys,
        limits,
        usage: Arc::default(),
        expecting: None,
    })
}

/// What the guests of a policy are loaded with.
struct Load<'a> {
    engine: &'a Engine,
    limits: &'a CallLimits,
    demand: Option<&'a Demand>,
    inputs: Inputs<'a>,
    /// Whether the policy grants no write.
    observes: bool,
}

impl Load<'_> {
    /// Loads one guest: bytes, signatures, code, description, settings, its own cases.
    fn guest(
        &self,
        role: &str,
        spec: &GuestSpec,
        built_for: Role,
    ) -> Result<(transom_engine::Guest, GuestFacts), Unloaded> {
        let &Self {
            engine,
            limits,
            demand,
            inputs,
            ..
        } = self;
        let refused = |reason, why: &dyn Display| Unloaded::Refused(refusal(role, reason, why));
        // A guest may break a limit at each of the gates that ask it.
        let refused_at = |gate, reason, why: &dyn Display| {
            Unloaded::Refused(refusal(role, reason, why).at(gate))
        };
        let at = location(role, spec, inputs.base).map_err(Unloaded::Refused)?;
        let artifact = fetch(&at, spec, inputs).map_err(|error| {
            Unloaded::Refused(refusal(role, error.reason(), &error).lasting(error.lasts()))
        })?;
        let signers = demand.map(|demand| verify::signers(demand, &at, &artifact.digest, inputs));
        let signers = signers.transpose();
        let signers = signers.map_err(|(reason, why)| refused(reason, &why))?;
        let compiled = self.compile(role, spec, built_for, (&at, &artifact.bytes))?;
        let description = compiled.description().clone();
        let mut guest = GuestFacts::load(compiled.digest(), description, &spec.settings)
            .map_err(|failure| refused(known_reason(failure.reason.as_str()), &failure.message))?;
        guest.signers = signers.unwrap_or_default();
        guest.manifest = at.manifest(inputs.gathered);
        check_settings(&compiled, limits, &spec.settings)
            .map_err(|(reason, why)| refused_at(Gate::Settings, reason, &why))?;
        if !inputs.passed.has(compiled.digest()) {
            cases::check(engine, &compiled, &artifact.bytes).map_err(|failed| match failed {
                cases::CaseFailure::Slow => Unloaded::Slow,
                cases::CaseFailure::Refused(reason, why) => {
                    let why = format_args!("component `{at}`: {why}");
                    refused_at(Gate::Cases, reason, &why)
                }
            })?;
        }
        Ok((compiled, guest))
    }

    /// Compiles a component.
    fn compile(
        &self,
        role: &str,
        spec: &GuestSpec,
        built_for: Role,
        (at, bytes): (&Location, &[u8]),
    ) -> Result<transom_engine::Guest, Unloaded> {
        let granted = spec.capabilities.iter();
        let granted = granted.map(|GuestCapability::Log| transom_engine::Capability::Log);
        let loaded = self
            .engine
            .load(bytes, built_for, &Capabilities::of(granted));
        loaded.map_err(|error| {
            let hint = match &error {
                LoadError::Slow => return Unloaded::Slow,
                // A guest of another world, and none that nobody can place.
                LoadError::WorldMismatch { found: Some(_), .. }
                    if self.observes && role == "decide" =>
                {
                    "; spec.grant.write is empty, and only an objects guest can do without it"
                }
                _ => "",
            };
            let why = format_args!("component `{at}`: {error}{hint}");
            Unloaded::Refused(refusal(role, known_reason(error.reason()), &why))
        })
    }
}

/// The refusal of a guest.
pub(super) fn refusal(role: &str, reason: KnownReason, why: &dyn Display) -> Refusal {
    Refusal::new(reason, format!("spec.guests.{role}: {why}"))
}

/// Where the component of a guest lies.
///
/// # Errors
/// When the text of the policy names no place.
pub(super) fn location(role: &str, spec: &GuestSpec, base: &Base) -> Result<Location, Refusal> {
    Location::parse(&spec.component, base).map_err(|why| {
        let why = format_args!("component: {why}");
        refusal(role, KnownReason::PolicyInvalid, &why)
    })
}

/// The bytes of a component, if it may come from there.
fn fetch(at: &Location, spec: &GuestSpec, inputs: Inputs<'_>) -> Result<Artifact, FetchError> {
    at.check(inputs.sources)?;
    at.fetch(spec.digest.as_deref(), inputs.gathered)
}

/// Has a guest check its settings.
fn check_settings(
    guest: &transom_engine::Guest,
    limits: &CallLimits,
    settings: &Map<String, Value>,
) -> Result<(), (KnownReason, String)> {
    let text = Value::Object(settings.clone()).to_string();
    let problems = guest.validate(limits, &text).result;
    let problems = problems.map_err(|failure| {
        (
            known_reason(failure.reason()),
            format!("settings: {failure}"),
        )
    })?;
    let Some(problem) = problems.first() else {
        return Ok(());
    };
    let field = problem.field.as_ref().map(|field| format!(".{field}"));
    let message = format!("settings{}: {}", field.unwrap_or_default(), problem.message);
    Err((KnownReason::SettingsRefused, message))
}

/// The agent's reason with this text, which the engine only spells; `ContractBroken` for any other text.
pub(crate) fn known_reason(text: &str) -> KnownReason {
    KnownReason::named(text).unwrap_or(KnownReason::ContractBroken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::engine;
    use crate::policies::PolicySource;

    #[test]
    fn what_a_binary_lacks_is_not_waited_for() {
        let engine = engine::of_tests();
        let mut written = PolicySource::Builtin.read().unwrap().policies.remove(0);
        let folder = tempfile::tempdir().unwrap();
        written.base = transom_artifacts::Base::Components(folder.path().to_owned());
        for (component, retried) in [("builtin:kubeconfi", false), ("none.wasm", true)] {
            written.value["spec"]["guests"]["decide"]["component"] = component.into();
            let refusal = load(&engine, &written, &Sources::default()).err().unwrap();
            assert_eq!(refusal.reason, KnownReason::ComponentNotFound);
            assert_eq!(refusal.retried, retried, "{component}");
        }
    }

    #[test]
    fn a_policy_in_many_places_names_the_first_of_them() {
        for (places, told) in [
            (&["a", "b"][..], "2 places: a; b"),
            (&["a", "a", "b", "a", "c"], "5 places: a; b; c"),
            (&["a", "b", "c", "d", "d"], "5 places: a; b; c, ..."),
        ] {
            let message = defined_in_several(places.iter().map(ToString::to_string)).message;
            let told = format!("metadata.name: the policy is defined in {told}");
            assert_eq!(message, told);
        }
    }

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
            "CasesInvalid",
        ] {
            assert_eq!(known_reason(spelled).as_str(), spelled);
        }
    }
}
