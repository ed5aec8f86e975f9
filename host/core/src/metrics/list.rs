//! The list itself; each name stands here only. The registry and the list in the documentation are made from it; tests
//! compare rules and dashboards with it.

use super::Kind::{Counter, Gauge, Histogram};
use super::Metric;

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
        "The earliest expiry of any client certificate that is written for a policy; reported by the leader.";
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
    CALL_LOG_LINES: Counter, "transom_guest_log_lines_total", "lines", ["policy", "call"],
        "Log lines that guests wrote, without dropped ones.";
    CALL_FAILURES: Counter, "transom_guest_failures_total", "calls", ["policy", "call", "reason"],
        "Guest calls that were stopped or broke the contract.";
    // API servers.
    REQUESTS: Counter, "transom_requests_total", "requests", ["connection", "verb", "purpose"],
        "Requests to an API server by verb and purpose: work, lease, status or event.";
    WATCH_RESTARTS: Counter, "transom_watch_restarts_total", "restarts", ["connection", "kind"],
        "Watches that ended early or could not be started.";
    WATCH_OBJECTS: Gauge, "transom_watch_objects", "objects", ["connection", "kind"],
        "Watched objects in the in-memory store.";
    // The agent itself.
    POLICIES: Gauge, "transom_policies", "policies", ["status"],
        "Policies by status: Loaded have an active revision, Refused have a newer revision that was rejected; a \
         policy can be both.";
    LEADING: Gauge, "transom_leading", "0 or 1", [], "Whether this replica is the leader, which alone writes.";
    BUILD: Gauge, "transom_build_info", "1", ["version"], "The version that runs.";
    CPU: Counter, "process_cpu_seconds_total", "seconds", [], "Processor time of the process, user and system.";
    RESIDENT: Gauge, "process_resident_memory_bytes", "bytes", [], "Memory of the process that is in RAM.";
    STARTED: Gauge, "process_start_time_seconds", "seconds since 1970", [], "When the process started.";
}
