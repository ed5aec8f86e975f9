//! Recording rules, and the groups of rules as text. Every expression aggregates: a pod that changes must not split a
//! series, and a standby replica must not add its own.

use super::alert::{Alert, quoted, sum};
use super::objective::WINDOWS;
use super::{INSTALL, health, slo};
use std::fmt::Write as _;
use transom_core::metrics::{CAUSE_TO_WRITTEN, COPY_FAILURES, COPY_TOTAL, PRIMARIES};

/// A rule that records an expression under a name.
struct Recording {
    name: String,
    expression: String,
}

/// `rules.yaml`, as Prometheus reads it; the same groups fit a PrometheusRule.
pub(super) fn text() -> String {
    let mut out = String::from(
        "# Recording rules and alerts of Transom. Written by `cargo xtask monitoring`; do not edit.\n# The objective: 99.5 % of the attempts to deliver a kubeconfig succeed, over 30 days. The error budget counts\n# attempts, not hours.\ngroups:\n",
    );
    // Prometheus evaluates the rules of a group in order: an alert sees what was recorded just before.
    group(
        &mut out,
        "external-managed-kubeconfig-slo",
        &recordings(),
        &slo::alerts(),
    );
    group(
        &mut out,
        "transom-agent",
        &[written_p99()],
        &health::alerts(),
    );
    out
}

/// The name under which the ratio of errors over a window is recorded.
pub(super) fn error_ratio(window: &str) -> String {
    format!("transom:copy_errors:ratio_rate{window}")
}

/// The name under which the number of attempts in a window is recorded.
pub(super) fn attempts(window: &str) -> String {
    format!("transom:copy_attempts:increase{window}")
}

/// The name under which the share of primaries that are not `Failed` is recorded.
pub(super) const SOUND: &str = "transom:primaries_sound:ratio";
/// The name under which the time from cause to written result is recorded.
pub(super) const WRITTEN_P99: &str = "transom:cause_to_written_seconds:p99_5m";

fn recordings() -> Vec<Recording> {
    let windows = WINDOWS.iter();
    windows
        .clone()
        .map(|window| ratio_over(window))
        .chain(windows.map(|window| attempts_in(window)))
        .chain([sound()])
        .collect()
}

fn ratio_over(window: &str) -> Recording {
    let rate = |name: &str| sum("", &format!("rate({name}[{window}])"));
    let (failures, total) = (rate(COPY_FAILURES.name), rate(COPY_TOTAL.name));
    // Without attempts the ratio is 0, not 0/0, so that an alert ends when its cause does.
    Recording {
        name: error_ratio(window),
        expression: format!("{failures} / ({total} > 0) or 0 * {total}"),
    }
}

fn attempts_in(window: &str) -> Recording {
    Recording {
        name: attempts(window),
        expression: sum("", &format!("increase({}[{window}])", COPY_TOTAL.name)),
    }
}

fn sound() -> Recording {
    let of = |states: &str| sum(", policy", &format!("{}{states}", PRIMARIES.name));
    let (failed, all) = (of("{state=\"Failed\"}"), of(""));
    Recording {
        name: SOUND.to_owned(),
        expression: format!("1 - (({failed} or 0 * {all}) / {all})"),
    }
}

fn written_p99() -> Recording {
    let buckets = format!(
        "sum by ({INSTALL}, policy, le) (rate({}_bucket[5m]))",
        CAUSE_TO_WRITTEN.name
    );
    Recording {
        name: WRITTEN_P99.to_owned(),
        expression: format!("histogram_quantile(0.99, {buckets})"),
    }
}

fn group(out: &mut String, name: &str, recordings: &[Recording], alerts: &[Alert]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "- name: {name}\n  rules:");
    for Recording { name, expression } in recordings {
        let _ = writeln!(out, "  - record: {name}\n    expr: {}", quoted(expression));
    }
    alerts.iter().for_each(|alert| alert.write(out));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_has_a_runbook_and_a_duration() {
        let pages: Vec<&str> = slo::PAGES
            .iter()
            .chain(&health::PAGES)
            .map(|page| page.name)
            .collect();
        let alerts: Vec<Alert> = slo::alerts().into_iter().chain(health::alerts()).collect();
        for alert in &alerts {
            assert!(pages.contains(&alert.name), "{} has no page", alert.name);
            assert_ne!(alert.lasting, "0m", "{} fires on a blip", alert.name);
            assert!(
                ["critical", "warning"].contains(&alert.severity),
                "{}",
                alert.name
            );
        }
        for page in &pages {
            assert!(
                alerts.iter().any(|alert| alert.name == *page),
                "no alert has the name {page}"
            );
        }
    }
}
