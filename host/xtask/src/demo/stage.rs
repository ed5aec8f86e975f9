//! What the demo works on: binary, fleet and policies in `target/demo`, and the agent that runs while the demo edits.

use crate::{files, guests, process, progress, workspace};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use transom_support::fleet::{self, Fleet};
use transom_support::wait;

/// The component that is swapped in.
const CALM: &str = "calm";

/// The policies that ship.
const POLICIES: [&str; 2] = ["external-managed-kubeconfig", "built-in-taints"];

/// What is generated.
const FLEET: Fleet = Fleet {
    clusters: 8,
    managed: 10,
    seed: 1,
};

/// Where everything lies.
pub(super) struct Stage {
    root: PathBuf,
    components: PathBuf,
    /// The binary `transom`.
    pub(super) program: PathBuf,
    /// The folder of manifests.
    pub(super) fleet: PathBuf,
    /// The folder of policies.
    pub(super) policies: PathBuf,
}

impl Stage {
    /// Builds guests and agent, and writes fleet and policies afresh.
    pub(super) fn set() -> Result<Self> {
        let workspace = workspace::read()?;
        progress::step(
            "what comes, with its time on two cores: the guests (a minute and a half) and the agent (six minutes) are built, then the demo runs (ten seconds); the second time only the demo",
        );
        timed("[1/3] building the guests", || {
            guests::run(&guests::Args::shipped_and(&workspace, CALM))
        })?;
        let program = timed("[2/3] building the agent", || workspace::program("transom"))?;
        let folder = workspace.target.join("demo");
        files::remove_folder(&folder)?;
        let stage = Self {
            components: workspace.target.join("guests"),
            program,
            fleet: folder.join("fleet"),
            policies: folder.join("policies"),
            root: workspace.root,
        };
        let written = FLEET.write(&stage.fleet)?;
        stage.write_policies()?;
        progress::step("[3/3] the demo: a fleet of 8 HostedClusters and 10 ManagedClusters");
        progress::say(&format!(
            "    {}: {} objects in {} files",
            stage.shown(&stage.fleet),
            written.objects,
            written.files
        ));
        progress::say(
            "    one HostedCluster is not available yet (Held), one has no klusterlet namespace yet (Waiting)",
        );
        Ok(stage)
    }

    /// The two default policies, the taints from a component file that can be replaced.
    fn write_policies(&self) -> Result<()> {
        for name in POLICIES {
            let from = self.root.join("policies").join(name).join("policy.yaml");
            files::write(
                &self.policies.join(name).join("policy.yaml"),
                files::text(&from)?.replace("builtin:taints", "taints.wasm"),
            )?;
        }
        self.put_component("taints")
    }

    /// Replaces the component of the taints policy by the one that wants no taint.
    pub(super) fn swap(&self) -> Result<()> {
        self.put_component(CALM)
    }

    fn put_component(&self, name: &str) -> Result<()> {
        let from = self.components.join(format!("{name}.wasm"));
        let to = self.policies.join("built-in-taints/taints.wasm");
        files::write(&to, files::read(&from)?).map(drop)
    }

    /// Replaces a text in a manifest, as an editor would.
    pub(super) fn edit(&self, path: &Path, from: &str, to: &str) -> Result<()> {
        let text = files::text(path)?;
        if !text.contains(from) {
            bail!(
                "`{}` does not contain the text that the demo edits",
                path.display()
            );
        }
        progress::say(&format!("    edited: {}", self.shown(path)));
        files::write(path, text.replacen(from, to, 1)).map(drop)
    }

    /// Runs the agent's binary with its output on ours; fails on an exit code that is not allowed.
    pub(super) fn transom(&self, words: &[&str], allowed: &[i32]) -> Result<()> {
        let shown = format!("{} {}", self.shown(&self.program), words.join(" "));
        progress::say(&format!("    $ {shown}"));
        let status = self
            .command()
            .args(words)
            .status()
            .with_context(|| format!("failed to start `{shown}`"))?;
        match status.code() {
            Some(code) if allowed.contains(&code) => Ok(()),
            _ => bail!("`{shown}` ended with {status}"),
        }
    }

