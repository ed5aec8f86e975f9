//! The admin server: every metric exists as a real Prometheus reads it, every expression returns data, no secret is
//! shown; and it still answers probes while clients hold its connections open.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;
use transom_core::metrics::{self, ALL};
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::canary::Canaries;
use transom_e2e::http;
use transom_e2e::prometheus::{Prometheus, expressions, monitoring, tool};
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// The first bytes of a misbehaving client.
const SILENT: &[u8] = b"";
const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nX-A: ";
const BODY: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// Connections that send a lot until the server accepts no more, and read nothing.
fn held(address: SocketAddr, count: usize, said: &[u8], times: usize) -> Result<Vec<TcpStream>> {
    let text = said.repeat(times);
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_nonblocking(true)?;
        match stream.write(&text) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) => {}
            Err(error) => return Err(error.into()),
        }
        all.push(stream);
    }
    Ok(all)
}

/// Misbehaving clients, more than the server has places for, with a text that they send after each kind.
pub(crate) fn crowd(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let mut all = Vec::new();
    for (count, said, times) in [
        (64, HEALTH, 2_000),
        (64, METRICS, 50),
        (700, SILENT, 0),
        (200, HALF, 1),
        (200, BODY, 1),
        (64, METRICS, 1),
    ] {
        all.extend(held(address, count, said, times)?);
        for _ in 0..20 {
            probed(address)?;
        }
    }
    Ok(all)
}

/// Whether both probes are answered; each attempt has the deadline of the test kit.
pub(crate) fn probed(address: SocketAddr) -> Result<()> {
    for path in ["/healthz", "/readyz"] {
        let answer = http::get(address, path)?;
        ensure!(
            answer.status == 200,
            "{path}: {} {}",
            answer.status,
            answer.body
        );
    }
    Ok(())
}

#[test]
fn answers_probes_while_clients_hold_connections_open() -> Result<()> {
    let stage = Stage::new(3, 3)?;
    let (agent, address) = start(&stage, &[])?;
    let all = crowd(address)?;
    // A client that reads still gets the entire response.
    wait::until("the metrics", DEADLINE, || {
        http::get(address, "/metrics")
            .ok()
            .filter(|answer| answer.body.contains("transom_policies"))
    })?;
    ensure!(all.len() == 1_292);
    drop(all);
    probed(address)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn closes_a_connection_after_one_request_even_from_an_idle_peer() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let (agent, address) = start(&stage, &[])?;
    let mut two = TcpStream::connect_timeout(&address, DEADLINE)?;
    two.write_all(&HEALTH.repeat(2))?;
    let mut text = String::new();
    // The connection may end with a reset: the server never read the second request.
    drop(two.read_to_string(&mut text));
    ensure!(
        text.matches("HTTP/1.1 200").count() == 1 && text.contains("connection: close"),
        "{text}"
    );
    // All at once: each ends by itself after some seconds.
    let idle = [SILENT, HALF, BODY].map(|said| -> Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.write_all(said)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(stream)
    });
    for stream in idle {
        let mut stream = stream?;
        agent.wait("the end of an idle connection", || {
            match stream.read(&mut [0; 64]) {
                Ok(0) => Some(()),
                Ok(_) => None,
                Err(error) => {
                    (!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
                        .then_some(())
                }
            }
        })?;
    }
    agent.stop()?;
    Ok(())
}

/// Starts the agent with an admin server on this machine, and returns its address.
pub(crate) fn start(stage: &Stage, words: &[&str]) -> Result<(Agent, SocketAddr)> {
    let mut command = stage.run()?;
    start_command(stage, command.args(words))
}

/// The same for a command that a test has prepared.
pub(crate) fn start_command(stage: &Stage, command: &mut Command) -> Result<(Agent, SocketAddr)> {
    command.args(["--admin-address", "127.0.0.1:0", "--log-format", "json"]);
    let agent = Agent::start(command, stage.path("log"))?;
    let address = agent.ready()?;
    Ok((agent, address))
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
        &["test", "rules", "rules.test.yaml", "rules.slow.test.yaml"],
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
        // Metrics of API servers, of lines of guests and of faults are exempt: this test has none of them.
        let rare = [
            metrics::OVERDUE,
            metrics::REPAIRED,
            metrics::CALL_FAILURES,
            metrics::CALL_LOG_LINES,
            metrics::REQUESTS,
            metrics::WATCH_RESTARTS,
            metrics::WATCH_OBJECTS,
            metrics::WATCHES_FAILING,
        ];
        let names = ALL
            .iter()
            .filter(|metric| !rare.contains(metric))
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
    stage.put_source(
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

/// Gives the user in a cluster's kubeconfig another credential.
fn plant(stage: &Stage, index: usize, user: &Value) -> Result<()> {
    let mut document = stage.kubeconfig(index)?;
    document["users"][0]["user"] = user.clone();
    stage.put_source(index, &STANDARD.encode(document.to_string()))
}
