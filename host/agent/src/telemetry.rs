//! Turns what happens into log lines and counts: the one place that decides on level and wording. Logs no content of an
//! object.

pub(crate) mod connection;
mod lines;

use crate::args::run::LogFormat;
use crate::metrics;
use std::collections::BTreeMap;
use std::panic;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};
use tracing::{Level, Metadata, debug, error, info, warn};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};
use transom_api::{KnownReason, State};
use transom_core::failure::Failure;
use transom_core::metrics::CopyAttempt;
use transom_core::plan::Outcome;
use transom_core::report::Report;
use transom_core::rollout::{self, Candidate};
use transom_core::share::lock::MutexExt as _;
use transom_core::share::reconcile_limit::{Allowance, LOG_BYTES};
use transom_core::work::{Cause, Key, WorkItem};
use transom_engine::{LogLevel, LogLine, Receipt};

/// The target of lines that guests wrote.
const GUEST: &str = "transom::guest";
/// The target of lines about one primary.
const PRIMARY: &str = "transom::primary";
/// The default filter of an agent.
pub(crate) const USUAL: &str = "info";
/// That of a run that ends, and of commands for the authors of guests: results tell of the primaries, but not what
/// guests logged.
pub(crate) const USUAL_ONCE: &str =
    "error,transom::primary=off,transom::guest=debug,transom::connection=info";
/// That of the other commands: one that ends by a panic says where.
pub(crate) const USUAL_ERRORS: &str = "error,transom::primary=off";

/// Sends log lines to standard error, and keeps the messages of panics out of them.
pub(crate) fn start(format: LogFormat, usual: &str) {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let asked = if asked.is_empty() { usual } else { &asked };
    let filter = EnvFilter::try_new(asked).unwrap_or_else(|_| EnvFilter::new(usual));
    let shown = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(may_be_shown));
    // A line that cannot be written is lost: reporting that on standard error would panic.
    let lines = fmt::layer()
        .with_writer(|| lines::LineWriter)
        .with_target(false)
        .log_internal_errors(false);
    // A second start in one process (tests) keeps the first subscriber.
    let _ = match format {
        LogFormat::Text => shown
            .with(lines.compact().fmt_fields(lines::Logfmt))
            .try_init(),
        LogFormat::Json => shown.with(lines.json().flatten_event(true)).try_init(),
    };
    quiet_panics();
}

/// Whether a line may be shown, whatever the filter says. Lines of libraries below `info` are not, and those of
/// libraries that carry requests never are: they print URLs with whatever is in them, headers, and bodies that they
/// cannot read.
fn may_be_shown(line: &Metadata<'_>) -> bool {
    const OURS: &str = "transom";
    const CARRIERS: [&str; 7] = ["kube", "hyper", "h2", "http", "rustls", "tower", "tokio"];
    let target = line.target();
    let carries = || CARRIERS.iter().any(|carrier| target.starts_with(carrier));
    target.starts_with(OURS) || (*line.level() <= Level::INFO && !carries())
}

/// Logs only where a panic happened: its message may quote a value.
fn quiet_panics() {
    panic::set_hook(Box::new(|info| match info.location() {
        Some(place) => {
            error!(
                file = place.file(),
                line = place.line(),
                "the agent panicked; this is a bug in the agent"
            );
        }
        None => error!("the agent panicked; this is a bug in the agent"),
    }));
}

/// Logs the end of a reconcile: a line for each write with its cause, and one for each transition that no write
/// explains. A primary that is `Applied` at first sight is quiet; so is a conflict that is settled at once.
pub(crate) fn reconciled(work: &WorkItem, report: &Report, transition: Option<First>) {
    let cause = work.cause.as_str();
    let Report {
        policy,
        primary,
        reason,
        message,
        ..
    } = report;
    for (kind, target) in &report.writes {
        let what = kind.past();
        if work.cause == Cause::Resync {
            metrics::count(|meters| meters.repaired(policy));
            warn!(target: PRIMARY, %policy, %primary, %target, cause, "{what} by a resync: no watch event had reported this difference");
        } else {
            info!(target: PRIMARY, %policy, %primary, %target, cause, "{what}");
        }
    }
    // One macro call for each level: the level must be known at compile time.
    macro_rules! line {
        ($level:ident) => {
            $level!(target: PRIMARY, %policy, %primary, cause, state = ?report.state, %reason, "{message}")
        };
    }
    match level(report, transition) {
        Level::ERROR => line!(error),
        Level::WARN => line!(warn),
        Level::INFO => line!(info),
        _ => line!(debug),
    }
}

