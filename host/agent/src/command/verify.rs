//! `transom verify`: whether a component is signed by given keys, as the agent finds out.

use crate::args::VerifyArgs;
use crate::command::{done, place};
use crate::input;
use crate::output::{CommandEnd, Screen};
use anyhow::{Context as _, bail};
use transom_api::policy::VerifyMode;
use transom_artifacts::Location;
use transom_artifacts::signature::{Demand, MAX_KEY_BYTES, TrustedKey};

/// Prints the digest of a component and who signed it.
///
/// # Errors
/// When a key cannot be read, or the component is builtin.
pub(crate) fn verify(args: &VerifyArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let mut keys = Vec::new();
    for path in &args.key {
        let name = path.display().to_string();
        let pem = input::file(path, MAX_KEY_BYTES)
            .with_context(|| format!("failed to read the key `{name}`"))?;
        match TrustedKey::parse(&name, &pem) {
            Ok(key) => keys.push(key),
            Err(why) => bail!("the key `{name}` {why}"),
        }
    }
    let mode = match args.all {
        true => VerifyMode::All,
        false => VerifyMode::Any,
    };
    let found = match place::read(args.component.clone(), &args.from, true) {
        Ok(found) => found,
        Err(error) => return done(Err(error), screen),
    };
    let (at, digest) = (&found.location, &found.artifact.digest);
    if matches!(at, Location::Builtin(_)) {
        bail!("`{at}` is part of this program and has no signature");
    }
    let evidence = at.evidence(&found.gathered)?;
    match (Demand { mode, keys }).check(digest, &evidence) {
        Ok(signers) => {
            screen.line(format_args!("component {digest}"));
            screen.line(format_args!("signed by {}", signers.join(", ")));
            Ok(CommandEnd::Right)
        }
        Err(unverified) => {
            let reason = unverified.reason().as_str();
            screen.note(format_args!("{at}: {reason}: {unverified}"));
            Ok(CommandEnd::Failed)
        }
    }
}
