//! Dashboards for Grafana: what the service promises, and a panel for each metric of the list.
//! Never an expression with a variable: each is evaluated by a test as it stands.

use super::objective::BUDGET;
use super::rules::{SOUND, WRITTEN_P99, error_ratio};
use serde_json::{Value, json};
use transom_core::metrics::{
    ALL, CALL_FAILURES, CALL_LOG_LINES, COPY_FAILURES, COPY_TOTAL, Kind, Metric, REPAIRED, REQUESTS, WATCH_OBJECTS,
    WATCH_RESTARTS,
};

/// Metrics that have no value while nothing goes wrong, nobody logs, or no API server is connected.
const RARE: [&str; 6] =
    [REPAIRED.name, CALL_FAILURES.name, CALL_LOG_LINES.name, REQUESTS.name, WATCH_RESTARTS.name, WATCH_OBJECTS.name];
/// Panels in a row; the grid has 24 columns.
const COLUMNS: usize = 3;
/// Columns of a panel.
const WIDTH: usize = 24 / COLUMNS;
/// Rows of the grid that a panel takes.
const HEIGHT: usize = 8;

/// One panel.
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
}

/// What the service promises, and what is left of it.
pub(super) fn service_level() -> Value {
    let objective = 1.0 - BUDGET;
    let success = |window: &str| format!("1 - {}", error_ratio(window));
    let left = format!("1 - {} / {BUDGET}", error_ratio("30d"));
    let rate = |metric: &Metric| format!("sum by (namespace, job) (rate({}[5m]))", metric.name);
    let shares = vec![("red", None), ("yellow", Some(0.99)), ("green", Some(objective))];
    let burn = |window: &str| (format!("{} / {BUDGET}", error_ratio(window)), window.to_owned());
    let panel = |title: &str, form, unit, targets: Vec<(String, &str)>, steps| Panel {
        title: title.to_owned(),
        description: String::new(),
        form,
        unit,
        targets: targets.into_iter().map(|(expression, legend)| (expression, legend.to_owned())).collect(),
        steps,
    };
    let mut burns =
        panel("Burn rate of the budget (1 uses it up in 30 days)", "timeseries", "short", Vec::new(), Vec::new());
    burns.targets = ["1h", "6h", "1d", "3d"].map(burn).to_vec();
    dashboard(
        "transom-service-level",
        "Transom: service level",
        &[
            panel(
                "Attempts that succeed, 30 days (objective 99.5 %)",
                "stat",
                "percentunit",
                vec![(success("30d"), "30 days")],
                shares.clone(),
            ),
            panel(
                "Error budget that is left, 30 days",
                "stat",
                "percentunit",
                vec![(left, "left")],
                vec![("red", None), ("yellow", Some(0.25)), ("green", Some(0.5))],
            ),
            panel("Subjects that do not fail", "stat", "percentunit", vec![(SOUND.to_owned(), "{{policy}}")], shares),
            panel(
                "Attempts that succeed",
                "timeseries",
                "percentunit",
                vec![(success("5m"), "5 minutes"), (success("1h"), "1 hour")],
                Vec::new(),
            ),
            burns,
            panel(
                "Attempts",
                "timeseries",
                "ops",
                vec![(rate(&COPY_TOTAL), "all"), (rate(&COPY_FAILURES), "failed")],
                Vec::new(),
            ),
            panel(
                "From cause to written result, 99 %",
                "timeseries",
                "s",
                vec![(WRITTEN_P99.to_owned(), "{{policy}}")],
                Vec::new(),
            ),
        ],
    )
}

/// Each metric of the list.
pub(super) fn agent() -> Value {
    let exposed = ALL.iter().filter(|metric| !metric.is_compatibility());
    dashboard("transom-agent", "Transom: agent", &exposed.map(|metric| of(metric)).collect::<Vec<_>>())
}

fn of(metric: &Metric) -> Panel {
    let (unit, targets) = match metric.kind {
        Kind::Counter => {
            (per_second(metric), vec![target(metric, &sum(metric, &format!("rate({}[5m])", metric.name)))])
        }
        Kind::Gauge => (plain(metric), vec![target(metric, &sum(metric, metric.name))]),
        Kind::Histogram(_) => (plain(metric), [0.5, 0.99].map(|quantile| share(metric, quantile)).to_vec()),
    };
    Panel {
        title: metric.name.to_owned(),
        description: metric.help.to_owned(),
        form: "timeseries",
        unit,
        targets,
        steps: Vec::new(),
    }
}

fn sum(metric: &Metric, values: &str) -> String {
    // Ages, times and limits are not added up.
    let (aggregate, empty) = match metric.unit {
        "seconds" if metric.kind == Kind::Gauge => ("max", ""),
        "seconds since 1970" => ("min", ""),
        _ if RARE.contains(&metric.name) => ("sum", " or on() vector(0)"),
        _ => ("sum", ""),
    };
    let by: Vec<&str> = ["namespace", "job"].iter().chain(metric.labels).copied().collect();
    format!("{aggregate} by ({}) ({values}){empty}", by.join(", "))
}

fn share(metric: &Metric, quantile: f64) -> (String, String) {
    let by: Vec<&str> = ["namespace", "job"].iter().chain(metric.labels).chain(&["le"]).copied().collect();
    let buckets = format!("sum by ({}) (rate({}_bucket[5m]))", by.join(", "), metric.name);
    let (_, legend) = target(metric, "");
    (format!("histogram_quantile({quantile}, {buckets})"), format!("{legend} {} %", quantile * 100.0).trim().to_owned())
}

fn target(metric: &Metric, expression: &str) -> (String, String) {
    let legend: Vec<String> = metric.labels.iter().map(|label| format!("{{{{{label}}}}}")).collect();
    (expression.to_owned(), legend.join(" "))
}

fn per_second(metric: &Metric) -> &'static str {
    if metric.unit == "seconds" { "percentunit" } else { "ops" }
}

fn plain(metric: &Metric) -> &'static str {
    match metric.unit {
        "seconds" => "s",
        "bytes" => "bytes",
        _ => "short",
    }
}

fn dashboard(uid: &str, title: &str, panels: &[Panel]) -> Value {
    let panels: Vec<Value> = panels.iter().enumerate().map(|(index, panel)| drawn(index, panel)).collect();
    json!({
        "uid": uid,
        "title": title,
        "tags": ["transom"],
        "schemaVersion": 39,
        "editable": false,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
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
    let steps = panel.steps.iter().map(|(color, value)| json!({"color": color, "value": value}));
    let mut defaults = json!({"unit": panel.unit});
    if !panel.steps.is_empty() {
        defaults["thresholds"] = json!({"mode": "absolute", "steps": steps.collect::<Vec<_>>()});
    }
    json!({
        "id": index + 1,
        "type": panel.form,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {"x": index % COLUMNS * WIDTH, "y": index / COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "targets": targets.collect::<Vec<_>>(),
        "fieldConfig": {"defaults": defaults, "overrides": []},
    })
}
