//! Dashboards for Grafana: the objective of the service, and a panel for each metric of the list. Expressions contain
//! no variables, because a test evaluates each as it stands.

use super::objective::BUDGET;
use super::rules::{SOUND, WRITTEN_P99, attempts, error_ratio};
use serde_json::{Value, json};
use transom_core::metrics::{ALL, COPY_FAILURES, COPY_TOTAL, Kind, Metric};

/// Panels in a row; the grid has 24 columns.
const COLUMNS: usize = 3;
/// Columns of a panel.
const WIDTH: usize = 24 / COLUMNS;
/// Rows of the grid that a panel takes.
const HEIGHT: usize = 8;

/// One panel.
#[derive(Default)]
struct Panel {
    title: String,
    description: String,
    /// `stat` or `timeseries`.
    form: &'static str,
    /// As Grafana calls it.
    unit: &'static str,
    /// Expressions, each with its legend.
    targets: Vec<(String, String)>,
    /// Values from which a colour holds, ascending.
    steps: Vec<(&'static str, Option<f64>)>,
    /// The shortest time between two values, if it is not the dashboard's.
    interval: Option<&'static str>,
}

impl Panel {
    fn new(
        title: &str,
        form: &'static str,
        unit: &'static str,
        targets: &[(String, &str)],
    ) -> Self {
        let targets = targets
            .iter()
            .map(|(expression, legend)| (expression.clone(), (*legend).to_owned()));
        Self {
            title: title.to_owned(),
            form,
            unit,
            targets: targets.collect(),
            ..Self::default()
        }
    }

    /// The same panel, yellow and green from these values on, red below.
    fn coloured(self, yellow: f64, green: f64) -> Self {
        Self {
            steps: vec![
                ("red", None),
                ("yellow", Some(yellow)),
                ("green", Some(green)),
            ],
            ..self
        }
    }
}

/// The share of attempts that succeed, or fail, in percent as in the original specification.
fn succeed(window: &str) -> String {
    format!("100 * (1 - {})", error_ratio(window))
}

fn fail(window: &str) -> String {
    format!("100 * {}", error_ratio(window))
}

/// The objective of the service, and what is left of its budget, over the period of the objective.
pub(super) fn objectives() -> Value {
    let left = format!("1 - {} / {BUDGET}", error_ratio("30d"));
    let burn = |window| (format!("{} / {BUDGET}", error_ratio(window)), window);
    let by_day = Panel::new(
        "Availability by day",
        "timeseries",
        "percent",
        &[(succeed("1d"), "previous day")],
    );
    dashboard(
        (
            "transom-service-level",
            "External-Managed-Kubeconfig SLOs",
            "now-30d",
        ),
        &[
            Panel::new(
                "Availability SLO (99.5%)",
                "stat",
                "percent",
                &[(succeed("30d"), "30-day Availability")],
            )
            .coloured(99.0, 100.0 * (1.0 - BUDGET)),
            Panel::new(
                "Remaining error budget, 30 days",
                "stat",
                "percentunit",
                &[(left, "remaining")],
            )
            .coloured(0.25, 0.5),
            Panel::new(
                "Error Budget Burn Rate",
                "timeseries",
                "percent",
                &[(fail("1h"), "Hourly Error Rate")],
            ),
            Panel::new(
                "Error budget burn rate (1 = used up in 30 days)",
                "timeseries",
                "short",
                &["1h", "6h", "1d", "3d"].map(burn),
            ),
            Panel {
                interval: Some("1d"),
                ..by_day
            },
            Panel::new(
                "Attempts in 30 days",
                "stat",
                "short",
                &[(attempts("30d"), "attempts")],
            ),
        ],
    )
}

/// The indicators of the service now.
pub(super) fn indicators() -> Value {
    let rate = |metric: &Metric| format!("sum by (namespace, job) (rate({}[5m]))", metric.name);
    dashboard(
        (
            "transom-generation",
            "External-Managed-Kubeconfig Generation SLIs",
            "now-6h",
        ),
        &[
            Panel::new(
                "Success Rate",
                "stat",
                "percent",
                &[(succeed("5m"), "5 minutes")],
            )
            .coloured(95.0, 99.0),
            Panel::new(
                "Error Rate",
                "timeseries",
                "percent",
                &[(fail("5m"), "5 minutes"), (fail("1h"), "1 hour")],
            ),
            Panel::new(
                "Primaries that do not fail",
                "stat",
                "percentunit",
                &[(SOUND.to_owned(), "{{policy}}")],
            )
            .coloured(0.95, 0.99),
            Panel::new(
                "Attempts",
                "timeseries",
                "ops",
                &[(rate(&COPY_TOTAL), "all"), (rate(&COPY_FAILURES), "failed")],
            ),
            Panel::new(
                "From cause to written result, p99",
                "timeseries",
                "s",
                &[(WRITTEN_P99.to_owned(), "{{policy}}")],
            ),
        ],
    )
}

/// A panel for each metric of the list.
pub(super) fn agent() -> Value {
    let exposed = ALL.iter().filter(|metric| !metric.is_compatibility());
    dashboard(
        ("transom-agent", "Transom: agent", "now-6h"),
        &exposed.map(|metric| of(metric)).collect::<Vec<_>>(),
    )
}

fn of(metric: &Metric) -> Panel {
    let (unit, targets) = match metric.kind {
        Kind::Counter => (
            per_second(metric),
            vec![target(
                metric,
                &sum(metric, &format!("rate({}[5m])", metric.name)),
            )],
        ),
        Kind::Gauge => (
            plain(metric),
            vec![target(metric, &sum(metric, metric.name))],
        ),
        Kind::Histogram(_) => (
            plain(metric),
            [0.5, 0.99].map(|quantile| share(metric, quantile)).to_vec(),
        ),
    };
    Panel {
        title: metric.name.to_owned(),
        description: metric.help.to_owned(),
        form: "timeseries",
        unit,
        targets,
        ..Panel::default()
    }
}

fn sum(metric: &Metric, values: &str) -> String {
    // Ages, times and limits are not added up.
    let (aggregate, empty) = match metric.unit {
        "seconds" if metric.kind == Kind::Gauge => ("max", ""),
        "seconds since 1970" => ("min", ""),
        _ if metric.is_rare() => ("sum", " or on() vector(0)"),
        _ => ("sum", ""),
    };
    let by: Vec<&str> = ["namespace", "job"]
        .iter()
        .chain(metric.labels)
        .copied()
        .collect();
    format!("{aggregate} by ({}) ({values}){empty}", by.join(", "))
}

fn share(metric: &Metric, quantile: f64) -> (String, String) {
    let by: Vec<&str> = ["namespace", "job"]
        .iter()
        .chain(metric.labels)
        .chain(&["le"])
        .copied()
        .collect();
    let buckets = format!(
        "sum by ({}) (rate({}_bucket[5m]))",
        by.join(", "),
        metric.name
    );
    let (_, legend) = target(metric, "");
    (
        format!("histogram_quantile({quantile}, {buckets})"),
        format!("{legend} {} %", quantile * 100.0).trim().to_owned(),
    )
}

fn target(metric: &Metric, expression: &str) -> (String, String) {
    let legend: Vec<String> = metric
        .labels
        .iter()
        .map(|label| format!("{{{{{label}}}}}"))
        .collect();
    (expression.to_owned(), legend.join(" "))
}

fn per_second(metric: &Metric) -> &'static str {
    if metric.unit == "seconds" {
        "percentunit"
    } else {
        "ops"
    }
}