/// Whether a transition is the first that is known of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Nothing was known of the primary.
    Sight,
    /// It had another state or another reason.
    Change,
}

/// The level of a reconcile's end: an error when only a person can end the failure, a warning when it is retried.
fn level(report: &Report, transition: Option<First>) -> Level {
    let conflict = report.is_first_conflict();
    match (transition, report.state) {
        (None, _) => Level::DEBUG,
        (_, State::Failed) if conflict => Level::DEBUG,
        (_, State::Failed) if report.failures == 0 => Level::ERROR,
        (_, State::Failed) => Level::WARN,
        (_, State::Applied) if !report.writes.is_empty() => Level::DEBUG,
        (Some(First::Sight), State::Applied) => Level::DEBUG,
        (Some(_), _) => Level::INFO,
    }
}

/// Counts the end of a reconcile; `since_cause` is how long ago it might have begun.
pub(crate) fn counted(
    work: &WorkItem,
    report: &Report,
    attempt: Option<CopyAttempt>,
    since_cause: Duration,
) {
    metrics::count(|meters| meters.reconciled(work.cause.as_str(), report, attempt, since_cause));
}

/// Counts every step of a plan, also the one that failed.
pub(crate) fn wrote(key: &Key, outcome: &Outcome) {
    metrics::count(|meters| meters.wrote(&key.policy, outcome));
}

/// Records a guest call: what it used, and the lines that its policy lets it log.
pub(crate) fn called(
    key: &Key,
    asked: &'static str,
    receipt: &Receipt,
    failure: Option<&'static str>,
) {
    metrics::count(|meters| meters.called(&key.policy, asked, receipt, failure));
    for line in &receipt.log {
        if !is_within_limit(&key.policy, line.text.len()) {
            continue;
        }
        let (policy, primary, text) = (&key.policy, &key.primary, &line.text);
        match line.level {
            LogLevel::Debug => debug!(target: GUEST, %policy, %primary, "guest: {text}"),
            LogLevel::Info => info!(target: GUEST, %policy, %primary, "guest: {text}"),
            LogLevel::Warn => warn!(target: GUEST, %policy, %primary, "guest: {text}"),
        }
    }
}

/// Logs a line that a guest wrote while one of its cases was run.
pub(crate) fn logged_in_case(case: &Path, line: &LogLine) {
    let (case, line, level) = (case.display(), line.text.as_str(), line.level);
    match level {
        LogLevel::Debug => debug!(target: GUEST, %case, "guest: {line}"),
        LogLevel::Info => info!(target: GUEST, %case, "guest: {line}"),
        LogLevel::Warn => warn!(target: GUEST, %case, "guest: {line}"),
    }
}

/// How much guests have logged lately, by policy.
static LOGGED: Mutex<BTreeMap<Arc<str>, Allowance>> = Mutex::new(BTreeMap::new());

/// Whether a line of this size is within what the guests of a policy may log in a minute. Also logs how many lines of
/// the minute before were left out.
fn is_within_limit(policy: &Arc<str>, bytes: usize) -> bool {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = START.elapsed().as_secs();
    let verdict = {
        let mut logged = LOGGED.locked();
        if !logged.contains_key(policy) {
            // Policies that are gone, or silent, are forgotten.
            logged.retain(|_, allowance| !allowance.is_over(now));
        }
        let allowance = logged.entry(Arc::clone(policy)).or_default();
        allowance.take(bytes as u64, now)
    };
    if verdict.left_out_before > 0 {
        let lines = verdict.left_out_before;
        let reason = KnownReason::LogFlooded.as_str();
        warn!(%policy, reason, lines, "dropped log lines of guests in the last minute: the limit is {LOG_BYTES} bytes per minute");
    }
    verdict.told
}

