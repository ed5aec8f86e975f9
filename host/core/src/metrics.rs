//! The list of everything that the agent measures, and the rule for what counts as an attempt to copy a kubeconfig.
//! No label holds the name of an object.

use crate::plan::WriteKind;
use crate::policy::Policy;
use crate::report::Report;
use MetricKind::{Counter, Gauge, Histogram};
use transom_api::State;

/// One metric as it is exposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name, exactly.
    pub name: &'static str,
    /// How its values change.
    pub kind: MetricKind,
    /// The unit of its values: `seconds`, `bytes`, or what is counted.
    pub unit: &'static str,
    /// Its labels, in order; each has only a few values.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

/// How the values of a metric change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values up to these bounds.
    Histogram(&'static [f64]),
}

impl MetricKind {
    /// The name of the type in Prometheus.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Metric {
    /// Whether it is exposed only when the hypershift-addon agent's names are requested.
    pub fn is_compatibility(&self) -> bool {
        [COMPATIBILITY_COPY_TOTAL, COMPATIBILITY_COPY_FAILURES].contains(self)
    }
}

// The list itself; each name stands here only. The registry and the list in the documentation are made from it; tests
// compare rules and dashboards with it.

/// Bounds for calls of guests, in seconds: a call takes microseconds.
const CALL_SECONDS: &[f64] = &[
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2.5e-2, 1e-1, 1.0,
];
/// Bounds for the time from a cause to what was written for it, in seconds.
const WRITTEN_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];
/// Bounds for linear memory, in bytes: from one page up to the limit of a call.
const MEMORY_BYTES: &[f64] = &[
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Bounds for answers, in bytes.
const ANSWER_BYTES: &[f64] = &[
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
];

/// Makes one constant for each metric, and the list of all of them.
macro_rules! metrics {
    ($($id:ident: $kind:expr, $name:literal, $unit:literal, [$($label:literal),*], $help:literal;)*) => {
        $(#[doc = $help] pub const $id: Metric =
            Metric { name: $name, kind: $kind, unit: $unit, labels: &[$($label),*], help: $help };)*

        /// Every metric, in the order in which they are documented.
        pub const ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    // Work on kubeconfigs, by the names that dashboards know.
    COPY_TOTAL: Counter, "hypershift_addon_agent_kubeconfig_secret_copy_total", "attempts", [],
        "Attempts to copy a kubeconfig to its target: written, found in sync, or failed; one for each start, change \
         and resync of a primary. Waiting and retries of the same failure do not count.";
    COPY_FAILURES: Counter, "hypershift_addon_agent_kubeconfig_secret_copy_failures", "attempts", [],
        "Failed attempts to copy a kubeconfig to its target.";
    COMPATIBILITY_COPY_TOTAL: Counter, "mce_hs_addon_kubeconfig_secret_copy_total_count", "attempts", [],
        "The same as hypershift_addon_agent_kubeconfig_secret_copy_total, under the name that the hypershift-addon \
         agent uses.";
    COMPATIBILITY_COPY_FAILURES: Counter, "mce_hs_addon_kubeconfig_secret_copy_failure_count", "attempts", [],
        "The same as hypershift_addon_agent_kubeconfig_secret_copy_failures, under the name that the hypershift-addon \
         agent uses.";
    // Primaries and reconciles.
    PRIMARIES: Gauge, "transom_primaries", "primaries", ["policy", "state", "reason"],
        "Primaries by the state and reason of their last reconcile; reported by the leader.";
    OVERDUE: Gauge, "transom_primaries_overdue", "primaries", ["policy", "state", "reason"],
        "Primaries that are held or waiting for longer than expected; reported by the leader.";
    KUBECONFIGS_FAILING: Gauge, "transom_kubeconfigs_failing", "primaries", [],
        "Primaries whose last reconcile failed under a policy that copies kubeconfigs; reported by the leader.";
    RECONCILES: Counter, "transom_reconciles_total", "reconciles", ["policy", "cause", "state"],
        "Reconciles by their cause and the resulting state.";
    CAUSE_TO_WRITTEN: Histogram(WRITTEN_SECONDS), "transom_cause_to_written_seconds", "seconds", ["policy"],
        "Time from the cause of a reconcile to the end of its writes; reconciles that wrote nothing are not counted. \
         For a retry, the cause is that of the first attempt.";
    WRITES: Counter, "transom_writes_total", "writes", ["policy", "verb", "result"],
        "Writes of objects by verb and by result: ok, or the reason of the failure.";
    REPAIRED: Counter, "transom_repaired_by_resync_total", "objects", ["policy"],
        "Objects that a resync repaired: no watch event had reported the difference.";
    EXPIRY: Gauge, "transom_certificate_earliest_expiry_timestamp_seconds", "seconds since 1970", ["policy"],
        "The next expiry of any client certificate that is written for a policy, or of the CA of its server; reported by the leader.";
    // Queues.
    QUEUE: Gauge, "transom_queue_primaries", "primaries", ["policy"],
        "Primaries that are being reconciled or are due; reported by the leader.";
    QUEUE_OLDEST: Gauge, "transom_queue_oldest_seconds", "seconds", ["policy"],
        "Age of the oldest due request in the workqueue: how long its primary has been due; reported by the leader.";
    // Guests.
    CALL_TIME: Histogram(CALL_SECONDS), "transom_guest_call_seconds", "seconds", ["policy", "call"],
        "Time of a guest call, from creating the instance to its answer.";
    CALL_MEMORY: Histogram(MEMORY_BYTES), "transom_guest_memory_bytes", "bytes", ["policy", "call"],
        "Peak memory of a guest call: the sum of all its linear memories.";
    CALL_ANSWER: Histogram(ANSWER_BYTES), "transom_guest_answer_bytes", "bytes", ["policy", "call"],
        "Size of a guest's answer.";
    CALL_USAGE: Gauge, "transom_guest_budget_used_ratio", "share", ["policy", "budget", "percentile"],
        "Share of each budget of `spec.budget` that the calls of the active revision used, rounded up to 0.01, \
         0.02, 0.05, 0.1, 0.2, 0.5 or 1, for the percentiles 50, 99 and 100. Reported by the leader.";
    CALL_LOG_LINES: Counter, "transom_guest_log_lines_total", "lines", ["policy", "call"],
        "Log lines that guests wrote, without dropped ones.";
    CALL_FAILURES: Counter, "transom_guest_failures_total", "calls", ["policy", "call", "reason"],
        "Guest calls that were stopped or broke the contract.";
    // API servers.
    REQUESTS: Counter, "transom_requests_total", "requests", ["connection", "verb", "purpose"],
        "Requests to an API server by verb and purpose: work, lease, status, event or discovery.";
    WATCH_RESTARTS: Counter, "transom_watch_restarts_total", "restarts", ["connection", "kind"],
        "Watches that ended early or could not be started.";
    WATCH_OBJECTS: Gauge, "transom_watch_objects", "objects", ["connection", "kind"],
        "Watched objects in the in-memory store.";
    WATCHES_FAILING: Gauge, "transom_watches_failing", "watches", ["connection", "kind", "reason"],
        "Watches that cannot be followed now: what is known of their objects grows old.";
    // The agent itself.
    POLICIES: Gauge, "transom_policies", "policies", ["status"],
        "Policies by status: Loaded have an active revision, Refused have a newer revision that was rejected, \
         AwaitingApproval have a candidate whose plan a person has to approve, \
         Conflicting replace a controller that still runs; a policy can be several.";
    LEADING: Gauge, "transom_leading", "0 or 1", [], "Whether this replica is the leader, which alone writes.";
    BUILD: Gauge, "transom_build_info", "1", ["version"], "The version that runs.";
    CPU: Counter, "process_cpu_seconds_total", "seconds", [], "Processor time of the process, user and system.";
    RESIDENT: Gauge, "process_resident_memory_bytes", "bytes", [], "Memory of the process that is in RAM.";
    STARTED: Gauge, "process_start_time_seconds", "seconds since 1970", [], "When the process started.";
}

/// One attempt to copy a kubeconfig to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAttempt {
    /// The target is as it should be, written now or right already.
    Succeeded,
    /// The target is not as it should be.
    Failed,
}

/// The last counted attempt of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedAttempt {
    /// How it ended.
    pub attempt: CopyAttempt,
    /// When, in seconds since 1970.
    pub at_seconds: i64,
}

