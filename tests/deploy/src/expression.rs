//! What an expression of PromQL names. Reads the forms that our rules and dashboards have, and refuses others.

use anyhow::{Context as _, Result, bail};
use regex_lite::Regex;
use std::collections::BTreeSet;

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Series within aggregations.
    pub aggregated: BTreeSet<String>,
    /// Series outside of them: results have all their labels.
    pub bare: BTreeSet<String>,
    /// Each series with a label that it is selected or grouped by.
    pub used: BTreeSet<(String, String)>,
    /// The labels that aggregations keep.
    pub kept: BTreeSet<String>,
}

/// Reads the names in an expression.
///
/// # Errors
/// When the expression has a form that this reader does not know.
pub fn read(expression: &str) -> Result<Named> {
    let text = Regex::new(r#""(?:[^"\\]|\\.)*""#)?.replace_all(expression, "0");
    let mut named = Named::default();
    for found in Regex::new(r"([A-Za-z_:][\w:]*)?\{([^}]*)\}")?.captures_iter(&text) {
        let series = found.get(1).context("a selector without a name")?.as_str();
        named.uses(series, &words(&found[2])?);
    }
    let aggregation = Regex::new(r"\b(?:sum|min|max|count)\s*(?:by\s*\(([^)]*)\)\s*)?\(")?;
    let mut rest = text.into_owned();
    while let Some(found) = aggregation.captures(&rest) {
        let labels = words(found.get(1).map_or("", |labels| labels.as_str()))?;
        let range = found.get(0).context("no match")?.range();
        let inner = closed(&rest[range.end..]).context("an open bracket")?;
        let end = range.end + inner.len() + 1;
        let inside = series(inner)?;
        for series in &inside {
            named.uses(series, &labels);
        }
        named.aggregated.extend(inside);
        named.kept.extend(labels);
        rest.replace_range(range.start..end, "0");
    }
    named.bare = series(&rest)?;
    Ok(named)
}

impl Named {
    fn uses(&mut self, series: &str, labels: &BTreeSet<String>) {
        let pairs = labels
            .iter()
            .map(|label| (series.to_owned(), label.clone()));
        self.used.extend(pairs);
    }
}

/// The series in an expression without texts and aggregations: every word that is no function or operator.
fn series(text: &str) -> Result<BTreeSet<String>> {
    // Words that only a form unknown to this reader leaves over.
    let unknown = r#"['"`]|\b(?:by|without|ignoring|group_left|group_right|on\s*\(\s*\w+|sum|min|max|count)\b"#;
    if let Some(found) = Regex::new(unknown)?.find(text) {
        bail!("`{}` is not expected in `{text}`", found.as_str());
    }
    let plain = Regex::new(r"\{[^}]*\}|\[[^\]]*\]|\b\w+\s*\(|\b(?:and|or|unless)\b")?;
    words(&plain.replace_all(text, " "))
}

fn words(text: &str) -> Result<BTreeSet<String>> {
    let word = Regex::new(r"\b[A-Za-z_:][\w:]*")?;
    Ok(word
        .find_iter(text)
        .map(|word| word.as_str().to_owned())
        .collect())
}

/// The text up to the bracket that closes the one before it.
fn closed(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.find(|sign| {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    text.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn reads_series_and_labels() {
        let expression = r#"1e2 * sum by (job, le) (rate(a_bucket{state=~"x \"y", kind="b"}[5m])) / (r:c - time()) or on () vector(0) and count(d) > 1"#;
        let used = [
            ("job", "a_bucket"),
            ("kind", "a_bucket"),
            ("le", "a_bucket"),
            ("state", "a_bucket"),
        ];
        assert_eq!(
            read(expression).unwrap(),
            Named {
                aggregated: set(&["a_bucket", "d"]),
                bare: set(&["r:c"]),
                used: used
                    .map(|(label, series)| (series.to_owned(), label.to_owned()))
                    .into(),
                kept: set(&["job", "le"]),
            }
        );
    }

    #[test]
    fn refuses_forms_that_it_would_misread() {
        for expression in [
            "sum(a) by (job)",
            "sum without (job) (a)",
            "a * on (job) group_left b",
            "topk by (job) (3, a)",
            "sum by (job) (max by (job, policy) (a))",
            r#"{__name__="a"}"#,
            "a{state='Failed'}",
            "sum by (job) (a",
        ] {
            assert!(read(expression).is_err(), "{expression}");
        }
    }
}
