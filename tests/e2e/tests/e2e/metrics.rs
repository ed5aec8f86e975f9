//! The admin server, read by a real Prometheus: every metric exists, every expression returns data, and no secret is
//! shown.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use transom_core::metrics::ALL;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::canary::Canaries;
use transom_e2e::http;
use transom_e2e::prometheus::{Prometheus, expressions, monitoring, tool};
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// Starts the agent with an admin server on this machine, and returns its address.
pub(crate) fn start(stage: &Stage, words: &[&str]) -> Result<(Agent, SocketAddr)> {
    let mut command = stage.run()?;
    start_command(stage, command.args(words))
}

/// The same for a command that a test has prepared.
pub(crate) fn start_command(stage: &Stage, command: &mut Command) -> Result<(Agent, SocketAddr)> {
    command.args(["--admin-address", "127.0.0.1:0", "--log-format", "json"]);
    let agent = Agent::start(command, stage.path("log"))?;
    let address = ready(&agent)?;
    Ok((agent, address))
}

/// Waits until an agent that logs JSON is ready, and returns the address of its admin server.
pub(crate) fn ready(agent: &Agent) -> Result<SocketAddr> {
    let address = wait::until("the address of the admin server", DEADLINE, || {
        let log = agent.log().ok()?;
        let line = log
            .lines()
            .find(|line| line.contains("the admin server is listening"))?;
        serde_json::from_str::<Value>(line).ok()?["address"]
            .as_str()?
            .parse()
            .ok()
    })?;
    wait::until("readiness", DEADLINE, || {
        http::get(address, "/readyz")
            .ok()
            .filter(|answer| answer.status == 200)
    })?;
    Ok(address)
}

/// Runs promtool on a text; returns whether it succeeded, and its output.
fn promtool(words: &[&str], input: &str) -> Result<(bool, String)> {
    let mut command = Command::new(tool("promtool")?);
    command
        .args(words)
        .current_dir(monitoring())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("failed to start promtool")?;
    // It exits when its input ends; a run that reads no input may have exited already.
    drop(
        child
            .stdin
            .take()
            .context("no input")?
            .write_all(input.as_bytes()),
    );
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

#[test]
fn alert_rules_are_correct_for_synthetic_series() -> Result<()> {
    for words in [
        &["check", "rules", "rules.yaml"][..],
        &["test", "rules", "rules.test.yaml"],
    ] {
        let (content, said) = promtool(words, "")?;
        ensure!(content, "promtool {words:?}: {said}");
    }
    Ok(())
}

#[test]
fn exposes_every_listed_metric_as_promtool_expects() -> Result<()> {
    let stage = Stage::new(3, 8)?;
    let (agent, address) = start(&stage, &["--compatibility-metrics"])?;
    stage.wait_for_secret_file(0)?;
    let missing = |text: &str| -> Vec<&str> {
        // Metrics of API servers and of faults are exempt: this test has neither.
        let names = ALL
            .iter()
            .filter(|metric| !metric.is_rare())
            .map(|metric| metric.name);
        names
            .filter(|name| !text.contains(&format!("# TYPE {name} ")))
            .collect()
    };
    let look = || {
        http::get(address, "/metrics")
            .ok()
            .filter(|answer| missing(&answer.body).is_empty())
    };
    let text = wait::until("every metric", DEADLINE, look)?.body;
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let mut words = line.split(' ').skip(2);
        let (name, kind) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let metric = ALL
            .iter()
            .find(|metric| metric.name == name)
            .with_context(|| format!("`{name}` is not in the list"))?;
        ensure!(metric.kind.as_str() == kind, "{line}");
    }
    // The names that dashboards use are fixed; promtool must report nothing else.
    let (_, said) = promtool(&["check", "metrics"], &text)?;
    let known = [
        "_copy_failures counter metrics should have",
        "mce_hs_addon_kubeconfig_secret_copy_",
    ];
    let others: Vec<&str> = said
        .lines()
        .filter(|line| !known.iter().any(|known| line.contains(known)))
        .collect();
    ensure!(others.is_empty(), "{others:?}");
    agent.kill()?;
    Ok(())
}

