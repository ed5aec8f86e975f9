//! Health of the watches of a connection, for readiness and metrics.

use super::shared::Shared;
use transom_api::KnownReason;
use transom_core::watches::Scope;

/// Health of the watches of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Health of each watch.
    pub watches: Vec<WatchHealth>,
}

/// Health of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchHealth {
    /// What it requests.
    pub scope: Scope,
    /// Whether it was listed completely, with what is kept now.
    pub synced: bool,
    /// Why it cannot be followed now: reason and message.
    pub failure: Option<(KnownReason, String)>,
    /// How many objects it keeps.
    pub objects: usize,
    /// How often it ended early, since it is wanted.
    pub restarts: u64,
    /// Seconds since the last message of the API server, which sends one every minute.
    pub silent_seconds: u64,
}

impl Shared {
    /// Health of the watches.
    pub(super) fn health(&self) -> Health {
        let cache = self.cache();
        let watches = cache.watches.iter().map(|watched| WatchHealth {
            scope: watched.scope.as_ref().clone(),
            synced: watched.synced,
            failure: watched
                .failure
                .as_ref()
                .map(|fault| (fault.reason, fault.message.clone())),
            objects: watched.store.len(),
            restarts: watched.restarts,
            silent_seconds: watched.last_word.elapsed().as_secs(),
        });
        Health {
            watches: watches.collect(),
        }
    }
}
