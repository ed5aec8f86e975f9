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
        cause: "Prometheus scrapes no agent: none is running, or Prometheus may not scrape it.",
        cure: "`kubectl --namespace transom get pods`; then the ServiceMonitor, its labels, and the NetworkPolicy. Prometheus needs the permission to `get` the path `/metrics`.",
    },
    Page {
        name: "TransomInstallAbsent",
        cause: "One of several installs was scraped within the last day and is no longer scraped. After an uninstall the alert resolves itself within a day.",
        cure: "As TransomAbsent, for the namespace and job named in the alert.",
    },
    Page {
        name: "TransomNotOneLeader",
        cause: "No replica is the leader, or two replicas report that they are.",
        cure: "`kubectl --namespace transom get lease` names the holder; the log of each replica says why it does not take part in the leader election: watches that cannot be listed, a Lease that cannot be written.",
    },
    Page {
        name: "TransomPolicyRefused",
        cause: "A policy, or its component or settings, was refused; the previous revision stays active, if there is one.",
        cure: "`kubectl get fleetpolicies.transom.dev`, then the condition `Loaded` of the one that is not ready: it names the field.",
    },
    Page {
        name: "TransomPrimariesFailed",
        cause: "Primaries have been failing for 15 minutes, for the reason named in the alert.",
        cure: "`transom explain` or [reasons.md](reasons.md) for the reason; the status of the policy names the primaries, and each of them has a Warning Event.",
    },
    Page {
        name: "TransomPrimariesOverdue",
        cause: "Primaries are waiting, or are held, for longer than expected. `NamespaceMissing` for many usually means a wrong `clusterName` or `selfManagedCluster` ([install.md](install.md)): the agent then looks for klusterlet namespaces that do not exist.",
        cure: "The status of the policy (`waiting`, `topFailures`) lists them, with the reason and since when. Primaries that are paused by the annotation `transom.dev/paused` or by `spec.suspend` are never overdue.",
    },
    Page {
        name: "TransomQueueStuck",
        cause: "A primary has been due for five minutes and was not reconciled: a slow guest, a slow API server, or too little CPU.",
        cure: "`transom_guest_call_seconds`, `transom_requests_total` and `process_cpu_seconds_total` show which; `/debug/state` shows the queue.",
    },
    Page {
        name: "TransomCertificateEnds",
        cause: "A client certificate that the agent wrote expires within 14 days (warning) or 3 days (critical): its source was not renewed.",
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
            format!(
                "({} or 0 * {}) < 1",
                count(BUILD.name),
                count(&format!("present_over_time({}[1d])", BUILD.name))
            ),
            ("10m", "critical"),
            "An install was scraped within the last day and is no longer scraped. After an uninstall the alert resolves itself within a day.",
            "No agent of job {{ $labels.job }} in {{ $labels.namespace }} is scraped.",
        ),
        alert(
            "TransomNotOneLeader",
            format!("{} != 1", sum("", LEADING.name)),
            ("5m", "critical"),
            "Not exactly one replica is the leader.",
            "{{ $value }} replicas of job {{ $labels.job }} in {{ $labels.namespace }} report that they are the leader.",
        ),
    ]
}

fn primaries() -> [Alert; 6] {
    let ends_in = format!("min by ({INSTALL}, policy) ({}) - time()", EXPIRY.name);
    let ends = "It expires in {{ $value | humanizeDuration }}.";
    [
        alert(
            "TransomPolicyRefused",
            format!(
                "max by ({INSTALL}) ({}{{status=\"Refused\"}}) > 0",
                POLICIES.name
            ),
            ("10m", "warning"),
            "A policy was refused; its previous revision stays active, if there is one.",
            "{{ $value }} policies have a refused revision. See `kubectl get fleetpolicies.transom.dev` and the log for the reason.",
        ),
        alert(
            "TransomPrimariesFailed",
            format!(
                "{} > 0",
                sum(
                    ", policy, reason",
                    &format!("{}{{state=\"Failed\"}}", PRIMARIES.name)
                )
            ),
            ("15m", "warning"),
            "Primaries of {{ $labels.policy }} have been failing with {{ $labels.reason }}.",
            "{{ $value }} primaries of {{ $labels.policy }} fail. See `transom explain {{ $labels.reason }}`.",
        ),
        alert(
            "TransomPrimariesOverdue",
            format!(
                "({} or on () vector(0)) > 0",
                sum(", policy, reason", OVERDUE.name)
            ),
            ("5m", "warning"),
            "Primaries of {{ $labels.policy }} have been waiting for too long: {{ $labels.reason }}.",
            "{{ $value }} primaries of {{ $labels.policy }} have been waiting for longer than expected. See `transom explain {{ $labels.reason }}`.",
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
            "A client certificate that was written for {{ $labels.policy }} expires within 14 days.",
            ends,
        ),
        alert(
            "TransomCertificateEnds",
            format!("{ends_in} < 259200"),
            ("1h", "critical"),
            "A client certificate that was written for {{ $labels.policy }} expires within 3 days.",
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
    Alert {
        name,
        expression,
        lasting,
        severity,
        labels: Vec::new(),
        summary: summary.to_owned(),
        description,
    }
}
