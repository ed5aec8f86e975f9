//! Keeps what is noted about policies in the background, and tries again as long as that may help.

use super::Note;
use crate::policies::components::Components;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use transom_api::KnownReason;
use transom_core::backoff;
use transom_core::rollout::history::History;
use transom_core::signal::Signal;

/// The policy of a note that ended, with its history, if there is one; an error when the note was not kept.
type Kept = (Arc<str>, Result<Option<History>, ()>);

/// Keeps notes in the background, one at a time for each policy.
pub(in crate::policies) struct Keeper {
    components: Components,
    tasks: JoinSet<Kept>,
    busy: BTreeSet<Arc<str>>,
    waiting: BTreeMap<Arc<str>, Note>,
}

impl Keeper {
    /// Keeps nothing yet.
    pub(in crate::policies) fn new(components: Components) -> Self {
        Self {
            components,
            tasks: JoinSet::new(),
            busy: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Has notes kept, each after those of the same policy.
    pub(in crate::policies) fn keep(&mut self, notes: Vec<Note>) {
        notes.into_iter().for_each(|note| self.add(note));
    }

    fn add(&mut self, note: Note) {
        let note = match self.waiting.remove(&note.policy) {
            Some(earlier) => note.after(earlier),
            None => note,
        };
        if self.busy.contains(&note.policy) {
            self.waiting.insert(Arc::clone(&note.policy), note);
            return;
        }
        self.busy.insert(Arc::clone(&note.policy));
        self.tasks.spawn(keep(self.components.clone(), note));
    }

    /// Forgets all notes: another leader has kept others since.
    pub(in crate::policies) fn forget(&mut self) {
        self.tasks.abort_all();
        self.busy.clear();
        self.waiting.clear();
    }

    /// Waits for the next note that was kept; gives the history of its policy, if there is one.
    pub(in crate::policies) async fn next(&mut self) -> (Arc<str>, Option<History>) {
        loop {
            let Some(Ok((policy, history))) = self.tasks.join_next().await else {
                return std::future::pending().await;
            };
            self.busy.remove(&policy);
            if let Some(note) = self.waiting.remove(&policy) {
                self.add(note);
            }
            if let Ok(history) = history {
                return (policy, history);
            }
        }
    }
}

/// Keeps one note, and tries again as long as that may help.
async fn keep(components: Components, note: Note) -> Kept {
    let mut failures = 0;
    loop {
        match components.keep_note(&note, failures > 0).await {
            Ok(history) => return (note.policy, Ok(history)),
            // An agent that may not write keeps nothing.
            Err(failure) if failure.reason == KnownReason::ReadOnly => {
                return (note.policy, Ok(None));
            }
            // The leader keeps it.
            Err(failure) if failure.reason == KnownReason::NotLeading => {
                return (note.policy, Err(()));
            }
            Err(failure) => {
                if failures == 0 || failure.reason != KnownReason::WriteConflict {
                    telemetry::tell(&Signal::Unreadable {
                        place: format!("the revisions of {}", note.policy),
                        reason: failure.reason,
                        message: failure.message,
                    });
                }
                failures += 1;
                let delay = backoff::delay_ms(failures, u64::from(failures));
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
        }
    }
}
