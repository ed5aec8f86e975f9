//! The files below `host` that are generated from the sources, and in part the page of the metrics, whose rest is
//! written by hand. `cargo xtask deploy` writes them.

use crate::rendered;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_api::KnownReason;
use transom_core::metrics::{ALL, Metric, MetricKind};
use transom_e2e::program;

/// The bundled policies, with the file name suffixes for both and for neither of them.
const POLICIES: [&str; 2] = ["built-in-taints", "external-managed-kubeconfig"];
const BOTH: &str = "both";
const NONE: &str = "none";
/// What the chart may install of them.
pub const INSTALLS: [&str; 4] = [BOTH, POLICIES[0], POLICIES[1], NONE];
/// The folder of the dashboards.
const DASHBOARDS: &str = "host/deploy/monitoring/dashboards";
/// The flags of `transom run` in both ways of installing that affect permissions.
const INSTALLED: [&str; 7] = [
    "--policy-objects",
    "--lease-namespace",
    "transom",
    "--sources",
    "builtin,file,configmap:transom/*",
    "--admin-address",
    "[::]:8080",
];

/// A generated file.
#[derive(Debug)]
pub struct Generated {
    /// Its path from the root.
    pub path: String,
    /// Its required content.
    pub text: String,
}

/// All of them; the chart contains copies, because helm reads nothing outside its folder.
///
/// # Errors
/// When the binary cannot be built or fails, or a policy cannot be read.
pub fn all() -> Result<Vec<Generated>> {
    let crd = rendered::said(Command::new(program::binary()?).arg("crd"))?;
    let approval = read("host/deploy/base/approval.yaml")?;
    let mut all = vec![
        Generated::new("host/deploy/base/crd.yaml", &crd),
        Generated::new("host/deploy/chart/crds/crd.yaml", &crd),
        Generated::new("host/deploy/chart/templates/approval.yaml", &approval),
        Generated::new("host/docs/reasons.md", &reasons()?),
        Generated::new(METRICS, &metrics_page(&read(METRICS)?)?),
    ];
    all.extend(monitoring()?);
    for policy in POLICIES {
        let text = read(&format!("policies/{policy}/policy.yaml"))?;
        all.push(Generated::new(
            &format!("host/deploy/chart/files/{policy}.yaml"),
            &text,
        ));
    }
    for (reads, read_only) in [
        ("watch", false),
        ("strict", false),
        ("watch", true),
        ("strict", true),
    ] {
        for policies in INSTALLS {
            if reads == "strict" && !reads_secrets(policies) {
                continue;
            }
            let text = rbac(policies, reads, read_only)?;
            let end = if read_only { "-read-only" } else { "" };
            all.push(Generated::new(
                &format!("host/deploy/chart/files/rbac/{policies}-{reads}{end}.yaml"),
                &text,
            ));
            match (policies, reads, read_only) {
                (BOTH, "watch", false) => {
                    all.push(Generated::new("host/deploy/base/rbac.yaml", &text));
                }
                (BOTH, "strict", false) => {
                    all.push(Generated::new("host/deploy/strict/rbac.yaml", &text));
                }
                _ => {}
            }
        }
    }
    Ok(all)
}

/// Whether one of the policies reads Secrets. Where none does, the permissions do not depend on how Secrets are read,
/// and the chart installs those of `watch`.
fn reads_secrets(policies: &str) -> bool {
    [BOTH, POLICIES[1]].contains(&policies)
}

/// Rules and dashboards of `host/deploy/monitoring`, in the form for both ways of installing.
fn monitoring() -> Result<Vec<Generated>> {
    let rules = read("host/deploy/monitoring/rules.yaml")?;
    let mut all = vec![
        Generated::new("host/deploy/chart/files/rules.yaml", &rules),
        Generated::new(
            "host/deploy/monitoring/prometheusrule.yaml",
            &prometheus_rule(&rules),
        ),
    ];
    for name in dashboards()? {
        let text = read(&format!("{DASHBOARDS}/{name}"))?;
        all.push(Generated::new(
            &format!("host/deploy/chart/files/dashboards/{name}"),
            &text,
        ));
    }
    Ok(all)
}

/// The names of the files of all dashboards.
///
/// # Errors
/// When their folder cannot be read.
pub fn dashboards() -> Result<BTreeSet<String>> {
    let about = || format!("failed to read `{DASHBOARDS}`");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(program::root().join(DASHBOARDS)).with_context(about)? {
        let name = entry.with_context(about)?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".json") {
            names.insert(name.into_owned());
        }
    }
    Ok(names)
}

/// The rules as an object of the Prometheus operator.
fn prometheus_rule(rules: &str) -> String {
    let mut text = "# The rules of rules.yaml for the Prometheus operator; made by `cargo xtask deploy`, never by hand.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: transom
  namespace: transom
  labels:
    app.kubernetes.io/name: transom
spec:
"
    .to_owned();
    for line in rules.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(program::root().join(path))
        .with_context(|| format!("failed to read `{path}`"))
}

/// The output of `transom rbac` for one of [`INSTALLS`], with a header line.
///
/// # Errors
/// With the error of the agent.
pub fn rbac(policies: &str, reads: &str, read_only: bool) -> Result<String> {
    let mut flags = [
        &["--name", "transom"],
        &INSTALLED[..],
        &["--secret-reads", reads],
    ]
    .concat();
    flags.extend(read_only.then_some("--read-only"));
    let mut transom = Command::new(program::binary()?);
    transom.arg("rbac").args(&flags);
    let empty = tempfile::tempdir().context("failed to make a folder without policies")?;
    let what = match policies {
        BOTH => "the policies that ship".to_owned(),
        NONE => {
            transom.arg("--policies").arg(empty.path());
            "an agent without policies".to_owned()
        }
        one => {
            transom
                .arg("--policies")
                .arg(program::root().join("policies").join(one));
            format!("the policy {one}")
        }
    };
    let printed = rendered::said(&mut transom)?;
    Ok(format!(
        "# What `transom rbac {}` prints for {what}; made by `cargo xtask deploy`, never by hand.\n{printed}",
        flags.join(" ")
    ))
}

