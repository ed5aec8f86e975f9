//! Whether the components of a policy may come from where they lie, and are signed by the keys that it trusts. Keys are
//! read anew for each load, so that one that was removed no longer counts.

use crate::policies::load::{self, Inputs};
use transom_api::KnownReason;
use transom_api::policy::{KeySpec, VerifySpec};
use transom_artifacts::signature::{Demand, TrustedKey};
use transom_artifacts::{Base, FetchError, Location, Sources};
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_core::policy::verify::{field, source};

/// Where the trusted keys lie, in the order of the policy.
pub(super) fn places(spec: &VerifySpec, base: &Base) -> Vec<Option<Location>> {
    let place = |key| source(key).map(|source| Location::of(source, base));
    spec.keys.iter().map(place).collect()
}

/// The refusal of a key.
fn refusal((index, key): (usize, &KeySpec), reason: KnownReason, why: String) -> Refusal {
    Refusal::new(reason, format!("{} (`{}`): {why}", field(index), key.name))
}

/// Checks that the keys may come from where they lie; reads none.
///
/// # Errors
/// With the first that may not.
fn check(spec: &VerifySpec, base: &Base, sources: &Sources) -> Result<(), Refusal> {
    let keys = spec.keys.iter().enumerate().zip(places(spec, base));
    let mut named = keys.filter_map(|(key, place)| Some((key, place?)));
    named.try_for_each(|(key, place)| {
        let checked = place.check(sources);
        checked.map_err(|error| refusal(key, error.reason(), error.about_key()))
    })
}

/// Checks that the components and keys of a policy may come from where they lie; reads none.
///
/// # Errors
/// With the first that may not, by its field.
pub(crate) fn check_sources(
    policy: &Policy,
    base: &Base,
    sources: &Sources,
) -> Result<(), Refusal> {
    let keys = policy.verify.as_ref();
    keys.map_or(Ok(()), |spec| check(spec, base, sources))?;
    let trigger = policy.trigger.iter().map(|spec| ("trigger", spec));
    let mut guests = [("decide", &policy.decide)].into_iter().chain(trigger);
    guests.try_for_each(|(role, spec)| {
        let checked = load::location(role, spec, base)?.check(sources);
        checked.map_err(|error| load::refusal(role, error.reason(), &error))
    })
}

/// The keys that a policy trusts.
///
/// # Errors
/// When one of them may not be named, cannot be read, or is no public key.
pub(super) fn demand(spec: &VerifySpec, inputs: Inputs<'_>) -> Result<Demand, Refusal> {
    let places = places(spec, inputs.base).into_iter();
    let mut keys = Vec::new();
    for (index, (key, place)) in spec.keys.iter().zip(places).enumerate() {
        let refused = |reason, why| refusal((index, key), reason, why);
        let Some(place) = place else {
            let why = "it names no place".to_owned();
            return Err(refused(KnownReason::PolicyInvalid, why));
        };
        let read = place
            .check(inputs.sources)
            .and_then(|()| place.fetch(None, inputs.gathered));
        let pem = read.map_err(|error| {
            let reason = match error.reason() {
                KnownReason::ComponentNotFound | KnownReason::ComponentTooLarge => {
                    KnownReason::TrustRootInvalid
                }
                other => other,
            };
            refused(reason, error.about_key())
        })?;
        let parsed = TrustedKey::parse(&key.name, &pem.bytes);
        let parsed = parsed
            .map_err(|why| refused(KnownReason::TrustRootInvalid, format!("`{place}` {why}")))?;
        keys.push(parsed);
    }
    Ok(Demand {
        mode: spec.mode,
        keys,
    })
}

/// The names of the keys that signed a component with this digest; none for a builtin one, which is part of the agent.
///
/// # Errors
/// When the demanded keys did not sign it.
pub(super) fn signers(
    demand: &Demand,
    at: &Location,
    digest: &str,
    inputs: Inputs<'_>,
) -> Result<Vec<String>, (KnownReason, String)> {
    if matches!(at, Location::Builtin(_)) {
        return Ok(Vec::new());
    }
    let unread = |error: FetchError| (KnownReason::SignatureInvalid, error.to_string());
    let evidence = at.evidence(inputs.gathered).map_err(unread)?;
    demand.check(digest, &evidence).map_err(|unverified| {
        let message = format!("component `{at}` with the digest {digest}: {unverified}");
        let pulled = at
            .image()
            .and_then(|image| inputs.gathered.images.get(image));
        match (pulled, unverified.reason()) {
            // Only what was kept is known, and the registry may hold the signatures.
            (Some(Err(unread)), KnownReason::SignatureMissing) => {
                (unread.reason, format!("{message}; {unread}"))
            }
            (Some(Err(unread)), reason) => (reason, format!("{message}; {unread}")),
            (_, reason) => (reason, message),
        }
    })
}

/// Whether a component has the signatures that a policy demands.
pub(super) fn is_signed(spec: &VerifySpec, at: &Location, inputs: Inputs<'_>) -> bool {
    let Ok(demand) = demand(spec, inputs) else {
        return false;
    };
    let artifact = at.fetch(None, inputs.gathered);
    artifact.is_ok_and(|artifact| signers(&demand, at, &artifact.digest, inputs).is_ok())
}
