//! `transom validate`: whether policies can be loaded, with their components and settings.

use crate::args::{TableFormat, ValidateArgs};
use crate::command::run;
use crate::output::{Ending, Screen, Tint};
use crate::policies::load::{self, Loaded};
use crate::policies::swap::created_seconds;
use crate::policies::{Source, Written};
use anyhow::{Context as _, bail};
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
    refused: Option<(&'static str, String)>,
    /// Warnings about a grant that reaches further than it seems to.
    warnings: Vec<String>,
}

/// Loads every policy below a path.
///
/// # Errors
/// When the path cannot be read or holds no policy.
pub(crate) fn validate(args: &ValidateArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let found = Source::new(Some(&args.path), args.components.as_deref())
        .read()
        .with_context(|| format!("failed to read the policies `{}`", args.path.display()))?;
    if found.policies.is_empty() && found.broken.is_empty() {
        bail!(
            "failed to find a policy in `{}`: expected manifests of kind FleetPolicy ({})",
            args.path.display(),
            transom_api::API_VERSION
        );
    }
    let engine = run::engine()?;
    let broken = found.broken.into_iter().map(|(place, why)| Verdict {
        place,
        name: "-".to_owned(),
        refused: Some(("ManifestInvalid", why)),
        warnings: Vec::new(),
    });
    let loaded: Vec<_> = found
        .policies
        .iter()
        .map(|written| (written, load::load(&engine, written)))
        .collect();
    let candidates = loaded.iter().filter_map(|(written, loaded)| {
        let newest = &loaded.as_ref().ok()?.revision.policy;
        Some(Candidate {
            newest,
            active: None,
            created_seconds: created_seconds(written),
        })
    });
    let taken = overlap::refused(&candidates.collect::<Vec<_>>());
    let judged = loaded
        .iter()
        .map(|(written, loaded)| judge(written, loaded, &found.policies, &taken));
    let verdicts: Vec<Verdict> = broken.chain(judged).collect();
    match args.output {
        TableFormat::Table => verdicts.iter().for_each(|verdict| tell(verdict, screen)),
        TableFormat::Json => {
            let rows = verdicts.iter().map(|Verdict { place, name, refused, warnings }| {
                let (reason, message) = refused.clone().unzip();
                json!({"place": place, "policy": name, "valid": refused.is_none(), "reason": reason, "message": message, "warnings": warnings})
            });
            screen.json(&rows.collect::<Vec<_>>());
        }
    }
    Ok(
        if verdicts.iter().all(|verdict| verdict.refused.is_none()) {
            Ending::Right
        } else {
            Ending::Failed
        },
    )
}

/// Whether one policy can be loaded, and may work beside the others.
fn judge(
    written: &Written,
    loaded: &Result<Loaded, Refusal>,
    all: &[Written],
    taken: &BTreeMap<Arc<str>, Refusal>,
) -> Verdict {
    let name = name(written);
    let places: Vec<_> = all
        .iter()
        .filter(|other| self::name(other) == name)
        .map(|one| one.place.as_str())
        .collect();
    let twice = places.len() > 1 && name != "-";
    let refused = match loaded {
        _ if twice => Some((
            KnownReason::PolicyInvalid.as_str(),
            format!(
                "metadata.name: the policy is defined in {} places: {}",
                places.len(),
                places.join(", ")
            ),
        )),
        Ok(_) => taken
            .get(name)
            .map(|refusal| (refusal.reason.as_str(), refusal.message.clone())),
        Err(refusal) => Some((refusal.reason.as_str(), refusal.message.clone())),
    };
    let warn =
        |loaded: &Loaded| rights::every_secret(&loaded.revision.policy, SecretReads::Watch, false);
    let warnings = loaded.as_ref().map(warn).unwrap_or_default();
    Verdict {
        place: written.place.clone(),
        name: name.to_owned(),
        refused,
        warnings,
    }
}

fn name(written: &Written) -> &str {
    written.name().unwrap_or("-")
}

fn tell(verdict: &Verdict, screen: &Screen) {
    let Verdict {
        place,
        name,
        refused,
        warnings,
    } = verdict;
    match refused {
        None => screen.line(format_args!(
            "{} {name} ({place})",
            screen.tinted("valid", Tint::Green, 8)
        )),
        Some((word, why)) => {
            screen.line(format_args!(
                "{} {name} ({place}): {word}: {why}",
                screen.tinted("refused", Tint::Red, 8)
            ));
        }
    }
    for warning in warnings {
        screen.line(format_args!(
            "{} {name}: {warning}",
            screen.tinted("warning", Tint::Yellow, 8)
        ));
    }
}
