//! The documentation of the metrics, for an operator.

use super::alert::{Alert, Page};
use super::{health, slo};
use std::fmt::Write as _;
use transom_core::metrics::{ALL, Kind, Metric};

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask monitoring` from host/core/src/metrics/list.rs; do not edit. -->

`transom run --admin-address 0.0.0.0:8443 ...` answers on one port:

| path | what | for whom |
|---|---|---|
| `/healthz` | 200 while the process lives | everybody |
| `/readyz` | 200 once the policies are at work (or refused) and the watches are synced, or known not to be readable; one bad policy, or one connection that is away beside another one, does not make the agent unready ([connections](connections.md)) | everybody |
| `/metrics` | the metrics below, in the text format of Prometheus | from the same machine; else with a bearer token whose holder may `get` this path (TokenReview, then SubjectAccessReview on nonResourceURLs; remembered for a minute) |
| `/debug/state` | queues, revisions, and every primary that is not as it should be, as JSON; no credential is in it | the same |

`--admin-tls-cert` and `--admin-tls-key` turn TLS on; the files are read again when they change. `/metrics` on another machine without a connected API
server is refused.

Labels have few values: policies, calls of guests, verbs and reasons (`transom explain`); never the name of an object.
`host/deploy/monitoring` holds recording rules, alerts and dashboards that are made of the same list; [install.md](install.md#monitoring) says how they get into the cluster.

## What counts as an attempt

A reconcile of a policy that owns kubeconfigs counts as one attempt when it decided the kubeconfig of a primary, whether it had to write or not: it succeeded when the Secret is
right, and failed when it is not. Each trigger counts once: a start, a change, a resync (`resyncSeconds`). Waiting (for a namespace, a Service, a claim) and holding are no attempts; nor is
a conflict that is tried again at once, nor a timed retry of the same failure, nor the same result for the same primary within a minute. How many primaries fail now is `transom_primaries{state=\"Failed\"}`.

The promise is that 99.5 % of the attempts of 30 days succeed. Its budget is one of attempts: the seed's \"3.6 hours\" would need a service that is up or down as a whole.

## One series for each replica

A replica that stands by attempts nothing, and each replica has series of its own. An expression that does not aggregate divides 0 by 0 there: the queries of the original specification, such as
`rate(hypershift_addon_agent_kubeconfig_secret_copy_failures[5m]) / rate(hypershift_addon_agent_kubeconfig_secret_copy_total[5m])`, give a number for the replica that leads and `NaN` for each other one.
Aggregate first, `sum by (namespace, job) (...)`, as every rule here does, or take what is recorded: `transom:copy_errors:ratio_rate5m` (also 30m, 1h, 2h, 6h, 1d, 3d and 30d) is 0 where nothing was attempted.

## Traces

A binary that was built with `--features otel` sends traces by OTLP over plain HTTP where `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) says whereto, such as
`http://collector.observability:4318`; the other variables of OpenTelemetry (service name, headers, sampler, queue) are heeded, too. `env` and `networkPolicy.egressPorts={443,6443,4318}` of the chart set it up.

| span | is | has |
|---|---|---|
| `reconcile` | one reconcile of one primary | `transom.policy`, `transom.primary.kind`, `transom.cause`, `transom.state`, `transom.reason` |
| `gather` | one object that was read, or looked for | `transom.kind` |
| `invoke` | one call of a guest | `transom.call` |
| `apply` | the writes of the reconcile | |

A part that failed has the reason as its status. No span has the name of an object, a message, or anything from a document.

";

/// Which names are those of the original specification, which are not, and why.
const NAMES: &str = "## Names of the original specification

| there | here | why |
|---|---|---|
| `hypershift_addon_agent_kubeconfig_secret_copy_total`, `..._failures` | the same | |
| `mce_hs_addon_kubeconfig_secret_copy_total_count`, `..._failure_count` of the real agent | the same with `--compatibility-metrics` | |
| group `external-managed-kubeconfig-slo` | the same | |
| alert `KubeconfigGenerationAvailabilitySLOBreach`, label `slo: availability` | the same; it also wants 200 attempts in 30 days | with fewer a single failure is more than the budget |
| alert `KubeconfigGenerationErrorBudgetBurnRate`, label `slo: error-budget`, `> 12.5` | the same name and label, five windows told apart by `window`; a quarter of the budget in an hour is an error rate of 90 %, all of it is gone in 4 hours | 12.5 % uses 3.5 % of the budget in an hour, and all of it in 29 hours |
| escalation below 99.0 % for 24 hours | `KubeconfigGenerationAvailabilitySLOEscalation` | it has no name there |
| success rate below 95 % or 99 % | `TransomSuccessLow`, by the share of primaries that do not fail | where little is attempted, a rate of attempts tells nothing |
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
    out.push_str("## Alerts\n\n`critical` pages, `warning` can wait for the morning. A single primary that fails is a warning, however large the fleet. `runbook_url` of each alert leads here.\n\n");
    for Page { name, cause, cure } in slo::PAGES.iter().chain(&health::PAGES) {
        let _ = writeln!(out, "### {name}\n\n| severity | fires when | for |\n|---|---|---|");
        for alert in all.iter().filter(|alert| alert.name == *name) {
            let _ = writeln!(out, "| {} | `{}` | {} |", alert.severity, alert.expression, alert.lasting);
        }
        let _ = writeln!(out, "\nCause: {cause}\n\nCure: {cure}\n");
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
            if metric.is_compatibility() { " Only with `--compatibility-metrics`." } else { "" },
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
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    if labels.is_empty() { "\u{2013}".to_owned() } else { labels.join(", ") }
}
