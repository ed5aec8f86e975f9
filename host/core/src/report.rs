//! The result of one reconcile: state, reason, message, and when to reconcile again.

use crate::backoff;
use crate::failure::failing::FailingSince;
use crate::failure::{Class, Failure};
use crate::plan::{Outcome, StepOutcome, WriteKind};
use crate::redact::visible::visible;
use crate::reference::ObjectRef;
use crate::work::Key;
use transom_api::{KnownReason, Reason, State};

/// The shortest delay until a time that a guest asked for, in milliseconds, as in the contract: a time in the past,
/// or always the next second, must not keep the agent busy.
const SHORTEST_MS: u64 = 5_000;
/// How often the back-off after a conflict doubles: up to four seconds.
const CONFLICTS: u32 = 2;
/// How often the back-off doubles for a missing namespace or an object that is being deleted: up to half a minute,
/// because no event reports when it appears or is gone.
const UNTOLD: u32 = 5;
/// How soon an object of another owner is read again, in seconds: if at most its name is watched, no event reports when
/// it is deleted or released.
const FOREIGN_SECONDS: u32 = 270;

/// How a reconcile ended; the host acts by this. A guest cannot set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is in sync.
    InSync,
    /// The primary is gone, and so is everything that was made for it: nothing is left to reconcile.
    Gone,
    /// It ended in another way; the host reacts to the class.
    Ended(Class),
}

impl End {
    /// The state of a primary whose reconcile ended like this.
    pub fn state(self) -> State {
        match self {
            Self::InSync | Self::Gone => State::Applied,
            Self::Ended(class) => class.state(),
        }
    }

    /// The reason of an end that is not a failure.
    fn reason(self) -> KnownReason {
        if self == Self::Gone {
            KnownReason::SourceDeleted
        } else {
            KnownReason::InSync
        }
    }
}

/// The result of every reconcile, success or failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Name of the policy.
    pub policy: String,
    /// The primary.
    pub primary: ObjectRef,
    /// How it ended; the host acts by this.
    pub end: End,
    /// Its state under the policy, which follows from the end.
    pub state: State,
    /// Why, for people and counters; the host does not act by it.
    pub reason: Reason,
    /// For people: what is wrong, or what was done.
    pub message: String,
    /// The target, when it is known.
    pub target: Option<ObjectRef>,
    /// What was written by this reconcile.
    pub writes: Vec<(WriteKind, ObjectRef)>,
    /// Digest of the inputs that were reconciled, when they were gathered.
    pub inputs: Option<String>,
    /// Since when the guest fails for it by its own fault, if it does.
    pub failing: Option<FailingSince>,
    /// Generation of the primary that was reconciled, when it has one.
    pub observed_generation: Option<i64>,
    /// When this was found, in seconds since 1970.
    pub at_seconds: i64,
    /// When time alone starts the next reconcile, in milliseconds from now: a retry, or the time that a guest asked
    /// for.
    pub again_after_ms: Option<u64>,
    /// When the next resync is due, in milliseconds from now, whatever happens before.
    pub resync_after_ms: Option<u64>,
    /// Failures in a row that are retried, this one included; 0 after any other end.
    pub failures: u32,
}

/// What a failed reconcile awaits of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// The server did not answer, or could not say whether an object is gone.
    Answer,
    /// The server refused. It may have just started and known no roles, no webhook, or not every kind; or it goes on
    /// refusing.
    Acceptance,
}

impl Awaits {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Answer, Self::Acceptance];
}

impl Report {
    /// What the reconcile awaits, if it may succeed once the API server can be read again.
    pub fn awaits(&self) -> Option<Awaits> {
        use KnownReason::{AdmissionRefused, KindMissing, WriteFailed, WriteForbidden};
        match self.reason {
            Reason::Known(AdmissionRefused | KindMissing | WriteFailed | WriteForbidden) => {
                Some(Awaits::Acceptance)
            }
            _ => (self.end == End::Ended(Class::Unreachable)).then_some(Awaits::Answer),
        }
    }

    /// Whether it is a conflict that was not retried yet: an ordinary event, settled at once.
    pub fn is_first_conflict(&self) -> bool {
        self.end == End::Ended(Class::Conflict) && self.failures <= 1
    }
}

