//! Whether this replica leads, for writers. Sends no request: leadership is a time until which it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;
use transom_api::KnownReason;

/// Until when this replica leads, by two clocks: the monotonic clock may stop while the machine sleeps, and the wall
/// clock may be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Until {
    pub(super) monotonic: Instant,
    pub(super) wall: SystemTime,
    /// From when another replica may lead.
    pub(super) others_from: Instant,
}

/// Why the Lease cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: KnownReason,
    /// What was attempted, and why it failed.
    pub message: String,
}

/// What a candidate publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) until: Option<Until>,
    pub(super) holder: Option<String>,
    pub(super) trouble: Option<Trouble>,
}

/// Whether this replica leads. Cheap to clone and to query; query it before each write.
#[derive(Clone, Debug)]
pub struct Leading {
    /// `None` where there is no election.
    told: Option<watch::Receiver<Told>>,
    stopped: Arc<AtomicBool>,
}

/// The sending end for the candidate, and the handle for writers.
pub(super) fn channel() -> (watch::Sender<Told>, Leading) {
    let (tell, told) = watch::channel(Told::default());
    (
        tell,
        Leading {
            told: Some(told),
            stopped: Arc::default(),
        },
    )
}

impl Leading {
    /// Always leads: for an agent without an election.
    pub fn always() -> Self {
        Self {
            told: None,
            stopped: Arc::default(),
        }
    }

    /// Whether writing is allowed now.
    pub fn leads(&self) -> bool {
        let Some(told) = &self.told else { return true };
        let until = told.borrow().until;
        let in_time =
            |until: Until| Instant::now() < until.monotonic && SystemTime::now() < until.wall;
        until.is_some_and(in_time) && !self.stopped.load(Ordering::SeqCst)
    }

    /// How long a request that is sent now may take, so that it ends before another replica may lead.
    pub fn left(&self) -> Duration {
        let Some(told) = &self.told else {
            return Duration::MAX;
        };
        let until = told.borrow().until;
        until.map_or(Duration::ZERO, |until| {
            until.others_from.saturating_duration_since(Instant::now())
        })
    }

    /// Waits until this replica leads; forever once its candidate has ended.
    pub async fn gained(&mut self) {
        while !self.leads() {
            self.changed().await;
        }
    }

    /// Waits until this replica does not lead.
    pub async fn lost(&mut self) {
        while self.leads() {
            let until = self.told.as_ref().and_then(|told| told.borrow().until);
            match until {
                None => std::future::pending().await,
                Some(until) => {
                    let end = tokio::time::sleep_until(until.monotonic.into());
                    tokio::select! {
                        () = end => {}
                        () = self.changed() => {}
                    }
                }
            }
        }
    }

    /// Waits until the holder, the end of the leadership or the trouble changes.
    pub async fn changed(&mut self) {
        let ended = match &mut self.told {
            None => true,
            Some(told) => told.changed().await.is_err(),
        };
        if ended {
            std::future::pending::<()>().await;
        }
    }

    /// The holder of the lease as last seen: the name of a replica, `_`, and an identifier of its process.
    pub fn holder(&self) -> Option<String> {
        self.told.as_ref()?.borrow().holder.clone()
    }

    /// Why the Lease cannot be read or written now.
    pub fn trouble(&self) -> Option<Trouble> {
        self.told.as_ref()?.borrow().trouble.clone()
    }

    /// Ends the leadership for all clones at once.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}
