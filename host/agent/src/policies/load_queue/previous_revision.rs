//! Gets the revision before the active one, for a rollback. If a registry has to be asked, or the machine was too busy,
//! this happens after everything else was handed over, and nothing waits for it.

use super::restored::{still_watched_before, tried, watched_before};
use super::run::{keep_earlier, unkept_before};
use super::{Job, JobResult, PreviousRevision, Ran, retry_at};
use crate::policies::components::Components;
use crate::policies::load::{LoadedPolicy, Unloaded};
use crate::telemetry;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_artifacts::GatheredComponents;
use transom_core::catalogue::Refusal;
use transom_core::rollout;
use transom_core::rollout::history::RevisionRecord;
use transom_engine::Engine;

/// Ends a job, and queues it again for the previous revision if that is still needed.
pub(super) fn after(components: &Components, job: Job, done: Box<JobResult>) -> Ran {
    if !job.lacks_before || still_watched_before(components, &job).is_none() {
        return Ran::Done(done);
    }
    let mut job = job.following();
    let before = unkept_before(components, &job);
    job.asks(before.keys());
    Ran::AllBut(done, Box::new(job))
}

/// Reads the components of the previous revision.
pub(super) async fn read(components: &Components, job: &mut Job) {
    let before = job.wanted.of_earlier(unkept_before(components, job));
    job.earlier = components.read(&before, true).await;
    // Nothing else is read.
    job.gathered = Some(GatheredComponents::default());
}

/// Restores the previous revision. A failure that may pass is retried while the active one is on probation.
pub(super) fn restore(engine: &Engine, components: &Components, mut job: Job) -> Ran {
    let nothing = GatheredComponents::default();
    let read = job.earlier.as_ref().unwrap_or(&nothing);
    let record = job.history.as_ref().and_then(watched_before);
    let before = record.map(|record| (tried(engine, components, &job, read, record), record));
    let before = match before {
        Some((Ok(before), _)) => Some(before),
        Some((Err(Unloaded::Slow), _)) => {
            job = job.following();
            job.slow = true;
            return Ran::Again(Box::new(job));
        }
        Some((Err(Unloaded::Refused(refusal)), record)) => {
            let is_unread = read.is_incomplete() && !unkept_before(components, &job).is_empty();
            let may_pass = is_unread || refusal.reason == KnownReason::EngineBusy;
            let again = may_pass && still_watched_before(components, &job).is_some();
            if job.failures == 0 {
                tell(&job, record, refusal, again);
            }
            if again {
                return later(job);
            }
            None
        }
        None => None,
    };
    give(components, &job, before)
}

/// Hands over the previous revision; `None` if it cannot be restored.
fn give(components: &Components, job: &Job, before: Option<LoadedPolicy>) -> Ran {
    if before.is_some() {
        keep_earlier(components, job);
    }
    Ran::PreviousRevision(Box::new(PreviousRevision {
        policy: Arc::clone(&job.name),
        before,
    }))
}

/// Queues the job again with a back-off.
fn later(job: Job) -> Ran {
    let failures = job.failures;
    Ran::Again(Box::new(Job {
        due: Some(retry_at(failures, job.number)),
        failures: failures + 1,
        ..job.following()
    }))
}

/// Logs why the previous revision cannot be restored.
fn tell(job: &Job, record: &RevisionRecord, refusal: Refusal, again: bool) {
    let before = rollout::short(&record.id);
    let goes_on = match again {
        true => "the agent retries while the active revision is on probation",
        false => "without it the active revision cannot be rolled back",
    };
    let message = format!(
        "the revision {before} before the active one cannot be restored: {}; {goes_on}",
        refusal.message
    );
    telemetry::warn_of_policy(&job.name, refusal.reason, &message);
}