/// What was known when the reconcile ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconcile {
    /// What was reconciled.
    pub key: Key,
    /// The target, when it is known.
    pub target: Option<ObjectRef>,
    /// Digest of the inputs, when they were gathered.
    pub inputs: Option<String>,
    /// `metadata.generation` of the primary, when it has one.
    pub observed_generation: Option<i64>,
    /// Since when the guest fails for it by its own fault, if it does.
    pub failing: Option<FailingSince>,
    /// Whether the guest got another failed write as input than the current one, so that it is asked again soon.
    pub told_otherwise: bool,
    /// When time alone may change the answer, in seconds since 1970: however the reconcile ends.
    pub ask_again_at: Option<i64>,
}

impl Reconcile {
    /// A reconcile that has read nothing yet.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            target: None,
            inputs: None,
            observed_generation: None,
            failing: None,
            told_otherwise: false,
            ask_again_at: None,
        }
    }
}

/// A reconcile that ran to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Success {
    /// Whether the primary is gone, so that this reconcile dealt with what is left of it.
    pub gone: bool,
    /// The result of the plan.
    pub outcome: Outcome,
    /// `StillNeeded`, when something could not be pruned yet.
    pub kept: Option<Failure>,
}

/// What the delay to the next reconcile depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Seconds since 1970.
    pub now_seconds: i64,
    /// The policy's setting.
    pub resync_seconds: u32,
    /// [`Report::failures`] of the report before this one.
    pub failures: u32,
    /// Whether that one only waited: then the first retry of a failure is as soon as without it.
    pub waited: bool,
    /// Spreads back-off and resync; the same seed gives the same times.
    pub seed: u64,
}

/// The report of a reconcile.
pub fn of(reconcile: Reconcile, result: Result<Success, Failure>, schedule: Schedule) -> Report {
    let (outcome, end) = match result {
        Ok(success) => {
            let end = ending(&success);
            (success.outcome, end)
        }
        Err(failure) => (Outcome::default(), failed(failure)),
    };
    let writes = outcome.steps.into_iter().filter(StepOutcome::has_written);
    let (failures, retry_ms) = retry(&end, schedule);
    let resync_after_ms = end
        .resynced()
        .then(|| backoff::resync_ms(schedule.resync_seconds, schedule.seed))
        .flatten();
    let until = |at| until_ms(at, schedule.now_seconds);
    let told = reconcile.ask_again_at.filter(|_| end.asks_again());
    // A time that is over or near does not shorten a back-off.
    let told = told
        .map(until)
        .map(|after| after.max(retry_ms.unwrap_or_default()));
    let asked_ms = [end.ask_again_at.map(until), told]
        .into_iter()
        .flatten()
        .min();
    let told_ms = reconcile.told_otherwise.then_some(SHORTEST_MS);
    let is_foreign = end.reason == KnownReason::TargetNotOwned.into();
    let foreign_ms = is_foreign.then(|| backoff::resync_ms(FOREIGN_SECONDS, schedule.seed));
    let waits = [retry_ms, asked_ms, told_ms, foreign_ms.flatten()];
    Report {
        policy: reconcile.key.policy.to_string(),
        primary: (*reconcile.key.primary).clone(),
        end: end.end,
        state: end.end.state(),
        reason: end.reason,
        message: visible(&end.message).into_owned(),
        target: reconcile.target,
        writes: writes.map(|step| (step.kind, step.target)).collect(),
        inputs: reconcile.inputs,
        failing: reconcile.failing,
        observed_generation: reconcile.observed_generation,
        at_seconds: schedule.now_seconds,
        again_after_ms: waits.into_iter().flatten().min(),
        resync_after_ms,
        failures,
    }
}

/// How a reconcile ended, before it becomes a report.
struct Ending {
    end: End,
    reason: Reason,
    message: String,
    ask_again_at: Option<i64>,
}

impl Ending {
    /// Whether the primary is resynced.
    fn resynced(&self) -> bool {
        !matches!(self.end, End::Gone | End::Ended(Class::Left))
    }