/// Sets how many policies have an active revision, how many policies or places with policies are refused, and how many
/// have a candidate that waits for an approval.
pub(crate) fn policies(loaded: usize, refused: usize, awaiting_approval: usize) {
    metrics::count(|meters| meters.policies(loaded, refused, awaiting_approval));
}

/// Counts the policies that replace a controller which still runs.
pub(crate) fn conflicting(policies: usize) {
    metrics::count(|meters| meters.conflicting(policies));
}

/// Logs a reconcile that ended by a bug in the agent; the panic hook has logged where. `counts` as a failed attempt.
pub(crate) fn fault(key: &Key, counts: bool) {
    if counts {
        metrics::count(|meters| meters.attempted(CopyAttempt::Failed));
    }
    error!(policy = %key.policy, primary = %key.primary, reason = KnownReason::AgentFailed.as_str(), "the reconcile failed because of a bug in the agent; the agent retries it");
}

/// Removes what was counted for a deleted policy.
pub(crate) fn forgotten(policy: &str) {
    metrics::count(|meters| meters.forget(policy));
}

/// Logs that a status could not be written; the reconcile itself is done.
pub(crate) fn unpublished(report: &Report, error: &std::io::Error) {
    warn!(policy = %report.policy, primary = %report.primary, %error, "failed to write the status");
}

/// Logs that a trigger guest was asked and ignored an update.
pub(crate) fn ignored(key: &Key) {
    debug!(policy = %key.policy, primary = %key.primary, "the trigger guest ignored an update");
}

/// What the log of a failed evaluation takes of the allowance, at least: it is mostly the same for all primaries.
const UNEVALUATED_BYTES: usize = 1_024;

/// Logs why a trigger guest could not say whether an update matters, within what guests of the policy may log: nothing
/// else tells, because the reconcile that follows may end well.
pub(crate) fn unevaluated(key: &Key, failure: &Failure) {
    let Key { policy, primary } = key;
    let Failure {
        reason, message, ..
    } = failure;
    if is_within_limit(policy, message.len().max(UNEVALUATED_BYTES)) {
        warn!(target: PRIMARY, %policy, %primary, %reason, "the trigger guest failed to evaluate an update, so the primary is reconciled: {message}");
    }
}

/// Logs that something cannot be read or written; its last good state stays. `message` contains no value.
pub(crate) fn unreadable(place: &str, reason: KnownReason, message: &str) {
    warn!(%place, reason = reason.as_str(), "{message}");
}

/// Logs that this replica begins to lead, or no longer does, and who holds the Lease as far as is known.
pub(crate) fn leads(leads: bool, holder: Option<&str>) {
    match leads {
        true => info!(holder, "this replica leads"),
        false => info!(holder, "this replica no longer leads: it writes nothing"),
    }
}

/// Logs that the agent ends while an API server has not answered what it was asked.
pub(crate) fn cut_off(is_elected: bool) {
    let lease = match is_elected {
        true => {
            "; the Lease is not released but expires, so that no other replica leads before that"
        }
        false => "",
    };
    warn!(
        "ends before an API server answered: a request that was sent may still take effect{lease}"
    );
}

/// Logs that a place is readable again, or gone.
pub(crate) fn readable(place: &str) {
    info!(%place, "readable again");
}

/// Logs that a new revision is a candidate, or has come to another gate.
pub(crate) fn candidate(policy: &str, candidate: &Candidate) {
    let revision = rollout::short(&candidate.revision.id());
    let (gate, reason) = (candidate.gate.as_str(), candidate.reason.as_str());
    info!(%policy, %revision, gate, reason, "candidate: {}", candidate.message);
}

/// Logs that a revision was refused, and whether an earlier one stays active.
pub(crate) fn refused(
    policy: &str,
    reason: KnownReason,
    message: &str,
    previous_revision_active: bool,
) {
    warn!(%policy, reason = reason.as_str(), previous_revision_active, "refused: {message}");
}

/// Logs that the earlier revision stays active within what the newest manifest allows.
pub(crate) fn bounded(policy: &str) {
    warn!(%policy, suspended = false, "the previous revision stays active, within the limits of the newest manifest");
}

/// Logs that what the limits of a policy withhold was approved.
pub(crate) fn approved(policy: &str, digest: &str) {
    info!(%policy, %digest, "what spec.limits withholds was approved");
}

