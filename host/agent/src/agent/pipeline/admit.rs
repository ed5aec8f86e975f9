//! Stage 2: whether a request from the queue is reconciled, and why.

use crate::agent::Agent;
use crate::agent::invoke::answer;
use crate::agent::queue::Request;
use crate::policies::load::Loaded;
use std::sync::Arc;
use transom_core::contract::{Change, Verdict};
use transom_core::failure::Failure;
use transom_core::trigger::{self, PredicateResult};
use transom_core::work::{Cause, Key, WorkItem};
use transom_engine::Limits;

impl Agent {
    /// Asks the trigger guest about an update; everything else is reconciled without asking.
    pub(super) async fn admit(
        &self,
        loaded: &Arc<Loaded>,
        key: Key,
        request: Request,
    ) -> Option<WorkItem> {
        if let Some(cause) = request.cause() {
            return Some(WorkItem {
                key,
                cause: cause.clone(),
            });
        }
        let cause = match self.connections.read(&key.primary).await {
            Ok(Some(primary)) => {
                let (predicate, declared) = loaded.revision.predicate();
                let before = self.known.lock().last_seen.get(&key).cloned();
                match trigger::observe(predicate, declared, before.as_ref(), &primary) {
                    PredicateResult::Ignore => return None,
                    PredicateResult::Enqueue { cause, last_seen } => {
                        self.known.lock().last_seen.insert(key.clone(), last_seen);
                        cause
                    }
                    PredicateResult::Ask { change, last_seen } => {
                        let verdict = self.verdict(loaded, &key, &change);
                        self.known.lock().last_seen.insert(key.clone(), last_seen);
                        match verdict {
                            Ok(Verdict::Ignore) => {
                                self.ignored(&key);
                                return None;
                            }
                            Ok(Verdict::Run(reasons)) => Cause::Triggered(reasons),
                            Err(_) => Cause::Undecided,
                        }
                    }
                }
            }
            // Gone or unreadable by now: the reconcile reports that.
            Ok(None) | Err(_) => Cause::Undecided,
        };
        Some(WorkItem { key, cause })
    }

    fn verdict(&self, loaded: &Loaded, key: &Key, change: &Change) -> Result<Verdict, Failure> {
        let Some((guest, described)) = loaded
            .trigger
            .as_ref()
            .zip(loaded.revision.trigger.as_ref())
        else {
            return Ok(Verdict::Run(Vec::new()));
        };
        let context = self.context(described);
        answer(
            key,
            "evaluate",
            guest.evaluate(&Limits::default(), &context, change),
        )
    }
}
