//! The binary, running on the server of a stage, and its output. Treats it as a black box.

use crate::stage::{DEADLINE, Stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_test_cluster::{User, wait};

/// The time that the agent takes for now; it appears in taints.
pub(crate) const NOW: &str = "2026-11-21T08:00:00Z";

/// The flag of the admin server. It listens in every test, so that the test can search its pages.
pub(crate) const ADMIN: &str = "--admin-address";

/// Makes file names unique.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The pages of its admin server.
const PAGES: [&str; 3] = ["/metrics", "/debug/state", "/readyz"];

/// A running agent and its log.
pub(crate) struct Worker {
    agent: Agent,
    /// The address of its admin server, if the test chose one.
    admin: Option<SocketAddr>,
    /// The file for the admin server's pages at the end; none without an admin server or with TLS.
    pages: Option<PathBuf>,
}

/// One line of the log about a primary.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) primary: String,
    /// Why it was reconciled; empty for a line about a write.
    pub(crate) cause: String,
    /// `Applied`, `Held`, `Waiting`, `Failed`; nothing for a line about a write.
    pub(crate) state: Option<String>,
    pub(crate) reason: String,
}

impl Stage {
    /// `transom run` with the agent's account and additional arguments.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        self.command_of(&self.agent, &self.cluster.server(), words)
    }

    /// The same for a given user and address of the API server.
    pub(crate) fn command_of(&self, user: &User, server: &str, words: &[&str]) -> Result<Command> {
        let kubeconfig = self
            .cluster
            .folder()
            .join(format!("run-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::write(&kubeconfig, self.cluster.kubeconfig_at(user, server)?)?;
        let mut command = Command::new(program::binary()?);
        command.current_dir(self.cluster.folder());
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        command.args(["--now", NOW]).args(words);
        if !words.contains(&"--log-format") {
            command.args(["--log-format", "json"]);
        }
        if !words.contains(&ADMIN) && !words.contains(&"--once") {
            command.args([ADMIN, "127.0.0.1:0"]);
        }
        command
            .env("RUST_LOG", "info,transom=debug")
            .env("RUST_BACKTRACE", "0");
        Ok(command)
    }

    /// Starts the agent with additional arguments.
    pub(crate) fn start_agent(&self, words: &[&str]) -> Result<Worker> {
        self.start_command(&mut self.command(words)?)
    }

    /// Starts it behind a proxy between it and the API server.
    pub(crate) fn start_agent_at(&self, server: &str, words: &[&str]) -> Result<Worker> {
        self.start_command(&mut self.command_of(&self.agent, server, words)?)
    }

    /// Starts a command. Its output is searched when the test ends.
    pub(crate) fn start_command(&self, command: &mut Command) -> Result<Worker> {
        let name = format!("agent-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let [log, pages] =
            ["log", "pages"].map(|end| self.cluster.folder().join(format!("{name}.{end}")));
        [&log, &pages]
            .into_iter()
            .for_each(|file| self.guard.search(file.clone()));
        let mut address = command.get_args().skip_while(|word| *word != ADMIN).skip(1);
        let address = address.next().and_then(|word| word.to_str()?.parse().ok());
        let admin = address.filter(|address: &SocketAddr| address.port() != 0);
        let has = |flag: &str| command.get_args().any(|word| word == flag);
        let pages = Some(pages).filter(|_| has(ADMIN) && !has("--admin-tls-cert"));
        Ok(Worker {
            agent: Agent::start(command, log)?,
            admin,
            pages,
        })
    }
}

impl Worker {
    /// Its entire output.
    pub(crate) fn log(&self) -> Result<String> {
        self.agent.log()
    }

    /// All lines about primaries, after skipping a number of lines.
    pub(crate) fn told(&self, skip: usize) -> Result<Vec<Told>> {
        Ok(self.log()?.lines().skip(skip).filter_map(told).collect())
    }

    /// The number of lines so far.
    pub(crate) fn lines(&self) -> Result<usize> {
        Ok(self.log()?.lines().count())
    }

    /// The last state of a primary (`HostedCluster clusters/demo`), as `Applied InSync`.
    pub(crate) fn state(&self, primary: &str) -> Result<Option<String>> {
        let told = self.told(0)?.into_iter().rev();
        let mut states = told
            .filter(|told| told.primary == primary)
            .filter_map(|told| Some((told.state?, told.reason)));
        Ok(states
            .next()
            .map(|(state, reason)| format!("{state} {reason}")))
    }

    /// Waits until a primary has a state.
    pub(crate) async fn wait_for(&mut self, primary: &str, state: &str) -> Result<()> {
        let what = format!("`{state}` of {primary}");
        let came = wait::until(&what, DEADLINE, async || {
            Ok((self.state(primary)?.as_deref() == Some(state)).then_some(()))
        })
        .await;
        came.with_context(|| {
            format!(
                "it is {:?}; it said {}",
                self.state(primary).ok().flatten(),
                self.tail()
            )
        })
    }

    /// Waits until the first pass is complete: the agent then prints its summary, a line for each state and reason.
    pub(crate) async fn wait_for_first_pass(&mut self) -> Result<()> {
        wait::until("the summary of the first pass", DEADLINE, async || {
            let log = self.log()?;
            let done = log.lines().any(|line| {
                let said: Value = serde_json::from_str(line).unwrap_or_default();
                let mut words = said["message"]
                    .as_str()
                    .unwrap_or_default()
                    .split_whitespace();
                words
                    .next()
                    .is_some_and(|count| count.parse::<usize>().is_ok())
                    && words.next().is_some_and(|state| {
                        ["Applied", "Held", "Waiting", "Failed"].contains(&state)
                    })
            });
            ensure!(self.agent.ended()?.is_none(), "the agent ended: {log}");
            Ok(done.then_some(()))
        })
        .await
        .with_context(|| format!("it said {}", self.tail()))
    }

    /// Waits until it is ready and returns the address of its admin server.
    pub(crate) async fn wait_until_ready(&self) -> Result<SocketAddr> {
        let ready = wait::until("readiness", DEADLINE, async || {
            let Some(address) = self.admin()? else {
                return Ok(None);
            };
            Ok(http::get(address, "/readyz")
                .ok()
                .filter(|answer| answer.status == 200)
                .map(|_| address))
        });
        ready
            .await
            .with_context(|| format!("it said {}", self.tail()))
    }

    /// The address of its admin server; none before the agent has logged it.
    pub(crate) fn admin(&self) -> Result<Option<SocketAddr>> {
        if self.admin.is_some() {
            return Ok(self.admin);
        }
        let log = self.log()?;
        let line = log
            .lines()
            .find(|line| line.contains("the admin server is listening"));
        let after = |line: &str| {
            Some(
                line.split_once("127.0.0.1:")
                    .or_else(|| line.split_once("0.0.0.0:"))?
                    .1
                    .to_owned(),
            )
        };
        let Some(rest) = line.and_then(after) else {
            return Ok(None);
        };
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Ok(Some(SocketAddr::from(([127, 0, 0, 1], port.parse()?))))
    }

    /// The end of its log, for a failure message.
    pub(crate) fn tail(&self) -> String {
        let log = self.log().unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Stops the process until it is thawed.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.agent.signal("-STOP")
    }

    /// Lets the process continue.
    pub(crate) fn thaw(&self) -> Result<()> {
        self.agent.signal("-CONT")
    }

    /// Kills it at once.
    pub(crate) fn kill(self) -> Result<()> {
        self.agent.kill()
    }

    /// Asks it to exit and returns its entire output. Saves the pages of its admin server first.
    pub(crate) fn stop(self) -> Result<String> {
        if let Some(path) = &self.pages {
            let admin = self
                .admin()?
                .context("it never said where its admin server listens")?;
            let pages = PAGES
                .iter()
                .map(|page| Ok(http::get(admin, page)?.body))
                .collect::<Result<Vec<_>>>()?;
            fs::write(path, pages.concat())?;
        }
        self.agent.stop()
    }
}

fn told(line: &str) -> Option<Told> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Told {
        primary: text("primary")?,
        cause: text("cause").unwrap_or_default(),
        state: text("state"),
        reason: text("reason").unwrap_or_default(),
    })
}
