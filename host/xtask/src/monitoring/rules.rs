//! Recording rules and alerts. Never an expression without aggregation: a pod that changes must not split a series.

use super::objective::{BURNS, Burn, WINDOWS};
use std::fmt::Write as _;
use transom_core::metrics::{
    BUILD, CAUSE_TO_WRITTEN, COPY_FAILURES, COPY_TOTAL, EXPIRY, LEADING, POLICIES, QUEUE_OLDEST, SUBJECTS,
};

/// One install is one job in one namespace.
const INSTALL: &str = "namespace, job";

/// A rule that records an expression under a name.
struct Recording {
    name: String,
    expression: String,
}

/// A rule that tells people. What it looks at stands left of each comparison, so that a test can look at it, too.
struct Alert {
    name: &'static str,
    expression: String,
    lasting: &'static str,
    severity: &'static str,
    /// Tells alerts of one name and severity apart.
    window: Option<&'static str>,
    summary: String,
}

/// `rules.yaml`, as Prometheus reads it; the same groups fit a PrometheusRule.
pub(super) fn text() -> String {
    let mut out = String::from(
        "# Recording rules and alerts of Transom. Written by `cargo xtask monitoring`; do not edit.\n# The objective: 99.5 % of the attempts to copy a kubeconfig succeed, over 30 days. The budget is one of attempts.\ngroups:\n",
    );
    // The rules of a group are evaluated in order: an alert sees what was recorded just before.
    group(&mut out, "transom-copies", &WINDOWS.map(ratio_over), &copy_alerts());
    let agent_alerts: Vec<_> = presence_alerts().into_iter().chain(agent_alerts()).collect();
    group(&mut out, "transom-agent", &subjects(), &agent_alerts);
    out
}

/// The name under which the ratio of errors over a window is recorded.
pub(super) fn error_ratio(window: &str) -> String {
    format!("transom:copy_errors:ratio_rate{window}")
}

/// The name under which the share of subjects in a state that is no failure is recorded.
pub(super) const SOUND: &str = "transom:subjects_sound:ratio";
/// The name under which the time from cause to written result is recorded.
pub(super) const WRITTEN_P99: &str = "transom:cause_to_written_seconds:p99_5m";

fn ratio_over(window: &str) -> Recording {
    let rate = |name: &str| format!("sum by ({INSTALL}) (rate({name}[{window}]))");
    let (failures, total) = (rate(COPY_FAILURES.name), rate(COPY_TOTAL.name));
    // Where nothing was attempted nothing failed: 0, not 0/0, so that an alert ends when its cause does.
    Recording { name: error_ratio(window), expression: format!("{failures} / ({total} > 0) or 0 * {total}") }
}

fn subjects() -> Vec<Recording> {
    let of = |states: &str| format!("sum by ({INSTALL}, policy) ({}{states})", SUBJECTS.name);
    let failed = of("{state=\"Failed\"}");
    let all = of("");
    let buckets = format!("sum by ({INSTALL}, policy, le) (rate({}_bucket[5m]))", CAUSE_TO_WRITTEN.name);
    vec![
        Recording { name: SOUND.to_owned(), expression: format!("1 - (({failed} or 0 * {all}) / {all})") },
        Recording { name: WRITTEN_P99.to_owned(), expression: format!("histogram_quantile(0.99, {buckets})") },
    ]
}

fn copy_alerts() -> Vec<Alert> {
    let mut alerts: Vec<Alert> = BURNS.iter().map(burning).collect();
    let five = error_ratio("5m");
    let month = error_ratio("30d");
    for (name, expression, lasting, severity, summary) in [
        (
            "TransomCopySuccessLow",
            format!("1 - {five} < 0.95"),
            "5m",
            "critical",
            "Less than 95 % of the attempts to copy a kubeconfig succeed.",
        ),
        (
            "TransomCopySuccessLow",
            format!("1 - {five} < 0.99"),
            "10m",
            "warning",
            "Less than 99 % of the attempts to copy a kubeconfig succeed.",
        ),
        (
            "TransomCopyErrorsHigh",
            format!("{five} > 0.05"),
            "3m",
            "critical",
            "More than 5 % of the attempts to copy a kubeconfig fail.",
        ),
        (
            "TransomCopyErrorsHigh",
            format!("{five} > 0.01"),
            "5m",
            "warning",
            "More than 1 % of the attempts to copy a kubeconfig fail.",
        ),
        (
            "TransomCopyObjectiveMissed",
            format!("1 - {month} < 0.995"),
            "1h",
            "critical",
            "Over 30 days less than 99.5 % of the attempts to copy a kubeconfig succeeded.",
        ),
        (
            "TransomCopyObjectiveEscalated",
            format!("1 - {month} < 0.99"),
            "24h",
            "critical",
            "For a day, less than 99 % of the attempts of the last 30 days succeeded.",
        ),
    ] {
        alerts.push(Alert { name, expression, lasting, severity, window: None, summary: summary.to_owned() });
    }
    alerts
}

