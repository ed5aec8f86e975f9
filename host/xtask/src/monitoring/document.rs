//! The documentation of the metrics, for an operator.

use super::alert::{Alert, Page};
use super::{health, slo};
use std::fmt::Write as _;
use transom_core::metrics::{ALL, Kind, Metric};

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask monitoring` from host/core/src/metrics/list.rs; do not edit. -->

`transom run --admin-address 0.0.0.0:8443 ...` answers on one port:

| path | content | access |
|---|---|---|
| `/healthz` | 200 while the process is alive | everyone |
| `/readyz` | 200 when the policies are active (or refused) and the watches are synced, or known to be unreadable; one invalid policy, or one unavailable connection next to an available one, does not make the agent unready ([connections](connections.md)) | everyone |
| `/metrics` | the metrics below, in the text format of Prometheus | from the same machine; otherwise with a bearer token with the permission to `get` this path (TokenReview, then SubjectAccessReview on nonResourceURLs; cached for a minute) |
| `/debug/state` | queues, revisions, and every primary that is not `Applied`, as JSON; it contains no credentials | the same |

`--admin-tls-cert` and `--admin-tls-key` turn TLS on; the files are reloaded when they change. Without a connected API server,
`/metrics` is refused to other machines.

Label cardinality is low: policies, guest calls, verbs and reasons (`transom explain`), never object names.
`host/deploy/monitoring` holds recording rules, alerts and dashboards that are generated from the same list; [install.md](install.md#monitoring) says how to install them.

## What counts as an attempt

A reconcile of a policy that owns kubeconfigs counts as one attempt when it decided the kubeconfig of a primary, whether or not a write was needed: it succeeded when the Secret is
in sync, and failed otherwise. Each trigger counts once: a start, a change, a resync (`resyncSeconds`). Waiting (for a namespace, a Service, a claim) and holding do not count as attempts; nor does
a conflict that is retried at once, a timed retry of the same failure, or the same result for the same primary within a minute. `transom_primaries{state=\"Failed\"}` is the number of primaries that fail now.

The objective: 99.5 % of the attempts of 30 days succeed. The error budget counts attempts: the \"3.6 hours\" of the original specification would need a service that is either up or down as a whole.

## One series for each replica

A standby replica makes no attempts, and each replica has its own series. An expression without aggregation divides 0 by 0 there: the queries of the original specification, such as
`rate(hypershift_addon_agent_kubeconfig_secret_copy_failures[5m]) / rate(hypershift_addon_agent_kubeconfig_secret_copy_total[5m])`, give a number for the leader and `NaN` for each other replica.
Aggregate first, `sum by (namespace, job) (...)`, as every rule here does, or use the recorded series: `transom:copy_errors:ratio_rate5m` (also 30m, 1h, 2h, 6h, 1d, 3d and 30d) is 0 where there were no attempts.

";

/// Which names are those of the original specification, which are not, and why.
const NAMES: &str = "## Names of the original specification

| there | here | why |
|---|---|---|
| `hypershift_addon_agent_kubeconfig_secret_copy_total`, `..._failures` | the same | |
| `mce_hs_addon_kubeconfig_secret_copy_total_count`, `..._failure_count` of the real agent | the same with `--compatibility-metrics` | |
| group `external-managed-kubeconfig-slo` | the same | |
| alert `KubeconfigGenerationAvailabilitySLOBreach`, label `slo: availability` | the same; it also requires 200 attempts in 30 days | with fewer a single failure is more than the budget |
| alert `KubeconfigGenerationErrorBudgetBurnRate`, label `slo: error-budget`, `> 12.5` | the same name and label, five windows, distinguished by `window`; a quarter of the budget in an hour is an error rate of 90 %, which uses the whole budget in 4 hours | 12.5 % uses 3.5 % of the budget in an hour, and the whole budget in 29 hours |
| escalation below 99.0 % for 24 hours | `KubeconfigGenerationAvailabilitySLOEscalation` | it has no name there |
| success rate below 95 % or 99 % | `TransomSuccessLow`, by the share of primaries that do not fail | with few attempts, an error rate is meaningless |
| error rate above 5 % or 1 % | `TransomCopyErrorsHigh`, by attempts | it has no name there |
| dashboard \"External-Managed-Kubeconfig Generation SLIs\", panel \"Success Rate\" | the same; the expression has parentheses and aggregates | without parentheses it subtracts a percentage from a rate |
| dashboard \"External-Managed-Kubeconfig SLOs\", panels \"Availability SLO (99.5%)\", \"Error Budget Burn Rate\", time range of 30 days | the same | |
| reported daily | panel \"Availability by day\" | |
| error budget of 3.6 hours a month | 0.5 % of the attempts | see above |

";

/// Writes every alert with cause and cure.
fn alerts(out: &mut String) {
    // Writing to a String cannot fail.
    let all: Vec<Alert> = slo::alerts().into_iter().chain(health::alerts()).collect();
    out.push_str("## Alerts\n\n`critical` alerts page; `warning` alerts can wait for working hours. A single primary that fails is a warning, however large the fleet. The `runbook_url` of each alert points here.\n\n");
    for Page { name, cause, cure } in slo::PAGES.iter().chain(&health::PAGES) {
        let _ = writeln!(
            out,
            "### {name}\n\n| severity | fires when | for |\n|---|---|---|"
        );
        for alert in all.iter().filter(|alert| alert.name == *name) {
            let _ = writeln!(
                out,
                "| {} | `{}` | {} |",
                alert.severity, alert.expression, alert.lasting
            );
        }
        let _ = writeln!(out, "\nCause: {cause}\n\nFix: {cure}\n");
    }
}

/// The text of `host/docs/metrics.md`.
pub(super) fn text() -> String {
    let mut out = String::from(HEAD);
    alerts(&mut out);
    out.push_str(NAMES);
    out.push_str("## List\n\n");
    out.push_str("| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for metric in ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {}{} |",
            metric.name,
            metric.kind.as_str(),
            metric.unit,
            labels(metric),
            metric.help,
            if metric.is_compatibility() {
                " Only with `--compatibility-metrics`."
            } else {
                ""
            },
        );
    }
    out.push_str("\nBounds of the histograms:\n\n");
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(ToString::to_string).collect();
            let _ = writeln!(out, "- `{}`: {}", metric.name, bounds.join(", "));
        }
    }
    out
}

fn labels(metric: &Metric) -> String {
    let labels: Vec<String> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    if labels.is_empty() {
        "\u{2013}".to_owned()
    } else {
        labels.join(", ")
    }
}
