//! A real Prometheus that scrapes one agent, and promtool. It is killed when its handle is dropped.

use crate::agent::Agent;
use crate::{http, program};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    program: Agent,
    address: SocketAddr,
}

/// `prometheus` or `promtool`, as `cargo xtask servers` prepared them.
///
/// # Errors
/// When they do not exist.
pub fn tool(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("TRANSOM_SERVERS").map(PathBuf::from);
    let folder = folder
        .context("TRANSOM_SERVERS is not set; run `cargo xtask servers`, it prints what to set")?;
    let path = folder.join(name);
    ensure!(
        path.is_file(),
        "there is no `{name}` in `{}`; run `cargo xtask servers`",
        folder.display()
    );
    Ok(path)
}

/// The folder of rules and dashboards.
pub fn monitoring() -> PathBuf {
    program::root().join("host/deploy/monitoring")
}

/// Every expression of the dashboards, and the sides of every comparison of the rules.
///
/// # Errors
/// When a file cannot be read, or does not have the expected form.
pub fn expressions() -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(monitoring().join("dashboards"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
        let panels = dashboard["panels"].as_array().context("no panels")?;
        let targets = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        all.extend(targets.filter_map(|target| Some(target["expr"].as_str()?.to_owned())));
    }
    let rules: Value = serde_yaml::from_str(&fs::read_to_string(monitoring().join("rules.yaml"))?)?;
    let groups = rules["groups"].as_array().context("no groups")?;
    for rule in groups
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten())
    {
        let expression = rule["expr"].as_str().context("no expression")?;
        if rule["record"].is_string() {
            all.insert(expression.to_owned());
            continue;
        }
        for side in expression.split(" and ") {
            let compared = [" > ", " < ", " != "]
                .iter()
                .find_map(|sign| side.rsplit_once(sign));
            all.insert(
                compared
                    .context("an alert that compares nothing")?
                    .0
                    .to_owned(),
            );
        }
    }
    Ok(all)
}

impl Prometheus {
    /// Starts one in a folder; it scrapes the address and evaluates the rules every second.
    ///
    /// # Errors
    /// When it cannot be started, or does not become ready.
    pub fn start(folder: &Path, agent: SocketAddr) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let rules = monitoring().join("rules.yaml").canonicalize()?;
        let config = serde_json::json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "transom", "static_configs": [
                {"targets": [agent.to_string()], "labels": {"namespace": "transom"}}]}],
        });
        fs::write(folder.join("prometheus.yaml"), config.to_string())?;
        // No other process takes the port in the short time until Prometheus does.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(tool("prometheus")?);
        let file = |name: &str| folder.join(name).display().to_string();
        command.args([
            format!("--config.file={}", file("prometheus.yaml")),
            format!("--storage.tsdb.path={}", file("data")),
            format!("--web.listen-address={address}"),
        ]);
        let program = Agent::start(&mut command, folder.join("log"))?;
        program.wait("a Prometheus that is ready", || {
            let answer = http::get(address, "/-/ready").ok()?;
            (answer.status == 200).then_some(())
        })?;
        Ok(Self { program, address })
    }

    /// The current values of an expression.
    ///
    /// # Errors
    /// When Prometheus refuses the expression.
    pub fn query(&self, expression: &str) -> Result<Vec<f64>> {
        let answer = http::get(
            self.address,
            &format!("/api/v1/query?query={}", http::escaped(expression)),
        )?;
        let document: Value = serde_json::from_str(&answer.body)?;
        ensure!(
            document["status"] == "success",
            "`{expression}`: {}",
            document["error"]
        );
        let rows = document["data"]["result"]
            .as_array()
            .context("the answer has no result")?;
        // A scalar is one pair; a vector is rows with one pair each.
        let pairs: Vec<&Value> = match document["data"]["resultType"].as_str() {
            Some("vector") => rows.iter().map(|row| &row["value"][1]).collect(),
            _ => rows.iter().skip(1).collect(),
        };
        pairs
            .into_iter()
            .map(|value| Ok(value.as_str().context("no value")?.parse()?))
            .collect()
    }

    /// Waits until an expression has an accepted value; NaN does not count.
    ///
    /// # Errors
    /// When it never gets one.
    pub fn wait_for(&self, expression: &str, is: impl Fn(f64) -> bool) -> Result<()> {
        let look = || {
            self.query(expression)
                .ok()
                .filter(|values| values.iter().any(|value| !value.is_nan() && is(*value)))
        };
        let what = format!("the value of `{expression}`");
        self.program.wait(&what, look).map(drop)
    }

    /// The errors of its rules that cannot be evaluated.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub fn rule_errors(&self) -> Result<Vec<String>> {
        let answer = http::get(self.address, "/api/v1/rules")?;
        let document: Value = serde_json::from_str(&answer.body)?;
        let groups = document["data"]["groups"]
            .as_array()
            .context("there are no groups")?;
        let rules = groups
            .iter()
            .flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let errors =
            rules.filter_map(|rule| rule["lastError"].as_str().filter(|error| !error.is_empty()));
        Ok(errors.map(str::to_owned).collect())
    }
}