fn plain(metric: &Metric) -> &'static str {
    match metric.unit {
        "seconds" => "s",
        "bytes" => "bytes",
        _ => "short",
    }
}

/// A dashboard by its id, title, and the time from which it shows.
fn dashboard((uid, title, from): (&str, &str, &str), panels: &[Panel]) -> Value {
    let panels: Vec<Value> = panels
        .iter()
        .enumerate()
        .map(|(index, panel)| drawn(index, panel))
        .collect();
    json!({
        "uid": uid,
        "title": title,
        "tags": ["transom"],
        "schemaVersion": 39,
        "editable": false,
        "refresh": "30s",
        "time": {"from": from, "to": "now"},
        "templating": {"list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    })
}

fn drawn(index: usize, panel: &Panel) -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let targets = panel.targets.iter().enumerate().map(|(number, (expression, legend))| {
        let letter = char::from(b'A' + u8::try_from(number).unwrap_or_default());
        json!({"refId": letter, "expr": expression, "legendFormat": legend, "datasource": source})
    });
    let steps = panel
        .steps
        .iter()
        .map(|(color, value)| json!({"color": color, "value": value}));
    let mut defaults = json!({"unit": panel.unit});
    if !panel.steps.is_empty() {
        defaults["thresholds"] = json!({"mode": "absolute", "steps": steps.collect::<Vec<_>>()});
    }
    let mut drawn = json!({
        "id": index + 1,
        "type": panel.form,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {"x": index % COLUMNS * WIDTH, "y": index / COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "targets": targets.collect::<Vec<_>>(),
        "fieldConfig": {"defaults": defaults, "overrides": []},
    });
    if let Some(interval) = panel.interval {
        drawn["interval"] = interval.into();
    }
    drawn
}