fn burning(burn: &Burn) -> Alert {
    let Burn { share, long, short, severity, .. } = burn;
    let ratio = burn.ratio();
    Alert {
        name: "TransomCopyBudgetBurns",
        expression: format!("{} > {ratio} and {} > {ratio}", error_ratio(long.name), error_ratio(short)),
        lasting: "0m",
        severity,
        window: Some(burn.window),
        summary: format!(
            "Attempts to copy a kubeconfig fail {} times faster than the budget allows: {} % of the budget of 30 days in {}, all of it in {} h.",
            round(burn.rate()),
            round(share * 100.0),
            long.name,
            round(burn.hours_left()),
        ),
    }
}

/// Whether agents are there, and one of each install leads.
fn presence_alerts() -> Vec<Alert> {
    let count = |series: &str| format!("count by ({INSTALL}) ({series})");
    vec![
        alert(
            "TransomAbsent",
            format!("(count({}) or vector(0)) < 1", BUILD.name),
            "10m",
            "critical",
            "No agent is scraped.",
        ),
        alert(
            "TransomInstallAbsent",
            format!("({} or 0 * {}) < 1", count(BUILD.name), count(&format!("present_over_time({}[1d])", BUILD.name))),
            "10m",
            "critical",
            "An install that was scraped within the last day is scraped no longer. After an uninstall this ends by itself.",
        ),
        alert(
            "TransomNotOneLeader",
            format!("sum by ({INSTALL}) ({}) != 1", LEADING.name),
            "5m",
            "critical",
            "Not exactly one replica writes.",
        ),
    ]
}

fn agent_alerts() -> Vec<Alert> {
    let ends_in = format!("min by ({INSTALL}, policy) ({}) - time()", EXPIRY.name);
    vec![
        alert(
            "TransomPolicyRefused",
            format!("max by ({INSTALL}) ({}{{status=\"Refused\"}}) > 0", POLICIES.name),
            "10m",
            "warning",
            "A policy was refused; its earlier revision goes on, if there is one. `kubectl get policies` and the log say why.",
        ),
        alert(
            "TransomSubjectsFailed",
            format!("sum by ({INSTALL}, policy, reason) ({}{{state=\"Failed\"}}) > 0", SUBJECTS.name),
            "15m",
            "warning",
            "{{ $value }} subjects of {{ $labels.policy }} have been failing with {{ $labels.reason }}: `transom explain {{ $labels.reason }}`.",
        ),
        alert(
            "TransomQueueStuck",
            format!("max by ({INSTALL}, policy) ({}) > 300", QUEUE_OLDEST.name),
            "5m",
            "warning",
            "A subject of {{ $labels.policy }} has waited for five minutes to be evaluated.",
        ),
        alert(
            "TransomCertificateEnds",
            format!("{ends_in} < 1209600"),
            "1h",
            "warning",
            "A client certificate that was written for {{ $labels.policy }} ends within 14 days.",
        ),
        alert(
            "TransomCertificateEnds",
            format!("{ends_in} < 259200"),
            "1h",
            "critical",
            "A client certificate that was written for {{ $labels.policy }} ends within 3 days.",
        ),
    ]
}

/// An alert of which there is one for its name and severity.
fn alert(
    name: &'static str,
    expression: String,
    lasting: &'static str,
    severity: &'static str,
    summary: &str,
) -> Alert {
    Alert { name, expression, lasting, severity, window: None, summary: summary.to_owned() }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn group(out: &mut String, name: &str, recordings: &[Recording], alerts: &[Alert]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "- name: {name}\n  rules:");
    for Recording { name, expression } in recordings {
        let _ = writeln!(out, "  - record: {name}\n    expr: {}", quoted(expression));
    }
    for Alert { name, expression, lasting, severity, window, summary } in alerts {
        let _ = writeln!(
            out,
            "  - alert: {name}\n    expr: {}\n    for: {lasting}\n    labels:\n      severity: {severity}\n{}    annotations:\n      summary: {}",
            quoted(expression),
            window.map(|window| format!("      window: {}\n", quoted(window))).unwrap_or_default(),
            quoted(summary),
        );
    }
}

/// A text as YAML takes it whatever it holds.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
