//! The documentation of the metrics, for an operator. Never says anything that the list does not.

use std::fmt::Write as _;
use transom_core::metrics::{ALL, Kind, Metric};

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask monitoring` from host/core/src/metrics/list.rs; do not edit. -->

`transom run --admin-address 0.0.0.0:8443 ...` answers on one port:

| path | what | for whom |
|---|---|---|
| `/healthz` | 200 while the process lives | everybody |
| `/readyz` | 200 once the policies are at work (or refused) and the watches are synced; one bad policy does not make the agent unready | everybody |
| `/metrics` | the metrics below, in the text format of Prometheus | from the same machine; else with a bearer token whose holder may `get` this path (TokenReview, then SubjectAccessReview on nonResourceURLs; remembered for a minute) |
| `/debug/state` | queues, revisions, and every subject that is not as it should be, as JSON; no credential is in it | the same |

`--admin-tls-cert` and `--admin-tls-key` turn TLS on; the files are read again when they change. `/metrics` on another machine without a connected API
server is refused.

Labels have few values: policies, calls of guests, verbs and reasons (`transom explain`); never the name of an object.
`host/deploy/monitoring` holds recording rules, alerts and dashboards that are made of the same list; [install.md](install.md#monitoring) says how they get into the cluster.

## What counts as an attempt

An evaluation of a policy that owns kubeconfigs counts as one attempt when it wrote a Secret or failed. Waiting (for a namespace, a Service, a claim), holding, and
finding everything right are no attempts; nor is a conflict that is tried again at once. Each timed retry is an attempt of its own, so that a subject that keeps failing keeps
counting; how many subjects fail is `transom_subjects{state=\"Failed\"}`.

## Traces

A binary that was built with `--features otel` sends traces by OTLP over plain HTTP where `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) says whereto, such as
`http://collector.observability:4318`; the other variables of OpenTelemetry (service name, headers, sampler, queue) are heeded, too. `env` and `networkPolicy.egressPorts={443,6443,4318}` of the chart set it up.

| span | is | has |
|---|---|---|
| `evaluate` | one evaluation of one subject | `transom.policy`, `transom.subject.kind`, `transom.why`, `transom.state`, `transom.reason` |
| `gather` | one object that was read, or looked for | `transom.kind` |
| `invoke` | one call of a guest | `transom.call` |
| `apply` | the writes of the evaluation | |

A part that failed has the reason as its status. No span has the name of an object, a message, or anything from a document.

## List

";

/// `host/docs/metrics.md`.
pub(super) fn text() -> String {
    let mut out = String::from(HEAD);
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