/// Logs what happened to a policy.
pub(crate) fn tell_of_policy(policy: &str, message: &str) {
    info!(%policy, "{message}");
}

/// Logs what is wrong with a policy.
pub(crate) fn warn_of_policy(policy: &str, reason: KnownReason, message: &str) {
    warn!(%policy, reason = reason.as_str(), "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};
    use transom_core::plan::WriteKind;
    use transom_core::reference::ObjectRef;
    use transom_core::report::{self, Reconcile, Schedule, Success};

    fn report(state: State, reason: KnownReason, failures: u32) -> Report {
        let primary = ObjectRef::local("v1", "Thing", None, "a");
        let reconcile = Reconcile::new(Key::new(&"p".into(), &primary));
        let result = match state {
            State::Applied => Ok(Success {
                gone: false,
                outcome: Outcome::default(),
                kept: None,
            }),
            _ => Err(Failure::known(reason, "")),
        };
        let schedule = Schedule {
            now_seconds: 0,
            resync_seconds: 0,
            failures: 0,
            waited: false,
            seed: 0,
        };
        let report = report::of(reconcile, result, schedule);
        assert_eq!(
            (report.state, report.reason.as_str()),
            (state, reason.as_str())
        );
        Report { failures, ..report }
    }

    #[test]
    fn why_a_trigger_guest_cannot_evaluate_is_logged_within_what_guests_may_log() {
        let written = Arc::new(tempfile::tempfile().unwrap());
        let log = fmt::Subscriber::builder().with_writer(Arc::clone(&written));
        let primary = ObjectRef::local("v1", "Node", None, "n");
        let key = Key::new(&"unevaluated".into(), &primary);
        let why = "trigger.rs:7: it panicked";
        let failure = Failure::known(KnownReason::GuestTrapped, why);
        let most = usize::try_from(LOG_BYTES).unwrap() / UNEVALUATED_BYTES + 1;
        tracing::subscriber::with_default(log.with_ansi(false).finish(), || {
            (0..2 * most).for_each(|_| unevaluated(&key, &failure));
        });
        let mut text = String::new();
        (&*written).rewind().unwrap();
        (&*written).read_to_string(&mut text).unwrap();
        let first = text.lines().next().unwrap();
        for told in ["WARN", why, "GuestTrapped", "policy=unevaluated", "Node n"] {
            assert!(first.contains(told), "{first}");
        }
        assert!(text.lines().count() <= most);
    }

    #[test]
    fn each_outcome_has_its_log_level() {
        use First::{Change, Sight};
        let applied = || report(State::Applied, KnownReason::InSync, 0);
        let mut wrote = applied();
        wrote.writes = vec![(WriteKind::Patch, wrote.primary.clone())];
        let waiting = report(State::Waiting, KnownReason::OwnedByAnother, 0);
        let held = report(State::Held, KnownReason::Paused, 0);
        let failed = |reason, failures| report(State::Failed, reason, failures);
        let unparsable = || failed(KnownReason::KubeconfigUnparsable, 0);
        let unavailable = |failures| failed(KnownReason::ServerUnavailable, failures);
        let conflict = |failures| failed(KnownReason::WriteConflict, failures);
        for (report, transition, expected) in [
            // `Applied` at first sight is quiet; `Applied` again is not.
            (applied(), Some(Sight), Level::DEBUG),
            (applied(), Some(Change), Level::INFO),
            (applied(), None, Level::DEBUG),
            // The line of the write covers it.
            (wrote, Some(Change), Level::DEBUG),
            (waiting, Some(Sight), Level::INFO),
            (held, Some(Change), Level::INFO),
            // Only a person can end this failure.
            (unparsable(), Some(Sight), Level::ERROR),
            (unparsable(), None, Level::DEBUG),
            (unavailable(1), Some(Change), Level::WARN),
            (unavailable(7), None, Level::DEBUG),
            // Common, and retried at once.
            (conflict(1), Some(Change), Level::DEBUG),
            (conflict(2), Some(Change), Level::WARN),
        ] {
            assert_eq!(
                level(&report, transition),
                expected,
                "{report:?} {transition:?}"
            );
        }
    }
}
