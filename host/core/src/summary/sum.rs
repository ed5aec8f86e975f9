//! What the results of all primaries of a policy add up to: counts, groups of one state and reason, the worst of them.
//! Added one by one, so that nobody holds all results still meanwhile.

use super::{cut, holds, said};
use crate::failure::failing::FailingSince;
use crate::reference::ObjectRef;
use crate::time::format_rfc3339;
use std::collections::BTreeMap;
use transom_api::status::{
    Condition, ConditionStatus, ConditionType, LimitsStatus, MAX_LISTED, MAX_TOP_FAILURES,
    PrimaryCounts, PrimaryStatus, WaitingStatus,
};
use transom_api::{KnownReason, Reason, State};

/// How long a primary waits for a reason that its guest declared when nothing is wrong, in seconds.
const DECLARED_WAITING: u32 = 900;
/// How long a guest holds a primary when nothing is wrong, in seconds: installing a cluster takes that long.
const DECLARED_HELD: u32 = 3_600;
/// The reason of a guest that holds what its user paused, as the trigger guest does for `spec.pausedUntil`.
const PAUSED: &str = "PrimaryPaused";
/// What a limit withholds is more urgent than any failure.
const STOPPED: (State, Reason) = (State::Held, Reason::Known(KnownReason::LimitReached));
/// How many reasons a message counts.
const COUNTED: usize = 3;

/// The result of one primary's last reconcile.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The primary.
    pub primary: &'a ObjectRef,
    /// Its state.
    pub state: State,
    /// Why.
    pub reason: &'a Reason,
    /// For people.
    pub message: &'a str,
    /// Since when it is in this state for this reason, in seconds since 1970.
    pub since_seconds: i64,
    /// Since when its guest fails by its own fault, if it does.
    pub failing: Option<FailingSince>,
}

impl Standing<'_> {
    /// The primary as a status names it.
    fn shown(&self) -> PrimaryStatus {
        let failing = self.failing;
        PrimaryStatus {
            namespace: self.primary.namespace.clone(),
            name: self.primary.name.clone(),
            state: self.state,
            reason: self.reason.to_string(),
            message: cut(self.message),
            since: format_rfc3339(self.since_seconds),
            failing_since: failing.map(|at| format_rfc3339(at.since_seconds)),
            expires: failing
                .and_then(|at| at.expires_seconds)
                .map(format_rfc3339),
        }
    }
}

/// How long a state lasts for a reason when nothing is wrong, in seconds; `None` when it may last for any time.
pub fn expected_seconds(state: State, reason: &Reason) -> Option<u32> {
    match (state, reason) {
        (State::Applied | State::Failed, _) => None,
        (_, Reason::Known(KnownReason::InputTerminating)) => Some(300),
        (_, Reason::Known(KnownReason::OwnershipPending)) => Some(120),
        (_, Reason::Known(KnownReason::OwnedByAnother)) => Some(600),
        (_, Reason::Known(KnownReason::StillNeeded)) => Some(1_800),
        // A user or an operator ordered this, for an unknown time.
        (State::Held, Reason::Known(_)) => None,
        (State::Held, Reason::Declared(word)) if **word == *PAUSED => None,
        (State::Held, Reason::Declared(_)) => Some(DECLARED_HELD),
        (State::Waiting, _) => Some(DECLARED_WAITING),
    }
}

/// Whether a primary has been in its state for longer than that takes when nothing is wrong.
pub fn is_overdue(state: State, reason: &Reason, since_seconds: i64, now_seconds: i64) -> bool {
    let waits = now_seconds.saturating_sub(since_seconds);
    expected_seconds(state, reason).is_some_and(|expected| waits > i64::from(expected))
}

/// Primaries of one state and reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateGroup {
    pub(super) count: u32,
    overdue: u32,
    since_seconds: i64,
}

/// The totals of the primaries, added one by one.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    now_seconds: i64,
    counts: PrimaryCounts,
    groups: BTreeMap<(State, Reason), StateGroup>,
    /// The worst so far, in order; at most as many as are shown.
    top_failures: BTreeMap<(bool, i64, ObjectRef), PrimaryStatus>,
}

impl Sum {
    /// Nothing yet, at a time in seconds since 1970.
    pub fn new(now_seconds: i64) -> Self {
        Self {
            now_seconds,
            ..Self::default()
        }
    }