/// The origins in `transom explain` that are not guests.
const OF_THE_AGENT: [&str; 4] = ["agent", "state", "condition", "cause"];

/// Every reason with cause and remedy, as a page: the agent's own from their table, those of guests from `transom
/// explain`.
fn reasons() -> Result<String> {
    let mut text = "# Reasons: why something is as it is\n\nGenerated by `cargo xtask deploy`. Conditions, Events, metrics and logs have the same word, and `transom explain <word>` prints the same explanation.\n\n| reason | meaning | remedy |\n|---|---|---|\n".to_owned();
    // Writing to a string does not fail.
    for word in KnownReason::ALL {
        let _ = writeln!(
            text,
            "| `{word}` | {} | {} |",
            word.meaning(),
            word.remedy(),
            word = word.as_str()
        );
    }
    text.push_str(
        "\n## Reasons of guests\n\n| reason | guest | meaning | remedy |\n|---|---|---|---|\n",
    );
    let all = explain(&[])?;
    let mut of_guests = Vec::new();
    for line in all.lines() {
        let mut columns = line.split_whitespace();
        let (word, whose) = (
            columns.next().unwrap_or_default(),
            columns.next().unwrap_or_default(),
        );
        if !OF_THE_AGENT.contains(&whose) {
            of_guests.push((word, whose));
        }
    }
    // In one call, because each one loads all guests.
    let words: BTreeSet<&str> = of_guests.iter().map(|(word, _)| *word).collect();
    let explained = explain(&words.into_iter().collect::<Vec<_>>())?;
    for (word, whose) in of_guests {
        let (meaning, remedy) = of_guest(&explained, word, whose)?;
        let _ = writeln!(text, "| `{word}` | {whose} | {meaning} | {remedy} |");
    }
    Ok(text)
}

/// What the output of `transom explain` says of the reason of one guest: several guests may use a reason with different
/// meanings.
fn of_guest(explained: &str, word: &str, whose: &str) -> Result<(String, String)> {
    let head = format!("{word} ({whose})");
    let mut block = explained.lines().skip_while(|line| *line != head).skip(1);
    let mut after = |label: &str| Some(block.next()?.trim().strip_prefix(label)?.trim().to_owned());
    after("What it means:")
        .zip(after("What to do:"))
        .with_context(|| format!("`transom explain` has another form, or says nothing of {head}"))
}

fn explain(words: &[&str]) -> Result<String> {
    rendered::said(Command::new(program::binary()?).arg("explain").args(words))
}

/// Writes what differs; returns the paths.
///
/// # Errors
/// When a file cannot be written.
pub fn write(all: &[Generated]) -> Result<Vec<&str>> {
    let differing: Vec<&Generated> = all.iter().filter(|file| !file.is_current()).collect();
    for file in &differing {
        let path = file.full();
        let about = || format!("failed to write `{}`", path.display());
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(about)?;
        fs::write(&path, &file.text).with_context(about)?;
    }
    Ok(differing
        .into_iter()
        .map(|file| file.path.as_str())
        .collect())
}

impl Generated {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether the committed file has the required content.
    pub fn is_current(&self) -> bool {
        fs::read_to_string(self.full()).is_ok_and(|text| text == self.text)
    }

    fn full(&self) -> std::path::PathBuf {
        program::root().join(&self.path)
    }
}

/// The page of the metrics.
pub const METRICS: &str = "host/docs/metrics.md";
/// Where its list begins; everything before is written by hand.
const LIST: &str = "## List\n";

/// The page with the current list.
///
/// # Errors
/// When it has no list.
fn metrics_page(current: &str) -> Result<String> {
    let (head, _) = current
        .split_once(LIST)
        .with_context(|| format!("{METRICS} has no heading `{}`", LIST.trim()))?;
    let mut out = format!(
        "{head}{LIST}\n<!-- Written by `cargo xtask deploy` from host/core/src/metrics.rs. -->\n\n| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n"
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
        if let MetricKind::Histogram(bounds) = metric.kind {
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
    fn a_reason_of_several_guests_has_a_text_for_each() {
        let explained = "Gone (agent)\n  What it means: a1\n  What to do:    a2\nGone (taints)\n  What it means: b1\n  What to do:    b2\nGone (trigger)\n  What it means: c1\n  What to do:    c2\n";
        for (whose, first, second) in [
            ("agent", "a1", "a2"),
            ("taints", "b1", "b2"),
            ("trigger", "c1", "c2"),
        ] {
            assert_eq!(
                of_guest(explained, "Gone", whose).unwrap(),
                (first.to_owned(), second.to_owned())
            );
        }
        assert!(of_guest(explained, "Gone", "nobody").is_err());
    }

    #[test]
    fn a_page_keeps_what_was_written_by_hand() {
        let page = metrics_page("# By hand\n\n## List\n\nno longer\n").unwrap();
        assert!(page.starts_with("# By hand\n\n## List\n"));
        assert!(!page.contains("no longer") && page.contains("| `transom_leading` | gauge |"));
        assert!(metrics_page("# No list\n").is_err());
    }
}
