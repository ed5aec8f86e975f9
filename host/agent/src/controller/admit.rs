//! Stage 2, admit: whether a request from the workqueue is reconciled now, and why.

use crate::controller::memory::HistoryEntry;
use crate::controller::queue::{Queued, Request};
use crate::controller::workqueue::Workqueue;
use crate::controller::{Admitted, Controller};
use crate::policies::load::LoadedPolicy;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use transom_core::contract::{Change, TriggerVerdict};
use transom_core::failure::Failure;
use transom_core::trigger::{self, PredicateResult};
use transom_core::work::{Cause, Key, WorkItem};

impl Controller {
    /// Puts off a primary that is reconciled too often, and asks the trigger guest about an update; everything else is
    /// reconciled without asking.
    pub(super) async fn admit(&self, queue: &Workqueue, request: Request) -> Option<Admitted> {
        let loaded = queue.loaded();
        let readable = self.readable.load(Ordering::SeqCst);
        let key = Key {
            policy: Arc::clone(&queue.policy),
            primary: Arc::clone(&request.primary),
        };
        let now_seconds = self.clock.now_seconds();
        let often = self.memory.lock().often.admit(&key, now_seconds);
        if let Err(off) = often {
            self.put_off(queue, &loaded, key, request, off).await;
            return None;
        }
        let cause = match request.cause() {
            Some(cause) => Some(cause.clone()),
            None => self.cause_of_update(&loaded, &key).await,
        };
        let (since, timed) = (request.since, request.is_timed());
        let resyncs = request.causes.contains(&Queued::Reconcile(Cause::Resync));
        if let Some(journal) = &mut self.memory.lock().journal {
            journal.push(HistoryEntry {
                key: key.clone(),
                causes: request.causes,
                cause: cause.clone(),
            });
        }
        let work = WorkItem { key, cause: cause? };
        Some(Admitted {
            work,
            loaded,
            since,
            timed,
            resyncs,
            readable,
        })
    }

    /// Why an updated primary is reconciled; `None` when the update is ignored.
    async fn cause_of_update(&self, loaded: &LoadedPolicy, key: &Key) -> Option<Cause> {
        // When it is gone or unreadable by now, the reconcile reports that.
        let Ok(Some(primary)) = self.connections.read(&key.primary).await else {
            return Some(Cause::Undecided);
        };
        if !loaded.revision.policy.is_about(&primary) {
            return self.memory.lock().knows(key).then_some(Cause::Gone);
        }
        let before = self.memory.lock().last_seen.get(key).cloned();
        let observed = trigger::observe(loaded.revision.predicate(), before.as_ref(), &primary);
        let (cause, last_seen) = match observed {
            PredicateResult::Ignore => return None,
            PredicateResult::Reconcile { cause, last_seen } => (Some(cause), last_seen),
            PredicateResult::Ask { change, last_seen } => {
                let cause = match self.verdict(loaded, key, &change) {
                    Ok(TriggerVerdict::Ignore) => None,
                    Ok(TriggerVerdict::Run(reasons)) => Some(Cause::Triggered(reasons)),
                    Err(failure) => {
                        self.unevaluated(key, &failure);
                        Some(Cause::Undecided)
                    }
                };
                (cause, last_seen)
            }
        };
        self.memory.lock().last_seen.insert(key.clone(), last_seen);
        if cause.is_none() {
            self.ignored(key);
        }
        cause
    }

    fn verdict(
        &self,
        loaded: &LoadedPolicy,
        key: &Key,
        change: &Change,
    ) -> Result<TriggerVerdict, Failure> {
        let Some((guest, described)) = loaded
            .trigger
            .as_ref()
            .zip(loaded.revision.trigger.as_ref())
        else {
            return Ok(TriggerVerdict::Run(Vec::new()));
        };
        let context = self.context(described);
        let call = guest.evaluate(&loaded.limits, &context, change);
        self.answer(loaded, key, "evaluate", call)
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use crate::controller::queue::{Queued, Request};
    use std::time::Duration;
    use tokio::time::Instant;
    use transom_core::share::reconcile_limit::MAX_RECONCILES;
    use transom_core::work::Cause;

    const POLICY: &str = "external-managed-kubeconfig";

    #[tokio::test(flavor = "multi_thread")]
    async fn limits_and_reports_reconciles_of_an_ever_changing_primary() {
        let (folder, session, primary) = of_case(POLICY, Clock::new(Some(1_795_000_000))).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        controller.memory.lock().journal = Some(Vec::new());
        for change in 0..2 * MAX_RECONCILES {
            // At the end it is only updated.
            let cause = if change % 2 == 0 || change >= MAX_RECONCILES / 2 {
                Queued::Updated
            } else {
                Queued::Reconcile(Cause::Timer)
            };
            let request = Request {
                primary: primary.clone().into(),
                causes: vec![cause],
                since: Instant::now(),
            };
            controller.reconcile(&queue, request).await;
            queue.done(&primary);
        }
        let reconciled = controller.memory.lock().journal.take().unwrap().len();
        // The first one was reconciled when the session began.
        assert!(
            (1..MAX_RECONCILES as usize).contains(&reconciled),
            "{reconciled}"
        );
        let last = controller
            .memory
            .lock()
            .results
            .values()
            .next()
            .unwrap()
            .clone();
        assert_eq!(last.reason.as_str(), "ReconcileBudgetExceeded");
        let status = folder.path().join(".transom/status").join(POLICY);
        let text: String = std::fs::read_dir(status)
            .unwrap()
            .flatten()
            .map(|file| std::fs::read_to_string(file.path()).unwrap())
            .collect();
        assert!(
            text.contains("ReconcileBudgetExceeded") && text.contains("2026-11-"),
            "{text}"
        );
        assert!(queue.is_idle(), "it waits for the minute to end");
        // Whatever the trigger guest says of the updates: else the failure would stay.
        let again = queue.due_within(Duration::from_secs(60)).unwrap();
        assert_eq!(again.cause(), Some(&Cause::Undecided));
    }
}
