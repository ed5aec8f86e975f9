//! `transom validate`: whether policies can be loaded, with their components and settings.

use crate::args::{TableFormat, ValidateArgs};
use crate::command::engine;
use crate::output::{CommandEnd, Screen, Tint, Tinted};
use crate::policies::{self, Written};
use crate::policies::{load, verify};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_artifacts::{Location, Sources};
use transom_core::catalogue::Refusal;
use transom_core::catalogue::overlap::{self, LoadCandidate};
use transom_core::own_records::OwnRecords;
use transom_core::policy::Policy;
use transom_core::rights;
use transom_core::watches::SecretReads;
use transom_engine::Engine;

/// One policy, and why it is refused.
struct PolicyVerdict {
    place: String,
    name: String,
    refused: Option<Refusal>,
    /// Warnings about a grant that reaches further than it seems to.
    warnings: Vec<String>,
}

/// Loads every policy below a path.
///
/// # Errors
/// When the path cannot be read or holds no policy.
pub(crate) fn validate(args: &ValidateArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let path = args.policies.as_ref().unwrap_or(&args.path);
    let found = policies::read_some(path, args.components.as_deref())?;
    let engine = engine::engine(args.calls.limits())?;
    let all = &found.policies;
    let loaded: Vec<_> = all
        .iter()
        .map(|one| checked(&engine, one, &args.sources))
        .collect();
    let candidates = all.iter().zip(&loaded).filter_map(|(written, loaded)| {
        Some(LoadCandidate {
            newest: &loaded.as_ref().ok()?.0,
            active: None,
            created_seconds: written.created_seconds(),
        })
    });
    let taken = overlap::refused(&candidates.collect::<Vec<_>>());
    let broken = found.broken.iter().map(|(place, why)| PolicyVerdict {
        place: place.clone(),
        name: "-".to_owned(),
        refused: Some(Refusal::new(KnownReason::ManifestInvalid, why.clone())),
        warnings: Vec::new(),
    });
    let several = in_several(all);
    let each = all.iter().zip(&loaded);
    let each = each.map(|(written, loaded)| check(written, loaded, &several, &taken));
    let verdicts: Vec<PolicyVerdict> = broken.chain(each).collect();
    match args.output {
        TableFormat::Table => verdicts.iter().for_each(|verdict| print(verdict, screen)),
        TableFormat::Json => {
            let rows = verdicts.iter().map(|PolicyVerdict { place, name, refused, warnings }| {
                let reason = refused.as_ref().map(|refusal| refusal.reason.as_str());
                let message = refused.as_ref().map(|refusal| &refusal.message);
                json!({"place": place, "policy": name, "valid": refused.is_none(), "reason": reason, "message": message, "warnings": warnings})
            });
            screen.json(&rows.collect::<Vec<_>>());
        }
    }
    let refused = verdicts.iter().any(|verdict| verdict.refused.is_some());
    Ok(CommandEnd::failed_if(refused))
}

/// Checks a policy and loads its components. One that lies in a cluster is not loaded, and a warning says so.
fn checked(
    engine: &Engine,
    written: &Written,
    sources: &Sources,
) -> Result<(Policy, Vec<String>), Refusal> {
    let policy = load::check(&written.value)?;
    // Where the agent keeps its Lease is not known here.
    let policy = OwnRecords::default()
        .check(policy)
        .map_err(|error| load::invalid(error.to_string()))?;
    let warnings = rights::every_secret(&policy, SecretReads::Watch, false);
    let remote = written.read_from().into_iter().find(Location::is_remote);
    let Some(component) = remote else {
        load::load(engine, written, sources)?;
        return Ok((policy, warnings));
    };
    load::limits(engine, &policy)?;
    verify::check_sources(&policy, &written.base, sources)?;
    let unchecked = format!(
        "the components and settings are not checked: this command does not read `{component}`"
    );
    Ok((policy, [unchecked].into_iter().chain(warnings).collect()))
}

/// The names that several manifests have, each with its refusal.
fn in_several(all: &[Written]) -> BTreeMap<&str, Refusal> {
    let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, written) in all.iter().filter_map(|one| Some((one.name()?, one))) {
        by_name.entry(name).or_default().push(written.shown_place());
    }
    let several = by_name.into_iter().filter(|(_, places)| places.len() > 1);
    let several =
        several.map(|(name, places)| (name, load::defined_in_several(places.into_iter())));
    several.collect()
}

/// Whether one policy can be loaded, and may work beside the others.
fn check(
    written: &Written,
    loaded: &Result<(Policy, Vec<String>), Refusal>,
    several: &BTreeMap<&str, Refusal>,
    taken: &BTreeMap<Arc<str>, Refusal>,
) -> PolicyVerdict {
    let name = written.name().filter(|name| !name.is_empty());
    let name = name.unwrap_or("-");
    let refused = match (several.get(name), loaded) {
        (Some(refusal), _) => Some(refusal.clone()),
        (None, Ok(_)) => taken.get(name).cloned(),
        (None, Err(refusal)) => Some(refusal.clone()),
    };
    PolicyVerdict {
        place: written.shown_place(),
        name: name.to_owned(),
        refused,
        warnings: loaded
            .as_ref()
            .map_or_else(|_| Vec::new(), |(_, warnings)| warnings.clone()),
    }
}

fn print(verdict: &PolicyVerdict, screen: &Screen) {
    let (name, place) = (&verdict.name, &verdict.place);
    match &verdict.refused {
        None => {
            let word = Tinted::new("valid", Tint::Green, 8);
            screen.line_of(&word, format_args!(" {name} ({place})"));
        }
        Some(Refusal {
            reason, message, ..
        }) => {
            let (word, reason) = (Tinted::new("refused", Tint::Red, 8), reason.as_str());
            screen.line_of(
                &word,
                format_args!(" {name} ({place}): {reason}: {message}"),
            );
        }
    }
    for warning in &verdict.warnings {
        let word = Tinted::new("warning", Tint::Yellow, 8);
        screen.line_of(&word, format_args!(" {name}: {warning}"));
    }
}
