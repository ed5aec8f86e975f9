//! How the last reconcile of a primary ended.

use transom_api::{Reason, State};
use transom_core::report::{Awaits, End, Report};

/// The result of a reconcile, as far as the next one and the summary need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastResult {
    /// The uid of the primary, once it was read.
    pub(crate) uid: Box<str>,
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
    /// Whether it is tried again before its time, because something became readable. That attempt counts for the
    /// back-off as the one that it repeats.
    pub(crate) tried_early: bool,
    /// What it awaits, if it may succeed once something of the server can be read again.
    pub(crate) awaits: Option<Awaits>,
    /// Since when it is in this state for this reason, in seconds since 1970.
    pub(crate) since_seconds: i64,
    /// The same, as far as this process saw it: guests count from it.
    pub(crate) seen_since_seconds: i64,
    /// Whether this reconcile wrote something, or an earlier one of this process.
    pub(crate) wrote: bool,
}

impl LastResult {
    /// What a report says of the primary with this uid; empty when it was not read.
    pub(crate) fn of(report: &Report, uid: &str) -> Self {
        Self {
            uid: uid.into(),
            end: report.end,
            state: report.state,
            reason: report.reason.clone(),
            message: report.message.clone(),
            failures: report.failures,
            tried_early: false,
            awaits: report.awaits(),
            since_seconds: report.at_seconds,
            seen_since_seconds: report.at_seconds,
            wrote: !report.writes.is_empty(),
        }
    }

    /// Whether the state or the reason differs from an earlier result.
    pub(crate) fn differs(&self, before: &Self) -> bool {
        (self.state, &self.reason) != (before.state, &before.reason)
    }

    /// Whether it is that of another object of this name than the one with this uid.
    pub(crate) fn is_of_another(&self, uid: &str) -> bool {
        !uid.is_empty() && !self.uid.is_empty() && *self.uid != *uid
    }

    /// The same result, with the time of an earlier one of this object that has the same state and reason.
    pub(crate) fn after(mut self, before: Option<&Self>) -> Self {
        let same = before.filter(|before| !before.is_of_another(&self.uid));
        if let Some(before) = same.filter(|before| !self.differs(before)) {
            self.since_seconds = before.since_seconds;
            self.seen_since_seconds = before.seen_since_seconds;
        }
        if let Some(before) = before.filter(|_| self.uid.is_empty()) {
            self.uid = before.uid.clone();
        }
        self.wrote |= before.is_some_and(|before| before.wrote);
        self
    }
}

#[cfg(test)]
impl LastResult {
    /// The result of a first reconcile that ended like this at a time, in seconds since 1970.
    pub(crate) fn sample(end: End, reason: transom_api::KnownReason, at: i64) -> Self {
        Self {
            uid: Box::default(),
            end,
            state: end.state(),
            reason: reason.into(),
            message: String::new(),
            failures: 0,
            tried_early: false,
            awaits: None,
            since_seconds: at,
            seen_since_seconds: at,
            wrote: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_api::KnownReason;
    use transom_core::failure::Class;

    fn waiting(reason: KnownReason, at: i64) -> LastResult {
        LastResult::sample(End::Ended(Class::Waiting), reason, at)
    }

    #[test]
    fn a_time_of_an_earlier_process_is_told_to_people_and_not_to_guests() {
        let mut first = waiting(KnownReason::KindMissing, 100);
        // As the status has it.
        first.since_seconds = 5;
        let second = waiting(KnownReason::KindMissing, 110).after(Some(&first));
        assert_eq!((second.since_seconds, second.seen_since_seconds), (5, 100));
        let other = waiting(KnownReason::ReadFailed, 120).after(Some(&second));
        assert_eq!((other.since_seconds, other.seen_since_seconds), (120, 120));
    }

    #[test]
    fn an_object_made_anew_is_in_its_state_since_then_and_one_that_is_not_read_is_the_same() {
        let of = |uid: &str, at| {
            let mut result = waiting(KnownReason::KindMissing, at);
            result.uid = uid.into();
            result
        };
        let unread = of("", 110).after(Some(&of("1", 100)));
        assert_eq!((&*unread.uid, unread.since_seconds), ("1", 100));
        assert_eq!(of("1", 120).after(Some(&unread)).since_seconds, 100);
        let anew = of("2", 130).after(Some(&unread));
        assert_eq!((anew.since_seconds, anew.seen_since_seconds), (130, 130));
    }
}
