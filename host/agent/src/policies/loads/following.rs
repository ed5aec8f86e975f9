//! The revision before the active one, which may have to work again: where its registry has to be asked, that is done after
//! all else is handed over, and nothing waits for it.

use super::earlier::before;
use super::run::{keep_earlier, unkept_before};
use super::{Before, Done, Job, Ran, Restoring};
use crate::policies::components::Components;
use crate::policies::load::Unloaded;
use std::sync::Arc;
use transom_artifacts::Gathered;
use transom_engine::Engine;

/// Ends a job; it is queued once more for the revision before the active one, if that is still to be pulled.
pub(super) fn after(components: &Components, job: Job, done: Box<Done>) -> Ran {
    if job.restoring != Restoring::Done || !job.lacks_before {
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
    job.gathered = Some(Gathered::default());
    Ran::Again(Box::new(job))
}

/// Restores it.
pub(super) fn restore(engine: &Engine, components: &Components, mut job: Job) -> Ran {
    let nothing = Gathered::default();
    let read = job.earlier.as_ref().unwrap_or(&nothing);
    let before = match before(engine, components, &job, read) {
        Ok(before) => before,
        Err(Unloaded::Slow) => {
            job = job.following();
            job.slow = true;
            return Ran::Again(Box::new(job));
        }
        Err(Unloaded::Refused(_)) => None,
    };
    if before.is_some() {
        keep_earlier(components, &job);
    }
    Ran::Before(Box::new(Before {
        policy: Arc::clone(&job.name),
        number: job.number,
        active: job.active().map(|active| active.id),
        before,
    }))
}
