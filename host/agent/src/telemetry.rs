//! Signals to log lines and counts: the one place that decides level and sentence. Never logs a value of a document.

#[cfg(feature = "otel")]
pub(crate) mod traces;
#[cfg(not(feature = "otel"))]
#[path = "telemetry/untraced.rs"]
pub(crate) mod traces;

use crate::args::LogFormat;
use crate::metrics;
use std::panic;
use std::time::Duration;
use tracing::{debug, error, info, warn};
use tracing_subscriber::EnvFilter;
use transom_api::{State, Word};
use transom_core::metrics::Attempt;
use transom_core::outcome::Outcome;
use transom_core::policy::Writes;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::signal::Signal;
use transom_core::work::{Key, Why, WorkItem};
use transom_engine::{LogLevel, Receipt};

/// The client prints bodies that it cannot read, and those may hold a Secret: it stays silent whatever is asked for.
const QUIET: &str = ",kube_client=off";

/// Sends log lines to standard error, and keeps what a panic carries out of them.
pub(crate) fn start(format: LogFormat, once: bool) {
    // A run that ends tells what it came to in its summary.
    let usual = if once { "error" } else { "info" };
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let filter = EnvFilter::try_new(format!("{asked}{QUIET}")).ok().filter(|_| !asked.is_empty());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(format!("{usual}{QUIET}")));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A line that standard error does not take is lost; to complain about it there would be a panic.
    let lines = lines.log_internal_errors(false);
    // A second start in one process (tests) keeps the first subscriber.
    let _ = match format {
        LogFormat::Text => lines.compact().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    quiet_panics();
}

/// A panic's text may quote a value; only where it happened is told.
pub(crate) fn quiet_panics() {
    panic::set_hook(Box::new(|info| match info.location() {
        Some(place) => error!(file = place.file(), line = place.line(), "the agent panicked; this is a fault of ours"),
        None => error!("the agent panicked; this is a fault of ours"),
    }));
}

/// The end of an evaluation: a line for each transition and for each write, a quiet one for the rest.
pub(crate) fn evaluated(work: &WorkItem, report: &Report, transition: bool) {
    for (kind, target) in &report.writes {
        let repaired = work.why == Why::Audit;
        tell(&Signal::Written { key: work.key.clone(), kind: *kind, target: target.clone() });
        if repaired {
            tell(&Signal::RepairedByAudit { key: work.key.clone(), target: target.clone() });
        }
    }
    let why = work.why.word();
    let (policy, subject, reason, message) = (&report.policy, &report.subject, &report.reason, &report.message);
    match (transition, report.state) {
        (false, _) => debug!(%policy, %subject, why, state = ?report.state, %reason, "{message}"),
        (true, State::Failed) => warn!(%policy, %subject, why, state = ?report.state, %reason, "{message}"),
        (true, _) => info!(%policy, %subject, why, state = ?report.state, %reason, "{message}"),
    }
}

/// The end of an evaluation, for the metrics; `since_cause` is how long ago it might have begun.
pub(crate) fn counted(work: &WorkItem, report: &Report, attempt: Option<Attempt>, since_cause: Duration) {
    if let Some(meters) = metrics::get() {
        meters.evaluated(work.why.word(), report, attempt, since_cause);
    }
}

/// What became of every step of a plan, also of the one that failed.
pub(crate) fn wrote(key: &Key, outcome: &Outcome) {
    if let Some(meters) = metrics::get() {
        meters.wrote(&key.policy, outcome);
    }
}

/// A call of a guest ended: what it used, and the lines that its policy lets it log.
pub(crate) fn called(key: &Key, asked: &'static str, receipt: &Receipt, failure: Option<&'static str>) {
    if let Some(meters) = metrics::get() {
        meters.called(&key.policy, asked, receipt, failure);
    }
    traces::invoked(asked, receipt, failure);
    for line in &receipt.log {
        let level = match line.level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
        };
        tell(&Signal::GuestLogged { key: key.clone(), level, line: line.text.clone() });
    }
}

/// How many policies have a revision at work, and how many a newer one that was refused.
pub(crate) fn policies(loaded: usize, refused: usize) {
    if let Some(meters) = metrics::get() {
        meters.policies(loaded, refused);
    }
}

/// An evaluation ended by a fault of ours; where it happened was told by the panic's hook.
pub(crate) fn fault(policy: &str, subject: &ObjectRef, writes: &Writes) {
    if let (Some(meters), Writes::Kubeconfig(_)) = (metrics::get(), writes) {
        meters.attempted(Attempt::Failed);
    }
    error!(%policy, %subject, reason = Word::AgentFailed.as_str(), "the evaluation ended by a fault of the agent; it is tried again");
}

/// A status could not be written; the work itself is done.
pub(crate) fn unpublished(report: &Report, error: &std::io::Error) {
    warn!(policy = %report.policy, subject = %report.subject, %error, "failed to write the status");
}

/// Says one signal.
pub(crate) fn tell(signal: &Signal) {
    match signal {
        Signal::Evaluated { key, why, state, reason, message } => {
            info!(policy = %key.policy, subject = %key.subject, why, ?state, %reason, "{message}");
        }
        Signal::Ignored { key } => {
            debug!(policy = %key.policy, subject = %key.subject, "the trigger guest ignored an update");
        }
        Signal::Written { key, kind, target } => {
            info!(policy = %key.policy, subject = %key.subject, %target, "{}", kind.past());
        }
        Signal::RepairedByAudit { key, target } => {
            if let Some(meters) = metrics::get() {
                meters.repaired(&key.policy);
            }
            warn!(policy = %key.policy, subject = %key.subject, %target, "repaired by an audit: no event had told of this difference");
        }
        Signal::PolicyLoaded { policy } => info!(%policy, "loaded"),
        Signal::Swapped { policy } => info!(%policy, "swapped"),
        Signal::SwapRefused { policy, reason, message, earlier_goes_on } => {
            warn!(%policy, reason = reason.as_str(), earlier_goes_on, "refused: {message}");
        }
        Signal::PolicyMended { policy } => info!(%policy, "mended: what is at work is the newest again"),
        Signal::PolicyRemoved { policy } => info!(%policy, "removed; what it made stays"),
        Signal::Unreadable { place, reason, message } => warn!(%place, reason = reason.as_str(), "{message}"),
        Signal::Readable { place } => info!(%place, "readable again"),
        Signal::GuestLogged { key, level, line } => {
            info!(policy = %key.policy, subject = %key.subject, level, "guest: {line}");
        }
    }
}