#[test]
fn answers_paths_and_methods_as_documented() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let (agent, address) = start(&stage, &[])?;
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/debug/state", 200),
        ("POST", "/metrics", 405),
        ("GET", "/", 404),
        ("GET", "/metrics/..", 404),
    ] {
        ensure!(
            http::send(address, method, path)?.status == status,
            "{method} {path}"
        );
    }
    put(
        &stage.policies.join("broken.yaml"),
        b"apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: broken}\n",
    )?;
    agent.kill()?;
    // One bad policy does not make the agent unready.
    let (agent, address) = start(&stage, &[])?;
    let text = http::get(address, "/metrics")?.body;
    ensure!(
        text.contains("transom_policies{status=\"Refused\"} 1"),
        "{text}"
    );
    agent.kill()?;
    Ok(())
}

#[test]
fn prometheus_sees_a_fault_and_every_expression_returns_data() -> Result<()> {
    let stage = Stage::new(5, 8)?;
    let mut canaries = Canaries::default();
    let token = canaries.plant("the token of a source");
    plant(&stage, 1, &json!({ "token": token }))?;
    let (agent, address) = start(&stage, &[])?;
    stage.wait_for_secret_file(0)?;
    stage.wait_for_secret_file(1)?;
    let prometheus = Prometheus::start(&stage.path("prometheus"), address)?;
    let (total, failures) = (
        "hypershift_addon_agent_kubeconfig_secret_copy_total",
        "hypershift_addon_agent_kubeconfig_secret_copy_failures",
    );
    prometheus.wait_for(total, |value| value >= 4.0)?;
    prometheus.wait_for(failures, |value| value == 0.0)?;
    // The agent writes something while it is scraped: a quantile of no data is not a number.
    let token = canaries.plant("another token of a source");
    plant(&stage, 1, &json!({ "token": token }))?;
    // The fault: a text that is not a kubeconfig and contains a secret.
    let broken = canaries.plant("a broken source");
    put_source(
        &stage,
        0,
        &STANDARD.encode(format!("token: {broken}\nusers: [\"{broken}\n")),
    )?;
    prometheus.wait_for(failures, |value| value >= 1.0)?;
    prometheus.wait_for(
        "transom_primaries{state=\"Failed\", reason=\"KubeconfigUnparsable\"}",
        |value| value == 1.0,
    )?;
    prometheus.wait_for("transom:copy_errors:ratio_rate5m", |value| value > 0.0)?;
    prometheus.wait_for(
        "transom:primaries_sound:ratio{policy=\"external-managed-kubeconfig\"}",
        |value| value < 1.0,
    )?;
    for expression in expressions()? {
        prometheus.wait_for(&expression, |_| true)?;
    }
    ensure!(
        prometheus.rule_errors()?.is_empty(),
        "{:?}",
        prometheus.rule_errors()?
    );
    for path in ["/metrics", "/debug/state"] {
        let shown = http::get(address, path)?.body;
        ensure!(
            shown.len() > 500 && canaries.found_in(shown.as_bytes()).is_empty(),
            "{path} shows a canary"
        );
    }
    let state: Value = serde_json::from_str(&http::get(address, "/debug/state")?.body)?;
    let told = state["primaries"]["others"]
        .as_array()
        .context("no primaries")?;
    ensure!(
        told.iter()
            .any(|told| told["reason"] == "KubeconfigUnparsable"),
        "{state}"
    );
    let said = agent.log()?;
    ensure!(
        canaries.found_in(said.as_bytes()).is_empty(),
        "the log shows a canary"
    );
    agent.kill()
}

/// Replaces the kubeconfig of a cluster with a text.
fn put_source(stage: &Stage, index: usize, encoded: &str) -> Result<()> {
    let text = fs::read_to_string(stage.hosted(index))?;
    let line = text
        .lines()
        .find(|line| line.starts_with("  kubeconfig: "))
        .context("no kubeconfig")?;
    put(
        &stage.hosted(index),
        text.replace(line, &format!("  kubeconfig: {encoded}"))
            .as_bytes(),
    )
}

/// Gives the user in a cluster's kubeconfig another credential.
fn plant(stage: &Stage, index: usize, user: &Value) -> Result<()> {
    let text = fs::read_to_string(stage.hosted(index))?;
    let encoded = text
        .lines()
        .find_map(|line| line.strip_prefix("  kubeconfig: "))
        .context("no kubeconfig")?;
    let bytes = STANDARD.decode(encoded).ok().context("not base64")?;
    let mut document: Value = serde_yaml::from_slice(&bytes).ok().context("not YAML")?;
    document["users"][0]["user"] = user.clone();
    put_source(stage, index, &STANDARD.encode(document.to_string()))
}