    /// Adds a primary. Copies nothing of one that is right.
    pub fn add(&mut self, standing: Standing<'_>) {
        let Standing {
            primary,
            state,
            reason,
            since_seconds,
            ..
        } = standing;
        let counts = &mut self.counts;
        let of_state = match state {
            State::Applied => &mut counts.applied,
            State::Held => &mut counts.held,
            State::Waiting => &mut counts.waiting,
            State::Failed => &mut counts.failed,
        };
        *of_state = of_state.saturating_add(1);
        counts.total = counts.total.saturating_add(1);
        if state == State::Applied {
            return;
        }
        let overdue = is_overdue(state, reason, since_seconds, self.now_seconds);
        let group = self.groups.entry((state, reason.clone()));
        let group = group.or_insert(StateGroup {
            since_seconds,
            ..StateGroup::default()
        });
        group.count = group.count.saturating_add(1);
        group.overdue = group.overdue.saturating_add(u32::from(overdue));
        group.since_seconds = group.since_seconds.min(since_seconds);
        if state == State::Failed || overdue {
            let rank = (state != State::Failed, since_seconds, primary);
            self.rank(rank, standing);
        }
    }

    /// Keeps one that is among the worst.
    fn rank(&mut self, rank: (bool, i64, &ObjectRef), standing: Standing<'_>) {
        let is_full = self.top_failures.len() >= MAX_TOP_FAILURES;
        let last = self.top_failures.last_key_value();
        let behind =
            last.is_some_and(|((late, since, primary), _)| (*late, *since, primary) < rank);
        if is_full && behind {
            return;
        }
        let (late, since, primary) = rank;
        let rank = (late, since, primary.clone());
        self.top_failures.insert(rank, standing.shown());
        if self.top_failures.len() > MAX_TOP_FAILURES {
            self.top_failures.pop_last();
        }
    }

    /// How many are in each state.
    pub(super) fn counts(&self) -> PrimaryCounts {
        self.counts
    }

    /// Failed primaries first, then overdue ones; in each group, the longest first.
    pub(super) fn top_failures(&self) -> Vec<PrimaryStatus> {
        self.top_failures.values().cloned().collect()
    }

    /// The groups of these states, the largest first.
    pub(super) fn largest(&self, states: &[State]) -> Vec<(State, &Reason, StateGroup)> {
        let groups = self.groups.iter();
        let mut groups: Vec<_> = groups
            .filter(|((state, _), _)| states.contains(state))
            .map(|((state, reason), group)| (*state, reason, *group))
            .collect();
        groups.sort_by_key(|(_, _, group)| std::cmp::Reverse(group.count));
        groups
    }

    pub(super) fn waiting(&self) -> Vec<WaitingStatus> {
        let shown = |(state, reason, group): (State, &Reason, StateGroup)| WaitingStatus {
            state,
            reason: reason.to_string(),
            count: group.count,
            since: format_rfc3339(group.since_seconds),
            expected_seconds: expected_seconds(state, reason),
            overdue: group.overdue,
        };
        self.largest(&[State::Held, State::Waiting])
            .into_iter()
            .take(MAX_LISTED)
            .map(shown)
            .collect()
    }

    /// A limit withholds changes.
    pub(super) fn stopped(&self, limits: &LimitsStatus) -> Condition {
        let message = format!(
            "{} withheld by spec.limits: {}; see status.limits. {}",
            limits.withheld,
            limits.reached(),
            self.healthy().message
        );
        let reason = KnownReason::LimitReached.as_str();
        said(
            ConditionType::Healthy,
            ConditionStatus::False,
            reason,
            message,
        )
    }

    pub(super) fn healthy(&self) -> Condition {
        let mut groups = self.largest(&[State::Failed]);
        if groups.is_empty() {
            groups = self.largest(&[State::Held, State::Waiting]);
        }
        let PrimaryCounts {
            total,
            applied,
            held,
            waiting,
            failed,
        } = self.counts;
        let mut message = format!(
            "{applied} of {total} applied, {held} held, {waiting} waiting, {failed} failed"
        );
        for (at, (_, reason, group)) in groups.iter().take(COUNTED).enumerate() {
            message.push_str(if at == 0 { ": " } else { ", " });
            message.push_str(&format!("{} {reason}", group.count));
        }
        let is_stopped = self.groups.contains_key(&STOPPED);
        let reason = match groups.first() {
            _ if is_stopped => KnownReason::LimitReached.as_str(),
            Some((_, reason, _)) => reason.as_str(),
            None => KnownReason::InSync.as_str(),
        };
        let is_healthy = failed == 0 && !is_stopped;
        said(ConditionType::Healthy, holds(is_healthy), reason, message)
    }
}
