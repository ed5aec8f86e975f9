//! The agent as a Deployment runs it: with its flags, as its service account, with these permissions, not as an
//! administrator. No kubelet runs here, so a test starts the process.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::{Cluster, Line, Mark, User, wait};
use transom_test_deploy::rendered::said;

/// The deadline for what takes moments on a quiet machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(600);

/// The start of an operator's command.
pub(crate) fn kubectl(cluster: &Cluster) -> Result<Command> {
    cluster.kubectl(cluster.admin())
}

/// A running agent.
pub(crate) struct Deployed {
    agent: Agent,
    account: User,
    port: u16,
    mark: Mark,
}

impl Deployed {
    /// Starts the agent of the Deployment that is on the cluster, and waits until it is ready.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let words = [
            "get",
            "deployment/transom",
            "--namespace",
            "transom",
            "--output",
            "json",
        ];
        let deployment: Value = serde_json::from_str(&said(kubectl(cluster)?.args(words))?)?;
        let account = cluster.service_account("transom", "transom").await?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let arguments = deployment
            .pointer("/spec/template/spec/containers/0/args")
            .and_then(Value::as_array);
        let mut transom = Command::new(program::binary()?);
        for argument in arguments
            .context("the container has no args")?
            .iter()
            .filter_map(Value::as_str)
        {
            transom.arg(argument.replace("0.0.0.0:8080", &format!("127.0.0.1:{port}")));
        }
        transom
            .arg("--kubeconfig")
            .arg(cluster.write_kubeconfig(&account)?);
        transom
            .env("XDG_CACHE_HOME", cluster.folder().join("cache"))
            .env_remove("RUST_LOG");
        let mark = cluster.audit().mark()?;
        let agent = Agent::start(&mut transom, cluster.folder().join("transom.log"))?;
        let mut started = Self {
            agent,
            account,
            port,
            mark,
        };
        started.ready().await?;
        Ok(started)
    }

    async fn ready(&mut self) -> Result<()> {
        let port = self.port;
        wait::until("a ready agent", DEADLINE, async || {
            ensure!(
                self.agent.ended()?.is_none(),
                "the agent ended: {}",
                self.agent.log()?
            );
            Ok(status(port, "/readyz")
                .is_some_and(|status| status.contains(" 200 "))
                .then_some(()))
        })
        .await?;
        ensure!(
            status(port, "/healthz").is_some_and(|status| status.contains(" 200 ")),
            "ready and not healthy"
        );
        Ok(())
    }

    /// Its entire output.
    pub(crate) fn log(&self) -> Result<String> {
        self.agent.log()
    }

    /// Stops it, and returns its requests to the API server; fails if one was denied.
    pub(crate) fn stop(self, cluster: &Cluster) -> Result<Vec<Line>> {
        self.agent.stop()?;
        let asked = cluster
            .audit()
            .since(self.mark)?
            .into_iter()
            .filter(|line| line.user == self.account.name());
        let asked: Vec<Line> = asked.collect();
        let denied = asked.iter().filter(|line| !line.allowed);
        let denied: Vec<String> = denied
            .map(|line| format!("{} {}", line.verb, line.uri))
            .collect();
        ensure!(denied.is_empty(), "denied: {denied:?}");
        Ok(asked)
    }
}

/// The first line of the admin port's response; none while it does not answer.
fn status(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().next().map(str::to_owned)
}
