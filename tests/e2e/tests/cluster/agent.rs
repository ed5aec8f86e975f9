//! The binary, running on the server of a stage; its admin server listens in every test, so that its pages are
//! searched.

use crate::stage::Stage;
use anyhow::Result;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use transom_e2e::agent::{ADMIN, Agent};
use transom_e2e::program;
use transom_test_cluster::User;

/// The time that the agent takes for now; it appears in taints.
pub(crate) const NOW: &str = "2026-11-21T08:00:00Z";

/// Makes file names unique.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Stage {
    /// `transom run` with the agent's account and additional arguments.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        self.command_of(&self.agent, &self.cluster.server(), words)
    }

    /// The same for a given user and address of the API server.
    pub(crate) fn command_of(&self, user: &User, server: &str, words: &[&str]) -> Result<Command> {
        let mut command = self.command_at_real_time(user, server, words)?;
        command.args(["--now", NOW]);
        Ok(command)
    }

    /// The same with the clock of the machine.
    pub(crate) fn command_at_real_time(
        &self,
        user: &User,
        server: &str,
        words: &[&str],
    ) -> Result<Command> {
        let kubeconfig = self
            .cluster
            .folder()
            .join(format!("run-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::write(&kubeconfig, self.cluster.kubeconfig_at(user, server)?)?;
        let mut command = Command::new(program::binary()?);
        command.current_dir(self.cluster.folder());
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        command.args(words);
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
    pub(crate) fn start_agent(&self, words: &[&str]) -> Result<Agent> {
        self.start_command(&mut self.command(words)?)
    }

    /// Starts the agent with the clock of the machine, for tests with programs of others.
    pub(crate) fn start_at_real_time(&self, words: &[&str]) -> Result<Agent> {
        let server = self.cluster.server();
        self.start_command(&mut self.command_at_real_time(&self.agent, &server, words)?)
    }

    /// The file of a bundled policy without limits, for tests that change many objects on purpose.
    pub(crate) fn unlimited(&self, name: &str) -> Result<String> {
        let policy = program::unlimited_manifest(name)?;
        let file = self.cluster.folder().join(format!("unlimited-{name}.yaml"));
        fs::write(&file, policy.to_string())?;
        Ok(file.display().to_string())
    }

    /// Starts the agent on the bundled policy about taints.
    pub(crate) fn start_on_taints(&self) -> Result<Agent> {
        let policy = program::policy("built-in-taints").display().to_string();
        self.start_agent(&["--policies", &policy])
    }

    /// Starts it behind a proxy between it and the API server.
    pub(crate) fn start_agent_at(&self, server: &str, words: &[&str]) -> Result<Agent> {
        self.start_command(&mut self.command_of(&self.agent, server, words)?)
    }

    /// Starts a command. Its output is searched when the test ends, and so are the pages of its admin server, unless it
    /// has none or it uses TLS.
    pub(crate) fn start_command(&self, command: &mut Command) -> Result<Agent> {
        let name = format!("agent-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let [log, pages] =
            ["log", "pages"].map(|end| self.cluster.folder().join(format!("{name}.{end}")));
        self.guard.search(log.clone());
        self.guard.search(pages.clone());
        let agent = Agent::start(command, log)?;
        let has = |flag: &str| command.get_args().any(|word| word == flag);
        Ok(match has(ADMIN) && !has("--admin-tls-cert") {
            true => agent.keeping_pages(pages),
            false => agent,
        })
    }
}
