//! Rules and dashboards fit the metrics that the agent exposes, the error budget, and the page that explains them.
//! promtool tests what the rules compute (`tests/e2e`).

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use transom_core::metrics::{ALL, Metric, MetricKind};
use transom_e2e::{program, prometheus};
use transom_test_deploy::generated::METRICS;
use transom_test_deploy::{expression, generated};

/// Labels that Prometheus adds: one install is one job in one namespace.
const OF_PROMETHEUS: [&str; 2] = ["namespace", "job"];
/// Hours of the period of the objective.
const PERIOD_HOURS: f64 = 720.0;
/// The share of attempts that may fail, in percent.
const BUDGET_PERCENT: f64 = 0.5;

/// The rules of every group, in the order in which Prometheus evaluates them.
fn rules() -> Result<Vec<Value>> {
    let path = prometheus::monitoring().join("rules.yaml");
    let rules: Value = serde_yaml::from_str(&fs::read_to_string(path)?)?;
    let mut all = Vec::new();
    for group in list(&rules, "groups")? {
        all.extend_from_slice(list(group, "rules")?);
    }
    Ok(all)
}

fn alerts() -> Result<Vec<Value>> {
    let mut rules = rules()?;
    rules.retain(|rule| rule["alert"].is_string());
    ensure!(!rules.is_empty(), "no alerts");
    Ok(rules)
}

/// The panels of every dashboard.
fn panels() -> Result<Vec<Value>> {
    let mut panels = Vec::new();
    for name in generated::dashboards()? {
        let path = prometheus::monitoring().join("dashboards").join(name);
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
        panels.extend_from_slice(list(&dashboard, "panels")?);
    }
    Ok(panels)
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value]> {
    let list = value[key].as_array().filter(|list| !list.is_empty());
    Ok(list.with_context(|| format!("no {key} in {value}"))?)
}

fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.with_context(|| format!("no {pointer} in {value}"))
}

/// The series that expressions may name, with their labels.
struct Known(BTreeMap<String, BTreeSet<String>>);

impl Known {
    /// Those that the agent exposes without `--compatibility-metrics`.
    fn exposed() -> Self {
        let mut known = BTreeMap::new();
        for metric in exposed() {
            let labels = metric.labels.iter().copied().chain(OF_PROMETHEUS);
            let mut labels: BTreeSet<String> = labels.map(str::to_owned).collect();
            if let MetricKind::Histogram(_) = metric.kind {
                for end in ["_sum", "_count"] {
                    known.insert(format!("{}{end}", metric.name), labels.clone());
                }
                labels.insert("le".to_owned());
                known.insert(format!("{}_bucket", metric.name), labels);
            } else {
                known.insert(metric.name.to_owned(), labels);
            }
        }
        Self(known)
    }

    /// Those and what the rules record. Each rule sees only what an earlier one recorded.
    fn recorded() -> Result<Self> {
        let mut known = Self::exposed();
        for rule in rules()? {
            let labels = known.labels(text(&rule, "/expr")?)?;
            if rule["record"].is_string() {
                known.0.insert(text(&rule, "/record")?.to_owned(), labels);
            } else {
                for annotation in ["/annotations/summary", "/annotations/description"] {
                    shows(text(&rule, annotation)?, "$labels.", &labels)?;
                }
            }
        }
        Ok(known)
    }

    /// The labels of what an expression gives, when everything that it names exists.
    fn labels(&self, expression: &str) -> Result<BTreeSet<String>> {
        let named = expression::read(expression)?;
        for series in named.aggregated.union(&named.bare) {
            ensure!(
                self.0.contains_key(series),
                "no metric `{series}`: {expression}"
            );
        }
        for (series, label) in &named.used {
            ensure!(
                self.0[series].contains(label),
                "`{series}` has no label `{label}`: {expression}"
            );
        }
        let mut labels = named.kept;
        // The quantile of a histogram's buckets has one value for all of them.
        labels.remove("le");
        for series in &named.bare {
            // Each pod has a series of its own; recorded ones are aggregated already.
            ensure!(
                series.contains(':'),
                "`{series}` is not aggregated: {expression}"
            );
            labels.extend(self.0[series].iter().cloned());
        }
        Ok(labels)
    }
}

fn exposed() -> impl Iterator<Item = &'static Metric> {
    ALL.iter()
        .copied()
        .filter(|metric| !metric.is_compatibility())
}

