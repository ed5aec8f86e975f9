//! `transom validate`: whether policies can be loaded, with their components and settings.

use crate::args::{TableFormat, ValidateArgs};
use crate::command::run;
use crate::output::{Ending, Screen, Tint};
use crate::policies::load::{self, Loaded};
use crate::policies::{self, Written};
use anyhow::bail;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::catalogue::Refusal;
use transom_core::catalogue::overlap::{self, Candidate};
use transom_core::rights;
use transom_core::watches::SecretReads;

/// One policy, and why it is refused.
struct Verdict {
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
pub(crate) fn validate(args: &ValidateArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let found = policies::read(Some(&args.path), args.components.as_deref())?;
    if found.policies.is_empty() && found.broken.is_empty() {
        bail!(
            "failed to find a policy in `{}`: expected manifests of kind FleetPolicy ({})",
            args.path.display(),
            transom_api::API_VERSION
        );
    }
    let engine = run::engine()?;
    let all = &found.policies;
    let loaded: Vec<_> = all
        .iter()
        .map(|one| load::load(&engine, one, &args.sources))
        .collect();
    let candidates = all.iter().zip(&loaded).filter_map(|(written, loaded)| {
        Some(Candidate {
            newest: &loaded.as_ref().ok()?.revision.policy,
            active: None,
            created_seconds: written.created_seconds(),
        })
    });
    let taken = overlap::refused(&candidates.collect::<Vec<_>>());
    let broken = found.broken.iter().map(|(place, why)| Verdict {
        place: place.clone(),
        name: "-".to_owned(),
        refused: Some(Refusal {
            reason: KnownReason::ManifestInvalid,
            message: why.clone(),
        }),
        warnings: Vec::new(),
    });
    let checked = all.iter().zip(&loaded);
    let checked = checked.map(|(written, loaded)| check(written, loaded, all, &taken));
    let verdicts: Vec<Verdict> = broken.chain(checked).collect();
    match args.output {
        TableFormat::Table => verdicts.iter().for_each(|verdict| print(verdict, screen)),
        TableFormat::Json => {
            let rows = verdicts.iter().map(|Verdict { place, name, refused, warnings }| {
                let reason = refused.as_ref().map(|refusal| refusal.reason.as_str());
                let message = refused.as_ref().map(|refusal| &refusal.message);
                json!({"place": place, "policy": name, "valid": refused.is_none(), "reason": reason, "message": message, "warnings": warnings})
            });
            screen.json(&rows.collect::<Vec<_>>());
        }
    }
    let refused = verdicts.iter().any(|verdict| verdict.refused.is_some());
    Ok(Ending::failed_if(refused))
}

/// Whether one policy can be loaded, and may work beside the others.
fn check(
    written: &Written,
    loaded: &Result<Loaded, Refusal>,
    all: &[Written],
    taken: &BTreeMap<Arc<str>, Refusal>,
) -> Verdict {
    let name = written.name().unwrap_or("-");
    let same = all.iter().filter(|other| other.name() == Some(name));
    let places: Vec<_> = same.map(|one| one.place.as_str()).collect();
    let refused = match loaded {
        _ if places.len() > 1 => Some(load::defined_in_several(&places)),
        Ok(_) => taken.get(name).cloned(),
        Err(refusal) => Some(refusal.clone()),
    };
    let warn =
        |loaded: &Loaded| rights::every_secret(&loaded.revision.policy, SecretReads::Watch, false);
    Verdict {
        place: written.place.clone(),
        name: name.to_owned(),
        refused,
        warnings: loaded.as_ref().map(warn).unwrap_or_default(),
    }
}

fn print(verdict: &Verdict, screen: &Screen) {
    let (name, place) = (&verdict.name, &verdict.place);
    match &verdict.refused {
        None => {
            let word = screen.tinted("valid", Tint::Green, 8);
            screen.line(format_args!("{word} {name} ({place})"));
        }
        Some(Refusal { reason, message }) => {
            let (word, reason) = (screen.tinted("refused", Tint::Red, 8), reason.as_str());
            screen.line(format_args!("{word} {name} ({place}): {reason}: {message}"));
        }
    }
    for warning in &verdict.warnings {
        let word = screen.tinted("warning", Tint::Yellow, 8);
        screen.line(format_args!("{word} {name}: {warning}"));
    }
}
