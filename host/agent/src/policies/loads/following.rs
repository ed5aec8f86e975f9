//! The revision before the active one, which may have to work again: where its registry has to be asked, or the machine
//! has too much to do, that is done after all else is handed over, and nothing waits for it.

use super::earlier::{still_watched_before, tried, watched_before};
use super::run::{keep_earlier, unkept_before};
use super::{Before, Job, JobResult, Ran, retry_at};
use crate::policies::components::Components;
use crate::policies::load::{LoadedPolicy, Unloaded};
use crate::telemetry;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_artifacts::GatheredComponents;
use transom_core::catalogue::Refusal;
use transom_core::rollout;
use transom_core::rollout::history::RevisionRecord;
use transom_core::signal::PolicySignal;
use transom_engine::Engine;

/// Ends a job; it is queued once more for the revision before the active one, if that is still to be had.
pub(super) fn after(components: &Components, job: Job, done: Box<JobResult>) -> Ran {
    if !job.lacks_before || still_watched_before(components, &job).is_none() {
        return Ran::Done(done);
    }
    let mut job = job.following();
    let before = unkept_before(components, &job);
    job.asks(before.keys());
    Ran::AllBut(done, Box::new(job))
}

/// Pulls it.
pub(super) async fn read(components: &Components, mut job: Job) -> Ran {
    let before = job.wanted.of_earlier(unkept_before(components, &job));
    job.earlier = components.read(&before, true).await;
    // Nothing else is read.
    job.gathered = Some(GatheredComponents::default());
    Ran::Again(Box::new(job))
}

/// Restores it. When it cannot be had now, it is tried again as long as the active one is watched.
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

/// Hands it over.
fn give(components: &Components, job: &Job, before: Option<LoadedPolicy>) -> Ran {
    if before.is_some() {
        keep_earlier(components, job);
    }
    Ran::Before(Box::new(Before {
        policy: Arc::clone(&job.name),
        active: job.active().map(|active| active.id),
        before,
    }))
}

/// Has it tried again after a while.
fn later(job: Job) -> Ran {
    let failures = job.failures;
    Ran::Again(Box::new(Job {
        due: Some(retry_at(failures, job.number)),
        failures: failures + 1,
        ..job.following()
    }))
}

/// Tells why it cannot be had now.
fn tell(job: &Job, record: &RevisionRecord, refusal: Refusal, again: bool) {
    let before = rollout::short(&record.id);
    let goes_on = match again {
        true => "it is tried again as long as the active one is watched",
        false => "the active revision stays, whatever its faults are",
    };
    let signal = PolicySignal::Refused {
        reason: refusal.reason,
        message: format!(
            "the revision {before} before the active one cannot be had: {}; {goes_on}",
            refusal.message
        ),
        previous_revision_active: true,
    };
    telemetry::tell_policy(&job.name, &signal);
}