    /// Whether a time that a guest asked for counts: not for an object that is no longer a primary, nor on a replica
    /// that does not lead.
    fn asks_again(&self) -> bool {
        !matches!(self.end, End::Ended(Class::Left | Class::Standby))
    }
}

fn failed(failure: Failure) -> Ending {
    let Failure {
        class,
        reason,
        message,
        ask_again_at,
        ..
    } = failure;
    Ending {
        end: End::Ended(class),
        reason,
        message,
        ask_again_at,
    }
}

/// A failed write fails the reconcile; an output that cannot be pruned yet makes it wait.
fn ending(success: &Success) -> Ending {
    if let Some((_, failure)) = success.outcome.failure() {
        return failed(Failure::known(failure.reason, failure.message.as_str()));
    }
    if let Some(stopped) = &success.outcome.stopped {
        return failed(stopped.clone());
    }
    if let Some(kept) = &success.kept {
        return failed(kept.clone());
    }
    let end = if success.gone { End::Gone } else { End::InSync };
    Ending {
        end,
        reason: end.reason().into(),
        message: told(&success.outcome),
        ask_again_at: None,
    }
}

/// The writes that were done, in one line.
fn told(outcome: &Outcome) -> String {
    let done: Vec<String> = outcome
        .steps
        .iter()
        .map(|step| format!("{} {}", step.kind.past(), step.target))
        .collect();
    if done.is_empty() {
        "nothing to do".to_owned()
    } else {
        done.join(", ")
    }
}

/// Failures in a row, and the delay before the retry: none after the first conflict, back-off for the rest. The
/// back-off of conflicts stays short: the other writer's change was read already, so no event tells when that writer
/// has stopped.
fn retry(end: &Ending, schedule: Schedule) -> (u32, Option<u64>) {
    let waits = end.end.state() == State::Waiting;
    let failures = match schedule.waited && !waits {
        true => 0,
        false => schedule.failures,
    };
    let seed = schedule.seed;
    let most = match end.reason {
        Reason::Known(KnownReason::TargetNamespaceMissing | KnownReason::InputTerminating) => {
            UNTOLD
        }
        _ => u32::MAX,
    };
    let delay = match end.end {
        End::Ended(Class::Missing | Class::Unreachable) => {
            Some(backoff::delay_ms(failures.min(most), seed))
        }
        End::Ended(Class::Conflict) => Some(
            failures
                .checked_sub(1)
                .map_or(0, |again| backoff::delay_ms(again.min(CONFLICTS), seed)),
        ),
        // No event reports when a namespace, or an object without a watch, is gone.
        End::Ended(Class::Waiting) if end.reason == KnownReason::InputTerminating.into() => {
            Some(backoff::delay_ms(failures.min(most), seed))
        }
        End::InSync | End::Gone | End::Ended(_) => None,
    };
    (delay.map_or(0, |_| failures.saturating_add(1)), delay)
}