/// The same result for the same primary counts once in this many seconds, so that an object which changes every
/// second does not outweigh the fleet.
const SAME_SECONDS: i64 = 60;

/// The attempt that a reconcile counts as: one that decided a kubeconfig, whether it had to write or not. These are
/// no attempts: waiting, holding, a first conflict (it is retried at once), and reconciles of a primary that is gone
/// or could not be read (`primary_read` is false). A reconcile that time alone started (`timed`: a retry, or a time
/// that a guest asked for) does not count again with the result of `before`.
pub fn attempt(
    policy: &Policy,
    primary_read: bool,
    timed: bool,
    before: Option<CountedAttempt>,
    report: &Report,
) -> Option<CountedAttempt> {
    if !copies(policy) || !primary_read {
        return None;
    }
    let wrote = report
        .writes
        .iter()
        .any(|(kind, _)| matches!(kind, WriteKind::Create | WriteKind::Update));
    let attempt = match report.state {
        State::Failed => (!report.is_first_conflict()).then_some(CopyAttempt::Failed),
        State::Applied => Some(CopyAttempt::Succeeded),
        State::Held | State::Waiting => wrote.then_some(CopyAttempt::Succeeded),
    }?;
    let now = CountedAttempt {
        attempt,
        at_seconds: report.at_seconds,
    };
    (wrote || is_news(before, now, timed)).then_some(now)
}

