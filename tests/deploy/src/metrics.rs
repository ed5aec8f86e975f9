//! The page of the metrics: its list is made from the one in the code, the rest is written by hand.

use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use transom_core::metrics::{ALL, Kind, Metric};

/// The page of the metrics.
pub const PAGE: &str = "host/docs/metrics.md";
/// Where its list begins; everything before is written by hand.
const LIST: &str = "## List\n";

/// The page with the current list.
///
/// # Errors
/// When it has no list.
pub fn page(current: &str) -> Result<String> {
    let (head, _) = current
        .split_once(LIST)
        .with_context(|| format!("{PAGE} has no heading `{}`", LIST.trim()))?;
    let mut out = format!(
        "{head}{LIST}\n<!-- Written by `cargo xtask deploy` from host/core/src/metrics/list.rs. -->\n\n| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n"
    );
    // Writing to a string does not fail.
    for metric in ALL {
        let only = match metric.is_compatibility() {
            true => " Only with `--compatibility-metrics`.",
            false => "",
        };
        let (kind, labels) = (metric.kind.as_str(), labels(metric));
        let Metric {
            name, unit, help, ..
        } = metric;
        let _ = writeln!(
            out,
            "| `{name}` | {kind} | {unit} | {labels} | {help}{only} |"
        );
    }
    out.push_str("\nBounds of the histograms:\n\n");
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(ToString::to_string).collect();
            let _ = writeln!(out, "- `{}`: {}", metric.name, bounds.join(", "));
        }
    }
    Ok(out)
}

fn labels(metric: &Metric) -> String {
    if metric.labels.is_empty() {
        return "\u{2013}".to_owned();
    }
    let labels = metric.labels.iter().map(|label| format!("`{label}`"));
    labels.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_what_was_written_by_hand() {
        let page = page("# By hand\n\n## List\n\nno longer\n").unwrap();
        assert!(page.starts_with("# By hand\n\n## List\n"));
        assert!(!page.contains("no longer") && page.contains("| `transom_leading` | gauge |"));
        assert!(super::page("# No list\n").is_err());
    }
}
