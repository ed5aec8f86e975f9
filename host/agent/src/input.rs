//! Inputs of a command, such as standard input where it says `-` for a file: read once, and never more than a limit.

use anyhow::{Context as _, bail};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// As what standard input was read.
static TAKEN: OnceLock<&'static str> = OnceLock::new();

/// Whether a path of the command line means standard input.
pub(crate) fn is_meant(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads all of standard input. `what` names for people what it holds, such as `the settings`.
///
/// # Errors
/// When it cannot be read, has more than `most` bytes, or was read before: it cannot be two files.
pub(crate) fn read(what: &'static str, most: usize) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("failed to read {what} from standard input");
    if TAKEN.set(what).is_err() {
        let first = TAKEN.get().copied().unwrap_or_default();
        bail!("{}: it is {first}, and cannot be both", failed());
    }
    bounded(std::io::stdin().lock(), most).with_context(failed)
}

/// Reads all of an input.
///
/// # Errors
/// When it cannot be read, or has more than `most` bytes.
pub(crate) fn bounded(input: impl Read, most: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    input.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        bail!("it has more than {most} bytes");
    }
    Ok(bytes)
}
