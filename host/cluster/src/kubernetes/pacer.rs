//! Lets requests go at the pace of `core::share::pace`: makes them wait for room, and for the end of a pause. Never sends one.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, timeout_at};
use transom_core::share::pace::{Admission, Ending, Pace, Ticket};

/// The pace of one API server, shared by all that write to it.
pub(super) struct Pacer {
    pace: Mutex<Pace>,
    /// There may be room for one more.
    freed: Notify,
    start: Instant,
    seeds: RandomState,
    asked: AtomicU64,
}

/// The right to have one request go on; to be ended with what became of it.
pub(super) struct Permit<'a> {
    pacer: &'a Pacer,
    ticket: Option<Ticket>,
}

impl Pacer {
    /// Nothing goes on yet.
    pub(super) fn new() -> Self {
        Self {
            pace: Mutex::default(),
            freed: Notify::new(),
            start: Instant::now(),
            seeds: RandomState::new(),
            asked: AtomicU64::new(0),
        }
    }

    /// Waits until a request may start; nothing when that is not before the deadline.
    pub(super) async fn enter(&self, deadline: Instant) -> Option<Permit<'_>> {
        loop {
            let seed = self.seeds.hash_one(self.asked.fetch_add(1, Ordering::Relaxed));
            let (admission, room) = {
                let mut pace = self.pace();
                (pace.admit(self.now_ms(), seed), pace.has_room())
            };
            // Whoever is woken wakes the next one, so that none is left behind.
            if room {
                self.freed.notify_one();
            }
            match admission {
                Admission::Go(ticket) => return Some(Permit { pacer: self, ticket: Some(ticket) }),
                Admission::Full => timeout_at(deadline, self.freed.notified()).await.ok()?,
                Admission::Closed(left_ms) => {
                    let left = Duration::from_millis(left_ms);
                    if Instant::now() + left > deadline {
                        return None;
                    }
                    sleep(left).await;
                }
            }
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Permit<'_> {
    /// What became of the request.
    pub(super) fn end(mut self, ending: Ending) {
        self.give_back(ending);
    }

    fn give_back(&mut self, ending: Ending) {
        if let Some(ticket) = self.ticket.take() {
            self.pacer.pace().ended(ticket, ending, self.pacer.now_ms());
            self.pacer.freed.notify_one();
        }
    }
}

/// A request that was given up half-way is one that nobody answered.
impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.give_back(Ending::Lost);
    }
}
