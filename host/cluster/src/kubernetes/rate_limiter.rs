//! Delays requests according to `core::share::concurrency`: until there is room, and until a pause has ended.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, timeout_at};
use transom_core::share::concurrency::{Admission, ConcurrencyLimit, Ending, Ticket};

/// The limit on concurrent requests to one API server, shared by all writers.
pub(super) struct RateLimiter {
    limit: Mutex<ConcurrencyLimit>,
    /// Notified when there may be room for one more request.
    freed: Notify,
    start: Instant,
    seeds: RandomState,
    asked: AtomicU64,
}

/// Permission for one request; end it with the outcome of the request.
pub(super) struct Permit<'a> {
    limiter: &'a RateLimiter,
    ticket: Option<Ticket>,
}

impl RateLimiter {
    /// No request is under way yet.
    pub(super) fn new() -> Self {
        Self {
            limit: Mutex::default(),
            freed: Notify::new(),
            start: Instant::now(),
            seeds: RandomState::new(),
            asked: AtomicU64::new(0),
        }
    }

    /// Waits until a request may start; `None` if that is not before the deadline.
    pub(super) async fn enter(&self, deadline: Instant) -> Option<Permit<'_>> {
        loop {
            let seed = self
                .seeds
                .hash_one(self.asked.fetch_add(1, Ordering::Relaxed));
            let (admission, room) = {
                let mut limit = self.limit();
                (limit.admit(self.now_ms(), seed), limit.has_room())
            };
            // A woken waiter wakes the next one, so that none is left waiting while there is room.
            if room {
                self.freed.notify_one();
            }
            match admission {
                Admission::Go(ticket) => {
                    return Some(Permit {
                        limiter: self,
                        ticket: Some(ticket),
                    });
                }
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

    fn limit(&self) -> MutexGuard<'_, ConcurrencyLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Permit<'_> {
    /// Ends the request with its outcome.
    pub(super) fn end(mut self, ending: Ending) {
        self.give_back(ending);
    }

    fn give_back(&mut self, ending: Ending) {
        if let Some(ticket) = self.ticket.take() {
            self.limiter
                .limit()
                .ended(ticket, ending, self.limiter.now_ms());
            self.limiter.freed.notify_one();
        }
    }
}

/// A dropped permit counts as a request without an answer.
impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.give_back(Ending::Lost);
    }
}