/// Whether a policy copies kubeconfigs.
pub fn copies(policy: &Policy) -> bool {
    policy.writes.iter().any(|rule| rule.kubeconfig.is_some())
}

/// Whether a result counts in addition to the one that counted before.
pub fn is_news(before: Option<CountedAttempt>, now: CountedAttempt, timed: bool) -> bool {
    let same = before.filter(|before| before.attempt == now.attempt);
    // After a clock was set back, counting starts anew.
    let just_counted = |before: CountedAttempt| {
        (0..SAME_SECONDS).contains(&now.at_seconds.saturating_sub(before.at_seconds))
    };
    same.is_none_or(|before| !timed && !just_counted(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::plan::Outcome;
    use crate::report::Success;
    use crate::sample::{self, kubeconfig_manifest, policy, taints_manifest, target};
    use std::collections::BTreeSet;
    use transom_api::KnownReason;

    fn report(word: KnownReason, writes: &[WriteKind], failures: u32) -> Report {
        let result = match word {
            KnownReason::InSync => Ok(Success {
                gone: false,
                outcome: Outcome::default(),
                kept: None,
            }),
            _ => Err(Failure::known(word, "")),
        };
        let report = sample::report(result);
        assert_eq!(report.reason.as_str(), word.as_str());
        Report {
            writes: writes.iter().map(|kind| (*kind, target("demo"))).collect(),
            failures,
            ..report
        }
    }

    #[test]
    fn counts_an_attempt_that_decided_a_kubeconfig() {
        use CopyAttempt::{Failed, Succeeded};
        use KnownReason::{
            InSync, KubeconfigEmpty, OwnedByAnother, StillNeeded, Suspended, WriteConflict,
            WriteFailed,
        };
        use WriteKind::{Create, Delete, Update};
        let copies = policy(&kubeconfig_manifest());
        for (word, kinds, failures, expected) in [
            (InSync, &[][..], 0, Some(Succeeded)),
            (InSync, &[Create], 0, Some(Succeeded)),
            (InSync, &[Update], 0, Some(Succeeded)),
            (OwnedByAnother, &[], 0, None),
            (StillNeeded, &[Create, Delete], 0, Some(Succeeded)),
            (StillNeeded, &[Delete], 0, None),
            (Suspended, &[], 0, None),
            (KubeconfigEmpty, &[], 0, Some(Failed)),
            (WriteFailed, &[], 1, Some(Failed)),
            (WriteConflict, &[], 1, None),
            (WriteConflict, &[], 2, Some(Failed)),
        ] {
            let report = report(word, kinds, failures);
            let counted = |policy, read| {
                attempt(policy, read, false, None, &report).map(|counted| counted.attempt)
            };
            assert_eq!(
                counted(&copies, true),
                expected,
                "{word:?} {kinds:?} {failures}"
            );
            assert_eq!(counted(&copies, false), None, "nothing was read: {word:?}");
            let taints = policy(&taints_manifest());
            assert_eq!(counted(&taints, true), None, "no kubeconfig: {word:?}");
        }
    }

    /// How many attempts, and how many failures, a primary counts for. Each row is the time, whether time alone
    /// started the reconcile, and its result.
    fn counts(rows: &[(i64, bool, Report)]) -> (usize, usize) {
        let copies = policy(&kubeconfig_manifest());
        let mut before = None;
        let (mut all, mut failed) = (0, 0);
        for (at_seconds, timed, report) in rows {
            let report = Report {
                at_seconds: *at_seconds,
                ..report.clone()
            };
            if let Some(counted) = attempt(&copies, true, *timed, before, &report) {
                before = Some(counted);
                all += 1;
                failed += usize::from(counted.attempt == CopyAttempt::Failed);
            }
        }
        (all, failed)
    }

    #[test]
    fn counts_a_trigger_once_despite_retries() {
        let (right, wrote) = (
            report(KnownReason::InSync, &[], 0),
            report(KnownReason::InSync, &[WriteKind::Update], 0),
        );
        let missing = |failures| report(KnownReason::ReadFailed, &[], failures);
        let away = |failures| report(KnownReason::ServerUnavailable, &[], failures);
        let conflict = |failures| report(KnownReason::WriteConflict, &[], failures);
        // Right at the start and at two resyncs: three successful attempts.
        assert_eq!(
            counts(&[
                (0, false, right.clone()),
                (1_800, false, right.clone()),
                (3_600, false, right.clone())
            ]),
            (3, 0)
        );
        // A failure is retried a thousand times, also with another reason: one attempt.
        let mut tries: Vec<_> = (0..1_000)
            .map(|n| (n * 300, n > 0, missing(u32::try_from(n).unwrap() + 1)))
            .collect();
        tries.push((400_000, true, away(1_001)));
        assert_eq!(counts(&tries), (1, 1));
        // The retry that succeeds counts, written or not; a resync of a failure is an attempt of its own.
        tries.push((400_300, true, right.clone()));
        assert_eq!(counts(&tries), (2, 1));
        assert_eq!(
            counts(&[
                (0, false, missing(1)),
                (1_800, false, missing(9)),
                (2_000, true, wrote.clone())
            ]),
            (3, 2)
        );
        // A time that a guest asks for each second makes no new attempts, unless something is written.
        let mut asked: Vec<_> = (0..100).map(|n| (n, n > 0, right.clone())).collect();
        asked.push((100, true, wrote.clone()));
        assert_eq!(counts(&asked), (2, 0));
        // The first conflict is no attempt; a repeated one is.
        let conflicts: Vec<_> = (1..9).map(|n| (i64::from(n), n > 1, conflict(n))).collect();
        assert_eq!(counts(&conflicts), (1, 1));
    }

    #[test]
    fn an_ever_changing_object_does_not_outweigh_the_fleet() {
        let failed = report(KnownReason::KubeconfigEmpty, &[], 0);
        let right = report(KnownReason::InSync, &[], 0);
        for one in [failed.clone(), right.clone()] {
            let hour: Vec<_> = (0..3_600)
                .map(|second| (second, false, one.clone()))
                .collect();
            assert_eq!(counts(&hour).0, 60, "{:?}", one.state);
        }
        // A changed result counts at once, and a clock that was set back does not suppress it.
        assert_eq!(
            counts(&[
                (0, false, right.clone()),
                (1, false, failed.clone()),
                (2, false, right.clone())
            ]),
            (3, 1)
        );
        assert_eq!(
            counts(&[(9_000, false, right.clone()), (5, false, right)]),
            (2, 0)
        );
    }

    #[test]
    fn names_and_labels_are_valid_for_prometheus() {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let plain = |text: &str| text.bytes().all(is_plain);
        let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let name = metric.name;
            assert!(
                plain(name) && metric.labels.iter().all(|label| plain(label)),
                "{name}"
            );
            assert!(
                metric.help.ends_with('.') && !metric.unit.is_empty(),
                "{name}"
            );
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted() && bounds.len() <= 16, "{name}");
            }
        }
    }

    #[test]
    fn the_two_metric_names_of_the_existing_agent_are_exact() {
        let prefix = "hypershift_addon_agent_kubeconfig_secret_copy";
        assert_eq!(COPY_TOTAL.name, format!("{prefix}_total"));
        assert_eq!(COPY_FAILURES.name, format!("{prefix}_failures"));
        let compatible = ALL.iter().filter(|metric| metric.is_compatibility());
        assert_eq!(compatible.count(), 2);
    }
}
