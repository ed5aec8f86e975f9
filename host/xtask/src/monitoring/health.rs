//! Alerts on the agent and on its primaries one by one. Alerts on a share of primaries or attempts are in `slo`.

use super::INSTALL;
use super::alert::{Alert, Page, sum};
use transom_core::metrics::{BUILD, EXPIRY, LEADING, OVERDUE, POLICIES, PRIMARIES, QUEUE_OLDEST};

/// The alerts of the group, in the order of the page.
pub(super) fn alerts() -> Vec<Alert> {
    presence().into_iter().chain(primaries()).collect()
}

/// What the page says of these alerts.
pub(super) const PAGES: [Page; 8] = [
    Page {
        name: "TransomAbsent",
        cause: "Prometheus scrapes no agent at all: none runs, or none may be scraped.",
        cure: "`kubectl --namespace transom get pods`; then the ServiceMonitor, its labels, and the NetworkPolicy. Prometheus needs the right to `get` the path `/metrics`.",
    },
    Page {
        name: "TransomInstallAbsent",
        cause: "One install of several that was scraped within the last day is scraped no longer. After an uninstall this ends by itself.",
        cure: "As TransomAbsent, for the namespace and job named in the alert.",
    },
    Page {
        name: "TransomNotOneLeader",
        cause: "No replica does the work, or two say that they do.",
        cure: "`kubectl --namespace transom get lease` names the holder; the log of each replica says why it does not stand for it: watches that cannot be listed, a Lease that cannot be written.",
    },
    Page {
        name: "TransomPolicyRefused",
        cause: "A policy, or its component or settings, was refused; the earlier revision goes on, if there is one.",
        cure: "`kubectl get fleetpolicies.transom.dev`, then the condition `Loaded` of the one that is not ready: it names the field.",
    },
    Page {
        name: "TransomPrimariesFailed",
        cause: "Primaries have been failing for a quarter of an hour, for the reason named in the alert.",
        cure: "`transom explain` or [reasons.md](reasons.md) for the reason; the status of the policy names the primaries, and each of them has a Warning Event.",
    },
    Page {
        name: "TransomPrimariesOverdue",
        cause: "Primaries wait, or are held, for longer than it takes when nothing is wrong. `NamespaceMissing` for many is mostly a wrong `clusterName` or `selfManagedCluster` ([install.md](install.md)): the names of the klusterlet namespaces are then not those that exist.",
        cure: "The status of the policy (`waiting`, `topFailures`) says which ones, for what they wait and since when. An annotation `transom.dev/paused` or `spec.suspend` is never overdue.",
    },
    Page {
        name: "TransomQueueStuck",
        cause: "A primary may have been reconciled for five minutes and was not: a guest that takes all its time, an API server that answers slowly, or too little CPU.",
        cure: "`transom_guest_call_seconds`, `transom_requests_total` and `process_cpu_seconds_total` tell which; `/debug/state` shows the queue.",
    },
    Page {
        name: "TransomCertificateEnds",
        cause: "A client certificate that was written ends within 14 days (warning) or 3 days (critical): its source was not renewed.",
        cure: "Renew the source, `<hosted cluster>-admin-kubeconfig`; the agent writes the new one at once.",
    },
];

/// Alerts when no agent is scraped, or an install has not exactly one leader.
fn presence() -> [Alert; 3] {
    let count = |series: &str| format!("count by ({INSTALL}) ({series})");
    [
        alert(
            "TransomAbsent",
            format!("(count({}) or vector(0)) < 1", BUILD.name),
            ("10m", "critical"),
            "No agent is scraped.",
            "Prometheus has had no sample of any agent for ten minutes.",
        ),
        alert(
            "TransomInstallAbsent",
            format!("({} or 0 * {}) < 1", count(BUILD.name), count(&format!("present_over_time({}[1d])", BUILD.name))),
            ("10m", "critical"),
            "An install that was scraped within the last day is scraped no longer. After an uninstall this ends by itself.",
            "No agent of job {{ $labels.job }} in {{ $labels.namespace }} is scraped.",
        ),
        alert(
            "TransomNotOneLeader",
            format!("{} != 1", sum("", LEADING.name)),
            ("5m", "critical"),
            "Not exactly one replica writes.",
            "{{ $value }} replicas of job {{ $labels.job }} in {{ $labels.namespace }} say that they write.",
        ),
    ]
}

fn primaries() -> [Alert; 6] {
    let ends_in = format!("min by ({INSTALL}, policy) ({}) - time()", EXPIRY.name);
    let ends = "It ends in {{ $value | humanizeDuration }}.";
    [
        alert(
            "TransomPolicyRefused",
            format!("max by ({INSTALL}) ({}{{status=\"Refused\"}}) > 0", POLICIES.name),
            ("10m", "warning"),
            "A policy was refused; its earlier revision goes on, if there is one.",
            "{{ $value }} policies have a revision that was refused. `kubectl get fleetpolicies.transom.dev` and the log say why.",
        ),
        alert(
            "TransomPrimariesFailed",
            format!("{} > 0", sum(", policy, reason", &format!("{}{{state=\"Failed\"}}", PRIMARIES.name))),
            ("15m", "warning"),
            "Primaries of {{ $labels.policy }} have been failing with {{ $labels.reason }}.",
            "{{ $value }} primaries of {{ $labels.policy }} fail: `transom explain {{ $labels.reason }}`.",
        ),
        alert(
            "TransomPrimariesOverdue",
            format!("({} or on () vector(0)) > 0", sum(", policy, reason", OVERDUE.name)),
            ("5m", "warning"),
            "Primaries of {{ $labels.policy }} have been waiting for too long: {{ $labels.reason }}.",
            "{{ $value }} primaries of {{ $labels.policy }} wait for longer than expected: `transom explain {{ $labels.reason }}`.",
        ),
        alert(
            "TransomQueueStuck",
            format!("max by ({INSTALL}, policy) ({}) > 300", QUEUE_OLDEST.name),
            ("5m", "warning"),
            "A primary of {{ $labels.policy }} has waited for five minutes to be reconciled.",
            "The first in the queue of {{ $labels.policy }} has waited for {{ $value | humanizeDuration }}.",
        ),
        alert(
            "TransomCertificateEnds",
            format!("{ends_in} < 1209600"),
            ("1h", "warning"),
            "A client certificate that was written for {{ $labels.policy }} ends within 14 days.",
            ends,
        ),
        alert(
            "TransomCertificateEnds",
            format!("{ends_in} < 259200"),
            ("1h", "critical"),
            "A client certificate that was written for {{ $labels.policy }} ends within 3 days.",
            ends,
        ),
    ]
}

fn alert(
    name: &'static str,
    expression: String,
    (lasting, severity): (&'static str, &'static str),
    summary: &str,
    description: &'static str,
) -> Alert {
    Alert { name, expression, lasting, severity, labels: Vec::new(), summary: summary.to_owned(), description }
}
