//! One watch and its objects, as the cache holds them. Never looks at another watch.

use super::feed::News;
use super::shelf::{Fault, Shelf};
use std::sync::Arc;
use std::time::Instant;
use transom_api::Word;
use transom_core::watches::{Keep, Scope};

/// One watch and its objects.
pub(super) struct Watched {
    /// Number of the watch: what an earlier one with the same scope still says is not heard.
    pub(super) number: u64,
    /// What is asked for.
    pub(super) scope: Arc<Scope>,
    /// What is kept.
    pub(super) keep: Keep,
    /// The objects.
    pub(super) shelf: Shelf,
    /// Whether it was listed whole, with what is kept now.
    pub(super) synced: bool,
    /// What its first whole list named so far: told together once the list ends, so that whoever hears of one object finds
    /// all of them in the cache.
    pub(super) untold: Vec<News>,
    /// Why it cannot be followed now.
    pub(super) failure: Option<Fault>,
    /// Whether that is because the API server has not answered since the start; once it answers that is no reason.
    pub(super) away: bool,
    /// How often it was begun again before its time.
    pub(super) restarts: u64,
    /// When the API server last said something.
    pub(super) last_word: Instant,
}

impl Watched {
    /// One that knows nothing yet.
    pub(super) fn new(number: u64, scope: Arc<Scope>, keep: Keep) -> Self {
        Self {
            number,
            scope,
            keep,
            shelf: Shelf::default(),
            synced: false,
            untold: Vec::new(),
            failure: None,
            away: false,
            restarts: 0,
            last_word: Instant::now(),
        }
    }

    /// Whether it was listed whole, or is known not to be readable; `answers` when its API server has answered.
    pub(super) fn is_settled(&self, answers: bool) -> bool {
        self.synced || self.failure.is_some() && !(answers && self.away)
    }

    /// Whether it is told of every object with a name of its scope.
    pub(super) fn is_whole(&self) -> bool {
        self.scope.fields.is_none() && self.scope.labels.is_none()
    }

    /// Whether an object of the scope that is not on the shelf is not there at all.
    pub(super) fn knows_all(&self) -> bool {
        self.synced && self.is_whole() || self.is_missing()
    }

    /// Whether its kind is not served and none of its objects was ever seen: then there are none.
    pub(super) fn is_missing(&self) -> bool {
        let missing = |fault: &Fault| fault.reason == Word::KindMissing;
        self.failure.as_ref().is_some_and(missing) && self.shelf.len() == 0
    }
}
