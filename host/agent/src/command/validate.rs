//! `transom validate`: whether policies can be loaded, with their components and settings. Never puts one to work.

use crate::args::{TableFormat, ValidateArgs};
use crate::command::run;
use crate::output::{Ending, Screen, Tint};
use crate::policies::Source;
use crate::policies::load;
use crate::policies::swap::created_seconds;
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use transom_core::catalogue::overlap::{self, Candidate};

/// One policy, and why it is refused.
struct Verdict {
    place: String,
    name: String,
    refused: Option<(&'static str, String)>,
}

/// Loads every policy below a path.
///
/// # Errors
/// When the path cannot be read or holds no policy.
pub(crate) fn validate(args: &ValidateArgs, screen: &Screen) -> anyhow::Result<Ending> {
    let found = Source::Path(args.path.clone())
        .read()
        .with_context(|| format!("failed to read the policies `{}`", args.path.display()))?;
    if found.policies.is_empty() && found.broken.is_empty() {
        bail!(
            "failed to find a policy in `{}`: want manifests of kind Policy ({})",
            args.path.display(),
            transom_api::API_VERSION
        );
    }
    let engine = run::engine()?;
    let broken = found.broken.into_iter().map(|(place, why)| Verdict {
        place,
        name: "-".to_owned(),
        refused: Some(("ManifestInvalid", why)),
    });
    let loaded = found.policies.iter().map(|written| load::load(&engine, &written.value, &written.folder));
    let loaded: Vec<_> = found.policies.iter().zip(loaded).collect();
    let candidates = loaded.iter().filter_map(|(written, loaded)| {
        let newest = &loaded.as_ref().ok()?.revision.policy;
        Some(Candidate { newest, at_work: None, created_seconds: created_seconds(written) })
    });
    let taken = overlap::refused(&candidates.collect::<Vec<_>>());
    let judged = loaded.iter().map(|(written, loaded)| {
        let refused = match loaded {
            Ok(loaded) => taken.get(&loaded.revision.policy.name),
            Err(refusal) => Some(refusal),
        };
        Verdict {
            place: written.place.clone(),
            name: written.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("-").to_owned(),
            refused: refused.map(|refusal| (refusal.word.as_str(), refusal.message.clone())),
        }
    });
    let verdicts: Vec<Verdict> = broken.chain(judged).collect();
    match args.output {
        TableFormat::Table => verdicts.iter().for_each(|verdict| tell(verdict, screen)),
        TableFormat::Json => {
            let rows = verdicts.iter().map(|Verdict { place, name, refused }| {
                let (reason, message) = refused.clone().unzip();
                json!({"place": place, "policy": name, "valid": refused.is_none(), "reason": reason, "message": message})
            });
            screen.json(&rows.collect());
        }
    }
    Ok(if verdicts.iter().all(|verdict| verdict.refused.is_none()) { Ending::Right } else { Ending::Failed })
}

fn tell(verdict: &Verdict, screen: &Screen) {
    let Verdict { place, name, refused } = verdict;
    match refused {
        None => screen.line(format_args!("{} {name} ({place})", screen.tinted("valid", Tint::Green, 8))),
        Some((word, why)) => {
            screen.line(format_args!("{} {name} ({place}): {word}: {why}", screen.tinted("refused", Tint::Red, 8)));
        }
    }
}