fn until_ms(at_seconds: i64, now_seconds: i64) -> u64 {
    u64::try_from(at_seconds.saturating_sub(now_seconds))
        .unwrap_or_default()
        .saturating_mul(1_000)
        .max(SHORTEST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::kept::Kept;
    use crate::plan::{StepOutcome, WriteFailure};
    use crate::sample::{key, target};

    const NOW: i64 = 1_000;

    fn report(result: Result<Success, Failure>, failures: u32) -> Report {
        let reconcile = Reconcile {
            key: key("demo"),
            target: Some(target("demo")),
            inputs: None,
            observed_generation: Some(3),
            told_otherwise: false,
            ask_again_at: None,
            failing: None,
        };
        of(
            reconcile,
            result,
            Schedule {
                now_seconds: NOW,
                resync_seconds: 0,
                failures,
                waited: false,
                seed: 7,
            },
        )
    }

    fn success(results: &[Result<(), KnownReason>]) -> Success {
        let step = |result: &Result<(), KnownReason>| StepOutcome {
            target: target("demo"),
            kind: WriteKind::Create,
            part: None,
            result: result.map_err(|reason| WriteFailure {
                reason,
                message: "disk full".to_owned(),
            }),
            left: None,
            kept: Kept::default(),
        };
        let outcome = Outcome {
            steps: results.iter().map(step).collect(),
            stopped: None,
        };
        Success {
            gone: false,
            outcome,
            kept: None,
        }
    }

    fn failure(word: KnownReason) -> Result<Success, Failure> {
        Err(Failure::known(word, "m"))
    }

    fn seen(report: &Report) -> (State, &str, u32) {
        (report.state, report.reason.as_str(), report.failures)
    }

    #[test]
    fn every_outcome_has_its_state_and_next_run() {
        use KnownReason::{
            GuestTrapped, KubeconfigEmpty, OwnedByAnother, ReadFailed, Suspended, WriteConflict,
            WriteFailed,
        };
        let first = backoff::delay_ms(0, 7);
        let write = |word| Ok(success(&[Err(word)]));
        for (result, end, again) in [
            (Ok(success(&[])), (State::Applied, "InSync", 0), None),
            (
                write(WriteFailed),
                (State::Failed, "WriteFailed", 1),
                Some(first),
            ),
            (
                write(WriteConflict),
                (State::Failed, "WriteConflict", 1),
                Some(0),
            ),
            (failure(Suspended), (State::Held, "Suspended", 0), None),
            (
                failure(OwnedByAnother),
                (State::Waiting, "OwnedByAnother", 0),
                None,
            ),
            (
                failure(ReadFailed),
                (State::Failed, "ReadFailed", 1),
                Some(first),
            ),
            (
                failure(KubeconfigEmpty),
                (State::Failed, "KubeconfigEmpty", 0),
                None,
            ),
            (
                failure(GuestTrapped),
                (State::Failed, "GuestTrapped", 0),
                None,
            ),
        ] {
            let report = report(result.clone(), 0);
            assert_eq!(
                (seen(&report), report.again_after_ms),
                (end, again),
                "{result:?}"
            );
            assert_eq!(
                (report.at_seconds, report.observed_generation),
                (NOW, Some(3))
            );
        }
    }

    #[test]
    fn an_object_of_others_is_looked_at_again_within_five_minutes() {
        let mut kept = success(&[]);
        kept.kept = Some(Failure::known(KnownReason::TargetNotOwned, "m"));
        for result in [failure(KnownReason::TargetNotOwned), Ok(kept.clone())] {
            let again = report(result, 3);
            assert!(
                again.again_after_ms.is_some_and(|ms| ms <= 300_000),
                "{again:?}"
            );
            assert_eq!((again.state, again.failures), (State::Failed, 0));
        }
    }

    #[test]
    fn what_a_server_refuses_that_has_just_started_awaits_it_too() {
        use KnownReason::{AdmissionRefused, KindMissing, QuotaExceeded, ServerUnavailable};
        use KnownReason::{WriteFailed, WriteForbidden};
        let awaits = |reason| report(failure(reason), 0).awaits();
        for reason in [AdmissionRefused, KindMissing, WriteFailed, WriteForbidden] {
            assert_eq!(awaits(reason), Some(Awaits::Acceptance), "{reason:?}");
        }
        assert_eq!(awaits(ServerUnavailable), Some(Awaits::Answer));
        assert_eq!(awaits(QuotaExceeded), None);
        assert_eq!(report(Ok(success(&[])), 0).awaits(), None);
    }

    #[test]
    fn what_is_being_deleted_is_looked_at_again_with_back_off() {
        use KnownReason::InputTerminating;
        let write = || Ok(success(&[Err(InputTerminating)]));
        for (result, failures) in [(write(), 0), (write(), 6), (failure(InputTerminating), 50)] {
            let report = report(result, failures);
            let again = Some(backoff::delay_ms(failures.min(UNTOLD), 7));
            assert_eq!(
                (report.state, report.again_after_ms),
                (State::Waiting, again)
            );
            assert_eq!(report.failures, failures + 1);
        }
    }

    #[test]
    fn a_failure_after_a_wait_is_retried_as_soon_as_the_first_one() {
        let after = |waited, word| {
            let schedule = Schedule {
                now_seconds: NOW,
                resync_seconds: 0,
                failures: 6,
                waited,
                seed: 7,
            };
            let report = of(
                Reconcile::new(key("demo")),
                Err(failure(word).unwrap_err()),
                schedule,
            );
            (report.again_after_ms, report.failures)
        };
        use KnownReason::{InputTerminating, ReadForbidden, WriteForbidden};
        for refused in [ReadForbidden, WriteForbidden] {
            assert_eq!(after(true, refused), (Some(backoff::delay_ms(0, 7)), 1));
            assert_eq!(after(false, refused), (Some(backoff::delay_ms(6, 7)), 7));
        }
        // A wait goes on as before.
        let goes_on = (Some(backoff::delay_ms(UNTOLD, 7)), 7);
        assert_eq!(after(true, InputTerminating), goes_on);
    }

    #[test]
    fn repeated_failures_back_off_and_any_other_outcome_resets() {
        let again = |word, failures| report(failure(word), failures).again_after_ms;
        assert_eq!(
            again(KnownReason::ReadFailed, 4),
            Some(backoff::delay_ms(4, 7))
        );
        for (failures, before) in [(1, 0), (3, 2), (4, 2), (50, 2)] {
            assert_eq!(
                again(KnownReason::WriteConflict, failures),
                Some(backoff::delay_ms(before, 7))
            );
        }
        for (failures, before) in [(0, 0), (4, 4), (5, 5), (6, 5), (50, 5)] {
            let again = again(KnownReason::TargetNamespaceMissing, failures);
            assert_eq!(again, Some(backoff::delay_ms(before, 7)));
            assert!(again.is_some_and(|again| again <= 32_000));
        }
        assert_eq!(report(failure(KnownReason::ReadFailed), 4).failures, 5);
        assert_eq!(report(failure(KnownReason::OwnedByAnother), 4).failures, 0);
        assert_eq!(report(Ok(success(&[])), 4).failures, 0);
    }

    #[test]
    fn the_earliest_time_wins_and_a_past_time_causes_no_loop() {
        let asked = |at| Failure::known(KnownReason::KubeconfigEmpty, "m").until(Some(at));
        assert_eq!(report(Err(asked(NOW + 60)), 0).again_after_ms, Some(60_000));
        for at in [i64::MIN, NOW - 60, NOW, NOW + 1, NOW + 5] {
            assert_eq!(
                report(Err(asked(at)), 0).again_after_ms,
                Some(5_000),
                "{at}"
            );
        }
        assert_eq!(report(Err(asked(NOW + 6)), 0).again_after_ms, Some(6_000));
        assert_eq!(
            report(Err(asked(i64::MAX)), 0).again_after_ms,
            Some(9_223_372_036_854_774_807_u64.saturating_mul(1_000))
        );
    }

    #[test]
    fn a_guest_that_was_told_of_another_failed_write_is_asked_again_in_five_seconds() {
        for (result, failures, again) in [
            (Ok(success(&[])), 0, 5_000),
            (Ok(success(&[Err(KnownReason::WriteInvalid)])), 0, 5_000),
            // Its retry comes earlier, or the other way round.
            (
                Ok(success(&[Err(KnownReason::WriteForbidden)])),
                0,
                backoff::delay_ms(0, 7),
            ),
            (Ok(success(&[Err(KnownReason::WriteForbidden)])), 9, 5_000),
        ] {
            let mut reconcile = Reconcile::new(key("demo"));
            reconcile.told_otherwise = true;
            let schedule = Schedule {
                now_seconds: NOW,
                resync_seconds: 0,
                failures,
                waited: false,
                seed: 7,
            };
            let report = of(reconcile, result, schedule);
            assert_eq!(report.again_after_ms, Some(again), "{failures}");
        }
    }

    #[test]
    fn a_resync_happens_whatever_else_is_scheduled() {
        let schedule = Schedule {
            now_seconds: NOW,
            resync_seconds: 1_800,
            failures: 3,
            waited: false,
            seed: 7,
        };
        let reconcile = Reconcile::new(key("demo"));
        let both = |reconcile: &Reconcile, result| {
            let report = of(reconcile.clone(), result, schedule);
            (report.again_after_ms, report.resync_after_ms)
        };
        let seen = |result| both(&reconcile, result);
        let (resync, retry) = (backoff::resync_ms(1_800, 7), Some(backoff::delay_ms(3, 7)));
        assert_eq!(seen(Ok(success(&[]))), (None, resync));
        let mut gone = success(&[Ok(())]);
        gone.gone = true;
        let asked = Reconcile {
            ask_again_at: Some(NOW + 9),
            ..reconcile.clone()
        };
        assert_eq!(both(&asked, Ok(success(&[]))), (Some(9_000), resync));
        assert_eq!(seen(failure(KnownReason::ReadFailed)), (retry, resync));
        assert_eq!(seen(failure(KnownReason::KubeconfigEmpty)), (None, resync));
        assert_eq!(seen(Ok(gone)), (None, None), "what is gone is not resynced");
    }

    #[test]
    fn a_time_that_was_asked_for_counts_however_the_reconcile_ends() {
        let mut reconcile = Reconcile::new(key("demo"));
        reconcile.ask_again_at = Some(NOW + 9);
        let schedule = Schedule {
            now_seconds: NOW,
            resync_seconds: 0,
            failures: 0,
            waited: false,
            seed: 7,
        };
        let again = |result| of(reconcile.clone(), result, schedule).again_after_ms;
        let until = |seconds| {
            let stopped = Failure::known(KnownReason::LimitReached, "m");
            Err(stopped.until(Some(NOW + seconds)))
        };
        let asked = Some(9_000);
        for result in [
            Ok(success(&[])),
            Ok(success(&[Err(KnownReason::WriteInvalid)])),
            Ok(Success {
                kept: Some(Failure::known(KnownReason::StillNeeded, "kept")),
                ..success(&[])
            }),
            failure(KnownReason::KubeconfigEmpty),
            failure(KnownReason::OwnershipPending),
            until(60),
        ] {
            assert_eq!(again(result.clone()), asked, "{result:?}");
        }
        assert_eq!(again(until(5)), Some(5_000), "the sooner one");
        let over = again(failure(KnownReason::SourceDeleted));
        assert_eq!(over, None, "it is no primary any more");
    }

    #[test]
    fn reports_writes_even_beside_a_failure() {
        let report = report(Ok(success(&[Ok(()), Err(KnownReason::WriteFailed)])), 0);
        assert_eq!(report.writes, [(WriteKind::Create, target("demo"))]);
        assert_eq!(report.message, "disk full");
        let done = super::tests::report(Ok(success(&[Ok(())])), 0);
        assert_eq!(
            done.message,
            "created Secret klusterlet-demo/external-managed-kubeconfig"
        );
    }

    #[test]
    fn a_guest_reason_never_changes_host_behaviour() {
        let ended = |class, word: &str| {
            let failure = Failure::new(class, Reason::Declared(word.into()), "m");
            let report = report(Err(failure), 0);
            (report.end, report.again_after_ms, report.failures)
        };
        for word in KnownReason::ALL {
            for class in [Class::Held, Class::Waiting, Class::Missing, Class::Invalid] {
                assert_eq!(ended(class, word.as_str()), ended(class, "X"));
            }
        }
    }

    #[test]
    fn a_stopped_plan_says_until_when() {
        let stopped = Failure::known(KnownReason::WriteBudgetExceeded, "m").until(Some(NOW + 9));
        let mut success = success(&[Ok(())]);
        success.outcome.stopped = Some(stopped);
        let report = report(Ok(success), 0);
        assert_eq!(seen(&report), (State::Failed, "WriteBudgetExceeded", 0));
        assert_eq!(
            (report.writes.len(), report.again_after_ms),
            (1, Some(9_000))
        );
    }

    #[test]
    fn waits_for_objects_that_could_not_be_pruned() {
        let kept = Failure::known(KnownReason::StillNeeded, "kept");
        let report = report(
            Ok(Success {
                kept: Some(kept),
                ..success(&[Ok(())])
            }),
            0,
        );
        assert_eq!(seen(&report), (State::Waiting, "StillNeeded", 0));
        assert_eq!((report.writes.len(), report.again_after_ms), (1, None));
    }
}
