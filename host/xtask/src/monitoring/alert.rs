//! One alert: its expression and severity, and what its page says.

use super::INSTALL;
use std::fmt::Write as _;

/// Where the pages of the alerts lie, from the root of the repository; the headings are the names of the alerts.
const RUNBOOKS: &str = "host/docs/metrics.md";

/// An alerting rule. The measured value stands left of each comparison, so that a test can read it, too.
pub(super) struct Alert {
    /// Its name; that of the original specification, if it has one.
    pub(super) name: &'static str,
    /// The expression that Prometheus evaluates.
    pub(super) expression: String,
    /// How long it has to hold before the alert fires.
    pub(super) lasting: &'static str,
    /// `critical` pages, `warning` waits for the morning.
    pub(super) severity: &'static str,
    /// More labels: `slo`, and those that distinguish alerts of one name and severity.
    pub(super) labels: Vec<(&'static str, &'static str)>,
    /// One sentence for a list.
    pub(super) summary: String,
    /// One sentence with the numbers of the case.
    pub(super) description: &'static str,
}

/// The section of the page about all alerts of one name.
pub(super) struct Page {
    /// The name of the alerts.
    pub(super) name: &'static str,
    /// What may be behind it.
    pub(super) cause: &'static str,
    /// What to do.
    pub(super) cure: &'static str,
}

/// Sums a metric for each install; `more` are further labels to sum by.
pub(super) fn sum(more: &str, values: &str) -> String {
    format!("sum by ({INSTALL}{more}) ({values})")
}

/// A text quoted for YAML, whatever it holds.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Alert {
    /// The same with one more label.
    pub(super) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.labels.push((name, value));
        self
    }

    /// Writes the alert as a rule of a group.
    pub(super) fn write(&self, out: &mut String) {
        let Self {
            name,
            expression,
            lasting,
            severity,
            labels,
            summary,
            description,
        } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "  - alert: {name}\n    expr: {}\n    for: {lasting}",
            quoted(expression)
        );
        let _ = writeln!(out, "    labels:\n      severity: {severity}");
        for (label, value) in labels {
            let _ = writeln!(out, "      {label}: {}", quoted(value));
        }
        let runbook = format!("{RUNBOOKS}#{}", name.to_lowercase());
        let _ = writeln!(
            out,
            "    annotations:\n      summary: {}\n      description: {}\n      runbook_url: {}",
            quoted(summary),
            quoted(description),
            quoted(&runbook),
        );
    }
}