/// Checks that a template shows only these labels. Each stands after a sign.
fn shows(template: &str, sign: &str, labels: &BTreeSet<String>) -> Result<()> {
    for rest in template.split(sign).skip(1) {
        let name = rest.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
        let name = name.into_iter().next().unwrap_or_default();
        ensure!(labels.contains(name), "no label `{name}` for `{template}`");
    }
    Ok(())
}

#[test]
fn rules_and_dashboards_name_only_metrics_and_labels_that_exist() -> Result<()> {
    let known = Known::recorded()?;
    for panel in panels()? {
        for target in list(&panel, "targets")? {
            let labels = known.labels(text(target, "/expr")?)?;
            shows(text(target, "/legendFormat")?, "{{", &labels)?;
        }
    }
    Ok(())
}

#[test]
fn refuses_what_the_agent_does_not_expose() -> Result<()> {
    let known = Known::recorded()?;
    known.labels("sum by (namespace, policy) (transom_primaries{state=\"Failed\"})")?;
    for (expression, error) in [
        ("sum(transom_primary)", "no metric `transom_primary`"),
        ("transom:errors:ratio", "no metric `transom:errors:ratio`"),
        (
            "sum(transom_guest_call_seconds)",
            "no metric `transom_guest_call_seconds`",
        ),
        (
            "sum(mce_hs_addon_kubeconfig_secret_copy_total_count)",
            "no metric `mce_hs",
        ),
        (
            "sum by (polic) (transom_primaries)",
            "`transom_primaries` has no label `polic`",
        ),
        (
            "sum(transom_leading{policy=\"a\"})",
            "`transom_leading` has no label `policy`",
        ),
        (
            "sum by (policy) (transom_leading) / sum by (policy) (transom_primaries)",
            "`transom_leading` has no",
        ),
        (
            "sum(transom:primaries_sound:ratio{state=\"Failed\"})",
            "has no label `state`",
        ),
        (
            "rate(process_cpu_seconds_total[5m])",
            "`process_cpu_seconds_total` is not aggregated",
        ),
    ] {
        let told = known.labels(expression).err().map(|told| told.to_string());
        let told = told.with_context(|| format!("took {expression}"))?;
        ensure!(told.contains(error), "{told}");
    }
    let labels = BTreeSet::from(["policy".to_owned()]);
    ensure!(shows("{{policy}} {{reason}}", "{{", &labels).is_err());
    Ok(())
}

#[test]
fn every_metric_has_a_panel_with_its_meaning() -> Result<()> {
    let panels = panels()?;
    for Metric { name, help, .. } in exposed() {
        let panel = panels.iter().find(|panel| panel["title"] == *name);
        let panel = panel.with_context(|| format!("no panel for {name}"))?;
        ensure!(
            panel["description"] == *help,
            "{name}: {}",
            panel["description"]
        );
        for target in list(panel, "targets")? {
            let named = expression::read(text(target, "/expr")?)?.aggregated;
            let shown = named.contains(*name) || named.contains(&format!("{name}_bucket"));
            ensure!(shown, "{name}: {target}");
        }
    }
    Ok(())
}

#[test]
fn every_panel_reads_the_chosen_data_source() -> Result<()> {
    for panel in panels()? {
        for reader in [&panel].into_iter().chain(list(&panel, "targets")?) {
            ensure!(
                text(reader, "/datasource/uid")? == "${datasource}",
                "{reader}"
            );
        }
    }
    Ok(())
}

