//! How the watches of a connection do, for readiness and metrics. Never names an object.

use super::shared::Shared;
use transom_api::Word;
use transom_core::watches::Scope;

/// How the watches of a connection do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Each watch.
    pub watches: Vec<WatchHealth>,
}

/// How one watch does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchHealth {
    /// What it asks for.
    pub scope: Scope,
    /// Whether everything was listed once, with what is kept now.
    pub synced: bool,
    /// Why it cannot be followed now, and what is wrong.
    pub failure: Option<(Word, String)>,
    /// Objects kept.
    pub objects: usize,
    /// How often it stopped before its time, since it is wanted.
    pub restarts: u64,
    /// Seconds since the API server last said something; it says something every minute.
    pub silent_seconds: u64,
}

impl Shared {
    /// How the watches do.
    pub(super) fn health(&self) -> Health {
        let cache = self.cache();
        let watches = cache.watches.iter().map(|watched| WatchHealth {
            scope: watched.scope.as_ref().clone(),
            synced: watched.synced,
            failure: watched.failure.as_ref().map(|fault| (fault.reason, fault.message.clone())),
            objects: watched.shelf.len(),
            restarts: watched.restarts,
            silent_seconds: watched.last_word.elapsed().as_secs(),
        });
        Health { watches: watches.collect() }
    }
}
