//! Writes notes to the history in the background, once each, and reports what became of them.

use super::Note;
use crate::policies::components::Components;
use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use transom_api::KnownReason;
use transom_core::backoff;
use transom_core::plan::WriteFailure;
use transom_core::rollout::history::History;

/// After how long a history is listed again, give or take a tenth.
const AGAIN_SECONDS: u32 = 600;

/// What became of a note: the history of its policy, if there is one, or why it was not kept.
pub(in crate::policies) struct KeptNote {
    pub(in crate::policies) note: Note,
    pub(in crate::policies) result: Result<Option<History>, Unkept>,
}

/// Why a note was not kept.
pub(in crate::policies) struct Unkept {
    pub(in crate::policies) failure: WriteFailure,
    /// How long to wait before the next try.
    pub(in crate::policies) delay: Duration,
}

/// Writes notes in the background, one at a time for each policy.
pub(in crate::policies) struct RevisionWriter {
    components: Components,
    tasks: JoinSet<(Note, Result<Option<History>, WriteFailure>)>,
    busy: BTreeSet<Arc<str>>,
    /// How often in a row the note of a policy was not kept.
    failures: BTreeMap<Arc<str>, u32>,
}

impl RevisionWriter {
    /// Keeps nothing yet.
    pub(in crate::policies) fn new(components: Components) -> Self {
        Self {
            components,
            tasks: JoinSet::new(),
            busy: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// The policies whose notes are being written.
    pub(in crate::policies) fn busy(&self) -> &BTreeSet<Arc<str>> {
        &self.busy
    }

    /// Begins to write notes of policies that are not busy.
    pub(in crate::policies) fn keep(&mut self, notes: Vec<Note>) {
        for note in notes {
            self.busy.insert(Arc::clone(&note.policy));
            self.tasks.spawn(keep(self.components.clone(), note));
        }
    }

    /// Forgets all notes: another leader has kept others since.
    pub(in crate::policies) fn forget(&mut self) {
        *self = Self::new(self.components.clone());
    }

    /// Waits for the next note that was kept or not.
    pub(in crate::policies) async fn next(&mut self) -> KeptNote {
        let (note, result) = loop {
            match self.tasks.join_next().await {
                Some(Ok(ended)) => break ended,
                // A task catches its panics, and none is aborted.
                Some(Err(_)) => {}
                None => return std::future::pending().await,
            }
        };
        self.busy.remove(&note.policy);
        if result.is_ok() {
            self.failures.remove(&note.policy);
        }
        let result = result.map_err(|failure| {
            let failures = self.failures.entry(Arc::clone(&note.policy)).or_default();
            let delay = delay(&note.policy, *failures);
            *failures = failures.saturating_add(1);
            Unkept { failure, delay }
        });
        KeptNote { note, result }
    }
}

/// How long to wait before another try for a policy, after so many that failed; different for each, so that not all
/// begin at once after an outage.
pub(in crate::policies) fn delay(policy: &Arc<str>, failures: u32) -> Duration {
    Duration::from_millis(backoff::delay_ms(failures, seed(policy)))
}

/// How long after a note was kept the history of a policy is listed again, and compared with it.
pub(in crate::policies) fn again(policy: &Arc<str>) -> Duration {
    let again = backoff::resync_ms(AGAIN_SECONDS, seed(policy));
    again.map_or(Duration::ZERO, Duration::from_millis)
}

fn seed(policy: &Arc<str>) -> u64 {
    RandomState::new().hash_one(policy)
}

/// Writes one note; once more if the history changed meanwhile.
pub(in crate::policies) async fn keep(
    components: Components,
    note: Note,
) -> (Note, Result<Option<History>, WriteFailure>) {
    let mut kept = keep_once(&components, &note).await;
    if matches!(&kept, Err(failure) if failure.reason == KnownReason::WriteConflict) {
        kept = keep_once(&components, &note).await;
    }
    match kept {
        // An agent that may not write keeps nothing.
        Err(failure) if failure.reason == KnownReason::ReadOnly => (note, Ok(None)),
        kept => (note, kept),
    }
}

async fn keep_once(components: &Components, note: &Note) -> Result<Option<History>, WriteFailure> {
    let keeping = AssertUnwindSafe(components.keep_note(note)).catch_unwind();
    keeping.await.unwrap_or_else(|_| {
        Err(WriteFailure {
            reason: KnownReason::AgentFailed,
            message: "a bug in the agent made keeping the revision fail".to_owned(),
        })
    })
}