#[test]
fn every_alert_has_a_duration_a_severity_and_a_section_on_the_page() -> Result<()> {
    let page = fs::read_to_string(program::root().join(METRICS))?;
    let (_, page) = page.split_once("\n## Alerts\n").context("no alerts")?;
    let (page, _) = page.split_once("\n## ").context("no end of the alerts")?;
    let sections: BTreeMap<&str, &str> = page
        .split("\n### ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .collect();
    let alerts = alerts()?;
    for alert in &alerts {
        let (name, lasting) = (text(alert, "/alert")?, text(alert, "/for")?);
        let severity = text(alert, "/labels/severity")?;
        ensure!(["critical", "warning"].contains(&severity), "{name}");
        ensure!(!["0m", "0s"].contains(&lasting), "{name} fires on a blip");
        let runbook = format!("{METRICS}#{}", name.to_lowercase());
        ensure!(
            text(alert, "/annotations/runbook_url")? == runbook,
            "{name}"
        );
        let section = sections
            .get(name)
            .with_context(|| format!("no section {name}"))?;
        // In a table a bar ends the cell, in code, too.
        let expression = text(alert, "/expr")?.replace('|', "\\|");
        let row = format!("| {severity} | `{expression}` | {lasting} |");
        ensure!(section.contains(&row), "section {name} lacks {row}");
        ensure!(
            section.contains("\nCause: ") && section.contains("\nFix: "),
            "{name}"
        );
    }
    // The page has no row and no section for an alert that does not exist.
    let rows = page.matches("\n| critical |").count() + page.matches("\n| warning |").count();
    ensure!(rows == alerts.len(), "{rows} rows");
    for section in sections.keys() {
        ensure!(
            alerts.iter().any(|alert| alert["alert"] == *section),
            "no alert {section}"
        );
    }
    Ok(())
}

/// What an alert compares with: the number after this text.
fn threshold(expression: &str, after: &str) -> Result<f64> {
    let (_, rest) = expression
        .split_once(after)
        .with_context(|| format!("no `{after}` in {expression}"))?;
    let number = rest.split_whitespace().next().unwrap_or_default();
    Ok(number.parse()?)
}

/// Hours of a duration of Prometheus.
fn hours(duration: &str) -> Result<f64> {
    let (number, unit) = duration.split_at(duration.len() - 1);
    let number: f64 = number.parse()?;
    match unit {
        "h" => Ok(number),
        "d" => Ok(24.0 * number),
        _ => anyhow::bail!("no hours: {duration}"),
    }
}

fn is(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-6
}

/// The windows of alerts on burn rates, each with its short one.
const WINDOWS: [(&str, &str); 4] = [("1h", "5m"), ("6h", "30m"), ("1d", "2h"), ("3d", "6h")];

#[test]
fn burn_rates_follow_from_the_error_budget() -> Result<()> {
    let alerts = alerts()?;
    let burns = alerts
        .iter()
        .filter(|alert| alert["labels"]["window"].is_string());
    let mut count = 0;
    for alert in burns {
        let (window, expression) = (text(alert, "/labels/window")?, text(alert, "/expr")?);
        let (share, long) = window.split_once(" % in ").context("another form")?;
        // How many times faster than allowed the budget is used up.
        let rate = share.parse::<f64>()? / 100.0 * PERIOD_HOURS / hours(long)?;
        let percent = threshold(expression, &format!("ratio_rate{long} > "))?;
        ensure!(is(percent, rate * BUDGET_PERCENT), "{window}: {percent}");
        // The short window ends the alert soon after the failures end.
        let (_, shorter) = WINDOWS
            .iter()
            .find(|(of, _)| *of == long)
            .with_context(|| format!("no short window for {long}"))?;
        let short = expression.split(" and ").nth(1).unwrap_or_default();
        ensure!(
            short.ends_with(&format!("ratio_rate{shorter} > {percent}")),
            "{window}: {short}"
        );
        let summary = text(alert, "/annotations/summary")?;
        let (_, says) = summary.split_once(" fails ").context("another summary")?;
        let expected = format!(" it uses {share} % of the budget in {long}, all of it in ");
        ensure!(is(threshold(summary, " fails ")?, rate), "{window}: {says}");
        ensure!(
            is(threshold(summary, &expected)?, PERIOD_HOURS / rate),
            "{window}: {says}"
        );
        count += 1;
    }
    ensure!(count == 5, "{count} burn rates");
    Ok(())
}

#[test]
fn no_alert_on_attempts_fires_for_a_single_failure() -> Result<()> {
    let mut count = 0;
    for alert in alerts()? {
        let expression = text(&alert, "/expr")?;
        if !expression.contains("transom:copy_errors:ratio_rate") {
            continue;
        }
        let about = || format!("no guard by the number of attempts: {expression}");
        let (first, _) = expression.split_once(" and ").with_context(about)?;
        let (_, window) = first
            .split_once("transom:copy_errors:ratio_rate")
            .with_context(about)?;
        let window: String = window
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        // `100 * (1 - ratio) < 99.5`, `100 * ratio > 0.5` and `ratio > 0.005` are the same.
        let number: f64 = first.rsplit(' ').next().unwrap_or_default().parse()?;
        let ratio = match (first.contains(" < "), first.starts_with("100 * ")) {
            (true, _) => 1.0 - number / 100.0,
            (false, true) => number / 100.0,
            (false, false) => number,
        };
        let attempts = threshold(expression, &format!("copy_attempts:increase{window} > "))?;
        ensure!(1.0 / (attempts + 1.0) <= ratio, "{expression}");
        // Nor do they ask for more attempts than that.
        ensure!(attempts - 1.0 < 1.0 / ratio, "{expression}");
        count += 1;
    }
    ensure!(count == 9, "{count} alerts on attempts");
    Ok(())
}
