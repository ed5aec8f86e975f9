//! The list itself: the source of registry, rules, dashboard and documentation. Each name stands here only.

use super::Kind::{Counter, Gauge, Histogram};
use super::Metric;

/// Bounds for calls of guests, in seconds: a call takes microseconds.
const CALL_SECONDS: &[f64] = &[1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2.5e-2, 1e-1, 1.0];
/// Bounds for the time from a cause to what was written for it, in seconds.
const WRITTEN_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Bounds for linear memory, in bytes: from one page up to the limit of a call.
const MEMORY_BYTES: &[f64] =
    &[65_536.0, 131_072.0, 262_144.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0, 16_777_216.0, 67_108_864.0];
/// Bounds for answers, in bytes.
const ANSWER_BYTES: &[f64] = &[64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];

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
    COPY_TOTAL: Counter, "hypershift_addon_agent_kubeconfig_secret_copy_total", "attempts", [], "Attempts to bring a kubeconfig to where it belongs, written or found right, and those that failed; one for each start, change and resync of a primary. Waiting is no attempt, nor is another try of the same failure.";
    COPY_FAILURES: Counter, "hypershift_addon_agent_kubeconfig_secret_copy_failures", "attempts", [], "Attempts to bring a kubeconfig to where it belongs that failed.";
    COMPATIBILITY_COPY_TOTAL: Counter, "mce_hs_addon_kubeconfig_secret_copy_total_count", "attempts", [], "The same as hypershift_addon_agent_kubeconfig_secret_copy_total, by the name that the hypershift-addon agent uses.";
    COMPATIBILITY_COPY_FAILURES: Counter, "mce_hs_addon_kubeconfig_secret_copy_failure_count", "attempts", [], "The same as hypershift_addon_agent_kubeconfig_secret_copy_failures, by the name that the hypershift-addon agent uses.";
    // Primaries and reconciles.
    PRIMARIES: Gauge, "transom_primaries", "primaries", ["policy", "state", "reason"], "Primaries by the state and reason that their last reconcile came to; told by the replica that leads.";
    OVERDUE: Gauge, "transom_primaries_overdue", "primaries", ["policy", "state", "reason"], "Primaries that are held or wait for longer than it takes when nothing is wrong; told by the replica that leads.";
    RECONCILES: Counter, "transom_reconciles_total", "reconciles", ["policy", "cause", "state"], "Reconciles by what called for them and the state that they came to.";
    CAUSE_TO_WRITTEN: Histogram(WRITTEN_SECONDS), "transom_cause_to_written_seconds", "seconds", ["policy"], "Time from the cause of a reconcile to the end of what it wrote; reconciles that wrote nothing are left out. For another try it is the cause of the first one.";
    WRITES: Counter, "transom_writes_total", "writes", ["policy", "kind", "result"], "Writes of objects by kind and by result: ok, or the reason of the failure.";
    REPAIRED: Counter, "transom_repaired_by_resync_total", "objects", ["policy"], "Objects that a resync mended: no event had told of the difference.";
    EXPIRY: Gauge, "transom_certificate_earliest_expiry_timestamp_seconds", "seconds since 1970", ["policy"], "The earliest end of validity of any client certificate that is written for a policy; told by the replica that leads.";
    // Queues.
    QUEUE: Gauge, "transom_queue_primaries", "primaries", ["policy"], "Primaries that are being reconciled or may be now; told by the replica that leads.";
    QUEUE_OLDEST: Gauge, "transom_queue_oldest_seconds", "seconds", ["policy"], "How long the primary that waits longest has waited since it may be reconciled; told by the replica that leads.";
    // Guests.
    CALL_TIME: Histogram(CALL_SECONDS), "transom_guest_call_seconds", "seconds", ["policy", "call"], "Time of a call of a guest, from making the instance to having its answer.";
    CALL_MEMORY: Histogram(MEMORY_BYTES), "transom_guest_memory_bytes", "bytes", ["policy", "call"], "Peak of all linear memories of a call together.";
    CALL_ANSWER: Histogram(ANSWER_BYTES), "transom_guest_answer_bytes", "bytes", ["policy", "call"], "Size of a guest's answer.";
    CALL_LOG_LINES: Counter, "transom_guest_log_lines_total", "lines", ["policy", "call"], "Log lines that guests wrote and that were kept.";
    CALL_FAILURES: Counter, "transom_guest_failures_total", "calls", ["policy", "call", "reason"], "Calls of guests that were stopped or broke the contract.";
    // API servers.
    REQUESTS: Counter, "transom_requests_total", "requests", ["connection", "verb", "purpose"], "Requests to an API server by verb, and by what they were for: work, lease, status or event.";
    WATCH_RESTARTS: Counter, "transom_watch_restarts_total", "restarts", ["connection", "kind"], "How often a watch ended before its time, or could not be started.";
    WATCH_OBJECTS: Gauge, "transom_watch_objects", "objects", ["connection", "kind"], "Objects that are kept in memory because they are watched.";
    // The agent itself.
    POLICIES: Gauge, "transom_policies", "policies", ["status"], "Policies by status: Loaded have a revision at work, Refused have a newer one that was refused; a policy may be both.";
    LEADING: Gauge, "transom_leading", "0 or 1", [], "Whether this replica is the one that writes.";
    BUILD: Gauge, "transom_build_info", "1", ["version"], "The version that runs.";
    CPU: Counter, "process_cpu_seconds_total", "seconds", [], "Processor time of the process, user and system.";
    RESIDENT: Gauge, "process_resident_memory_bytes", "bytes", [], "Memory of the process that is in RAM.";
    STARTED: Gauge, "process_start_time_seconds", "seconds since 1970", [], "When the process started.";
}
