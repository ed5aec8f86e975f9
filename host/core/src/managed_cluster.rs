//! A ManagedCluster as its record, filled only with what the guest declared.
//! Never guesses: a declared field of the wrong type is named.

use crate::contract::taints::{Condition, Effect, ManagedCluster, Status, Taint};
use crate::failure::InvalidField;
use crate::field::Place;
use crate::object::Object;
use crate::projection::Declared;

/// `spec.leaseDurationSeconds` where a cluster says nothing.
const DEFAULT_LEASE_SECONDS: u32 = 60;

/// Reads a ManagedCluster. What was not declared is empty, and its shape does not count.
///
/// # Errors
/// At the first declared field of the wrong type or with an impossible value.
pub fn view(object: &Object, declared: &Declared) -> Result<ManagedCluster, InvalidField> {
    if let Some(path) = declared.misfit(object) {
        return Err(InvalidField { path, expected: "a mapping or a list, as a ManagedCluster has it" });
    }
    let fields = declared.fields.project(&object.body);
    let top = Place::top(&fields);
    let (metadata, spec, status) = (top.map("metadata")?, top.map("spec")?, top.map("status")?);
    Ok(ManagedCluster {
        reference: object.reference.clone(),
        uid: object.uid().to_owned(),
        created_seconds: object.created_seconds(),
        deleting: object.deleting(),
        accepted: spec.get("hubAcceptsClient").truth()?,
        lease_duration_seconds: lease_duration(&spec.get("leaseDurationSeconds"))?,
        kubernetes_version: status.map("version")?.get("kubernetes").text()?,
        labels: pairs(&metadata.get("labels"))?,
        annotations: pairs(&metadata.get("annotations"))?,
        claims: status.get("clusterClaims").list()?.iter().map(claim).collect::<Result<_, _>>()?,
        conditions: status.get("conditions").list()?.iter().map(condition).collect::<Result<_, _>>()?,
        taints: spec.get("taints").list()?.iter().map(taint).collect::<Result<_, _>>()?,
    })
}

fn lease_duration(place: &Place<'_>) -> Result<u32, InvalidField> {
    let Some(value) = place.value() else { return Ok(DEFAULT_LEASE_SECONDS) };
    value.as_u64().and_then(|seconds| u32::try_from(seconds).ok()).ok_or_else(|| place.not("a number of seconds"))
}

/// The entries of a map of texts, by key.
fn pairs(place: &Place<'_>) -> Result<Vec<(String, String)>, InvalidField> {
    let mut pairs = Vec::new();
    for key in place.entries()?.into_iter().flat_map(serde_json::Map::keys) {
        pairs.push((key.clone(), place.get(key).text()?.unwrap_or_default()));
    }
    pairs.sort();
    Ok(pairs)
}

fn claim(place: &Place<'_>) -> Result<(String, String), InvalidField> {
    Ok((place.get("name").required_text()?, place.get("value").text()?.unwrap_or_default()))
}

fn condition(place: &Place<'_>) -> Result<Condition, InvalidField> {
    let status = place.get("status");
    Ok(Condition {
        kind: place.get("type").required_text()?,
        status: match status.required_text()?.as_str() {
            "True" => Status::Yes,
            "False" => Status::No,
            "Unknown" => Status::Unknown,
            _ => return Err(status.not("True, False or Unknown")),
        },
        reason: place.get("reason").text()?.unwrap_or_default(),
        changed_seconds: place.get("lastTransitionTime").time()?,
    })
}

fn taint(place: &Place<'_>) -> Result<Taint, InvalidField> {
    let effect = place.get("effect");
    Ok(Taint {
        key: place.get("key").required_text()?,
        value: place.get("value").text()?.unwrap_or_default(),
        effect: match effect.required_text()?.as_str() {
            "NoSelect" => Effect::NoSelect,
            "PreferNoSelect" => Effect::PreferNoSelect,
            "NoSelectIfNew" => Effect::NoSelectIfNew,
            _ => return Err(effect.not("NoSelect, PreferNoSelect or NoSelectIfNew")),
        },
        added_seconds: place.get("timeAdded").time()?,
    })
}
