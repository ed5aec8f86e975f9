//! What the demo works on: binary, fleet and policies in `target/demo`.

use crate::{guests, progress, workspace};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use transom_support::fleet::{self, Fleet};

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
            "what comes, with its time on two cores: the guests (half a minute) and the agent (four minutes) are built, then the demo runs (ten seconds); the second time only the demo",
        );
        progress::step("[1/3] building the guests");
        guests::run(&guests::Args::shipped_and(&workspace, CALM))?;
        progress::step("[2/3] building the agent");
        let program = workspace::program("transom")?;
        let folder = workspace.target.join("demo");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("failed to remove `{}`", folder.display()))?;
        }
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
            let text = fs::read_to_string(&from)
                .with_context(|| format!("failed to read `{}`", from.display()))?;
            write(
                &self.policies.join(name).join("policy.yaml"),
                text.replace("builtin:taints", "taints.wasm").as_bytes(),
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
        let bytes =
            fs::read(&from).with_context(|| format!("failed to read `{}`", from.display()))?;
        write(&self.policies.join("built-in-taints/taints.wasm"), &bytes)
    }

    /// Replaces a text in a manifest, as an editor would.
    pub(super) fn edit(&self, path: &Path, from: &str, to: &str) -> Result<()> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("failed to read `{}`", path.display()))?;
        if !text.contains(from) {
            bail!(
                "`{}` does not contain the text that the demo edits",
                path.display()
            );
        }
        progress::say(&format!("    edited: {}", self.shown(path)));
        write(path, text.replacen(from, to, 1).as_bytes())
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

/// Writes a new file and renames it, so that a watcher never sees half of it.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    crate::component::write(path, bytes).map(|_| ())
}
