//! One watch and its objects, as the cache holds them.

use super::feed::News;
use super::store::{Fault, Store};
use std::sync::Arc;
use std::time::Instant;
use transom_api::KnownReason;
use transom_core::watches::{Keep, Scope};

/// One watch and its objects.
pub(super) struct Watched {
    /// Number of the watch. Events of an earlier watch with the same scope are ignored.
    pub(super) number: u64,
    /// What is requested.
    pub(super) scope: Arc<Scope>,
    /// What is kept of each object.
    pub(super) keep: Keep,
    /// The objects.
    pub(super) store: Store,
    /// Whether it was listed completely, with what is kept now.
    pub(super) synced: bool,
    /// News of its first list, held back until the list ends, so that a listener that is told of one object finds all
    /// of them in the cache.
    pub(super) untold: Vec<News>,
    /// Why it cannot be followed now.
    pub(super) failure: Option<Fault>,
    /// Whether `failure` only says that the API server has not answered since the start. Void once it has answered.
    pub(super) away: bool,
    /// How often it ended early.
    pub(super) restarts: u64,
    /// When the API server last sent something.
    pub(super) last_word: Instant,
}

impl Watched {
    /// A watch that was not listed yet.
    pub(super) fn new(number: u64, scope: Arc<Scope>, keep: Keep) -> Self {
        Self {
            number,
            scope,
            keep,
            store: Store::default(),
            synced: false,
            untold: Vec::new(),
            failure: None,
            away: false,
            restarts: 0,
            last_word: Instant::now(),
        }
    }

    /// Whether it was listed completely, or is known to be unreadable; `answers` if the API server has answered since
    /// the start.
    pub(super) fn is_settled(&self, answers: bool) -> bool {
        self.synced || self.failure.is_some() && !(answers && self.away)
    }

    /// Whether its scope has no selector, so that it covers every object with a name of its scope.
    pub(super) fn is_whole(&self) -> bool {
        self.scope.fields.is_none() && self.scope.labels.is_none()
    }

    /// Whether an object of the scope does not exist if it is not in the store.
    pub(super) fn knows_all(&self) -> bool {
        self.synced && self.is_whole() || self.is_missing()
    }

    /// Whether its kind is not served and the store is empty: then there are no objects.
    pub(super) fn is_missing(&self) -> bool {
        let missing = |fault: &Fault| fault.reason == KnownReason::KindMissing;
        self.failure.as_ref().is_some_and(missing) && self.store.len() == 0
    }
}
