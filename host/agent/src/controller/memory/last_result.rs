//! How the last reconcile of a primary ended.

use transom_api::{Reason, State};
use transom_core::report::{End, Report};

/// The result of a reconcile, as far as the next one and the summary need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastResult {
    /// How it ended.
    pub(crate) end: End,
    /// The state.
    pub(crate) state: State,
    /// Why.
    pub(crate) reason: Reason,
    /// For people.
    pub(crate) message: String,
    /// How many reconciles in a row failed.
    pub(crate) failures: u32,
    /// Since when it is in this state for this reason, in seconds since 1970.
    pub(crate) since_seconds: i64,
    /// Whether this reconcile wrote something, or an earlier one of this process.
    pub(crate) wrote: bool,
}

impl LastResult {
    /// What a report says.
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            end: report.end,
            state: report.state,
            reason: report.reason.clone(),
            message: report.message.clone(),
            failures: report.failures,
            since_seconds: report.at_seconds,
            wrote: !report.writes.is_empty(),
        }
    }

    /// Whether the state or the reason differs from an earlier result.
    pub(crate) fn differs(&self, before: &Self) -> bool {
        (self.state, &self.reason) != (before.state, &before.reason)
    }

    /// The same result, with the time of an earlier one that has the same state and reason.
    pub(crate) fn after(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| !self.differs(before)) {
            self.since_seconds = before.since_seconds;
        }
        self.wrote |= before.is_some_and(|before| before.wrote);
        self
    }
}
