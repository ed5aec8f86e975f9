//! Writes that a webhook changed: the same write is not sent again for a while. Keeps only a digest of each write.

use super::{answer, failure};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::time::{Duration, Instant};
use transom_api::KnownReason;
use transom_core::digest::Digest;
use transom_core::outcome::WriteFailure;
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;

/// After this time the write is tried again, because the webhook may have been fixed.
const STANDS: Duration = Duration::from_secs(600);

/// The writes that a webhook changed, by target.
#[derive(Default)]
pub(super) struct Standing(Mutex<BTreeMap<ObjectRef, Changed>>);

struct Changed {
    fingerprint: Digest,
    paths: Vec<String>,
    at: Instant,
}

impl Standing {
    /// Fails if a webhook changed the same write within `STANDS`.
    pub(super) fn check(&self, step: &Step) -> Result<(), WriteFailure> {
        let changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match changed.get(step.target()) {
            Some(before)
                if before.at.elapsed() < STANDS
                    && before.fingerprint == answer::fingerprint(step) =>
            {
                Err(failed(step, &before.paths))
            }
            _ => Ok(()),
        }
    }

    /// Records the outcome of a write; fails if a webhook changed it.
    pub(super) fn note(&self, step: &Step, paths: &[String]) -> Result<(), WriteFailure> {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.is_empty() {
            changed.remove(step.target());
            return Ok(());
        }
        changed.retain(|_, before| before.at.elapsed() < STANDS);
        let now = Changed {
            fingerprint: answer::fingerprint(step),
            paths: paths.to_vec(),
            at: Instant::now(),
        };
        changed.insert(step.target().clone(), now);
        Err(failed(step, paths))
    }
}

fn failed(step: &Step, paths: &[String]) -> WriteFailure {
    let why = format!(
        "an admission webhook changed {}, so it is not written again",
        paths.join(", ")
    );
    failure::failed(
        step.kind(),
        step.target(),
        KnownReason::AdmissionChanged,
        &why,
    )
}