    /// The agent's binary, run from the root of the workspace.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.root);
        command
    }

    /// A path as one would type it at the root of the workspace.
    pub(super) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .display()
            .to_string()
    }

    /// The manifest of a HostedCluster.
    pub(super) fn hosted(&self, index: usize) -> PathBuf {
        self.fleet
            .join(format!("hosted/{}.yaml", fleet::hosted_name(index)))
    }

    /// The manifest of a ManagedCluster.
    pub(super) fn managed(&self, name: &str) -> PathBuf {
        self.fleet.join(format!("managed/{name}.yaml"))
    }

    /// The folder of the agent's status files for primaries and policies.
    pub(super) fn status(&self) -> PathBuf {
        self.fleet.join(".transom/status")
    }

    /// Number of primaries in the fleet.
    pub(super) fn primaries(&self) -> usize {
        FLEET.clusters + FLEET.managed
    }

    /// Number of primaries that have a status.
    pub(super) fn primaries_with_status(&self) -> usize {
        let files =
            |policy: &str| fs::read_dir(self.status().join(policy)).map_or(0, Iterator::count);
        POLICIES.into_iter().map(files).sum()
    }

    /// The secret that the agent makes for a HostedCluster.
    pub(super) fn secret(&self, index: usize) -> PathBuf {
        let namespace = format!("klusterlet-{}", fleet::managed_name(index));
        self.fleet.join(format!(
            ".transom/objects/{namespace}/Secret.external-managed-kubeconfig.yaml"
        ))
    }

    /// What the agent changes on a ManagedCluster.
    pub(super) fn patch(&self, name: &str) -> PathBuf {
        self.fleet
            .join(format!(".transom/patches/_cluster/ManagedCluster.{name}_cluster.open-cluster-management.io.yaml"))
    }
}

/// Does a step, and prints how long it took.
fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    progress::step(what);
    let start = Instant::now();
    let done = work()?;
    progress::say(&format!("    took {} s", start.elapsed().as_secs()));
    Ok(done)
}

/// How long the agent may take to react; far more than it needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The running agent; it ends with the demo.
pub(super) struct Agent(Child);

/// Starts the agent on the fleet, and waits until it has looked at every primary. Its log lines appear indented.
pub(super) fn start(stage: &Stage) -> Result<Agent> {
    let (fleet, policies) = (stage.shown(&stage.fleet), stage.shown(&stage.policies));
    let words = ["run", "--dir", &fleet, "--policies", &policies];
    progress::say(&format!(
        "    $ {} {} &",
        stage.shown(&stage.program),
        words.join(" ")
    ));
    // The agent writes the status again; a complete one shows that the first look is over.
    files::remove_folder(&stage.status())?;
    let mut command = stage.command();
    let mut child = command
        .args(words)
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start the agent")?;
    let settled = Arc::new(AtomicBool::new(false));
    if let Some(log) = child.stderr.take() {
        let settled = Arc::clone(&settled);
        thread::spawn(move || relay(log, &settled));
    }
    let agent = Agent(child);
    reacts("a status for every primary", || {
        (stage.primaries_with_status() == stage.primaries()).then_some(())
    })?;
    settled.store(true, Ordering::Relaxed);
    Ok(agent)
}

/// Shows the whole log once everything is settled; before that, only lines of another level than `INFO`.
fn relay(log: impl Read, settled: &AtomicBool) {
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        if settled.load(Ordering::Relaxed) || !line.contains(" INFO ") {
            progress::say(&format!("    | {line}"));
        }
    }
}

impl Agent {
    /// Asks the agent to end, and waits until it has.
    pub(super) fn stop(mut self) -> Result<()> {
        process::run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        wait::until("the end of the agent", DEADLINE, || {
            self.0.try_wait().ok().flatten()
        })?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // When it has ended already, both do nothing.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits for a result of the agent.
pub(super) fn reacts<T>(what: &str, look: impl FnMut() -> Option<T>) -> Result<T> {
    wait::until(what, DEADLINE, look).context("the agent did not react")
}
