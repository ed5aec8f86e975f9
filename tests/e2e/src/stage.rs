//! A folder with a generated fleet, and with policies if a test changes them. Not shared between tests.

use crate::agent::{Agent, DEADLINE};
use crate::program;
use crate::secret::Secret;
use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_core::object::Object;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_support::fleet::{self, Fleet};
use transom_support::wait;

/// The current time for all runs that are compared.
pub const NOW: &str = "2026-11-21T08:00:00Z";
/// Chooses the keys and identifiers of every fleet here.
const SEED: u64 = 7;

/// A fleet in its own folder, which is removed with it.
#[derive(Debug)]
pub struct Stage {
    folder: TempDir,
    /// The folder of manifests.
    pub fleet: PathBuf,
    /// The folder of policies; it exists only if the test creates it.
    pub policies: PathBuf,
}

impl Stage {
    /// Writes a fleet: this many HostedClusters, each with a ManagedCluster, and `managed` ManagedClusters in all.
    ///
    /// # Errors
    /// When it cannot be generated or written.
    pub fn new(clusters: usize, managed: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let stage = Self {
            fleet: folder.path().join("fleet"),
            policies: folder.path().join("policies"),
            folder,
        };
        let fleet = Fleet {
            clusters,
            managed,
            seed: SEED,
        };
        for file in fleet.files()? {
            put(&stage.fleet.join(&file.path), file.text.as_bytes())?;
        }
        fs::create_dir_all(&stage.policies)?;
        Ok(stage)
    }

    /// `transom`, outside the source tree and without environment variables that change its log.
    ///
    /// # Errors
    /// When there is no binary.
    pub fn transom(&self) -> Result<Command> {
        let mut command = Command::new(program::binary()?);
        command
            .current_dir(self.folder.path())
            .env_remove("RUST_LOG");
        Ok(command)
    }

    /// `transom run` on the fleet, with the policies of the stage if it has any.
    ///
    /// # Errors
    /// When there is no binary.
    pub fn run(&self) -> Result<Command> {
        let mut command = self.transom()?;
        command.arg("run").arg("--dir").arg(&self.fleet);
        if fs::read_dir(&self.policies)?.next().is_some() {
            command.arg("--policies").arg(&self.policies);
        }
        Ok(command)
    }

    /// `transom run --once` at the fixed time, to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn once(&self) -> Result<Output> {
        Ok(self.run()?.args(["--once", "--now", NOW]).output()?)
    }

    /// Starts the agent in watch mode.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn watch(&self) -> Result<Agent> {
        Agent::start(&mut self.run()?, self.folder.path().join("log"))
    }

    /// A path in the folder of the stage.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The agent's own folder.
    pub fn own(&self) -> PathBuf {
        self.fleet.join(".transom")
    }

    /// The manifests of a HostedCluster.
    pub fn hosted(&self, index: usize) -> PathBuf {
        self.fleet
            .join(format!("hosted/{}.yaml", fleet::hosted_name(index)))
    }

    /// The manifest of a ManagedCluster.
    pub fn managed(&self, name: &str) -> PathBuf {
        self.fleet.join(format!("managed/{name}.yaml"))
    }

    /// The managed secret of a HostedCluster.
    pub fn secret(&self, index: usize) -> PathBuf {
        let namespace = format!("klusterlet-{}", fleet::managed_name(index));
        self.own().join(format!(
            "objects/{namespace}/Secret.external-managed-kubeconfig.yaml"
        ))
    }

    /// The agent's patch of a ManagedCluster.
    pub fn patch(&self, name: &str) -> PathBuf {
        self.own().join(format!(
            "patches/_cluster/ManagedCluster.{name}_cluster.open-cluster-management.io.yaml"
        ))
    }

    /// The keys of the taints of a ManagedCluster, including the agent's patch.
    ///
    /// # Errors
    /// When the folder or the object cannot be read.
    pub fn taints(&self, name: &str) -> Result<Vec<String>> {
        let (api_version, kind) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
        let object = self.object(&ObjectRef::local(api_version, kind, None, name))?;
        let taints = object
            .context("there is no such ManagedCluster")?
            .body
            .pointer("/spec/taints")
            .cloned();
        let taints = taints
            .as_ref()
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        Ok(taints
            .iter()
            .filter_map(|taint| Some(taint["key"].as_str()?.to_owned()))
            .collect())
    }

    /// An object as the folder has it, including the agent's patch.
    ///
    /// # Errors
    /// When the folder or the object cannot be read.
    pub fn object(&self, reference: &ObjectRef) -> Result<Option<Object>> {
        let options = DirectoryOptions {
            writable: false,
            watch: false,
            ..DirectoryOptions::new(LOCAL, &self.fleet)
        };
        let mut read = Directory::open(options)?.read(std::slice::from_ref(reference));
        Ok(read.pop().context("nothing was read")??)
    }

    /// The agent's status of a HostedCluster.
    pub fn hosted_status(&self, index: usize) -> PathBuf {
        let name = fleet::hosted_name(index);
        self.own().join(format!(
            "status/external-managed-kubeconfig/clusters.{name}.yaml"
        ))
    }

    /// The agent's status of a policy.
    pub fn policy_status(&self, policy: &str) -> PathBuf {
        self.own().join(format!("status/{policy}.yaml"))
    }

    /// A field of it, if it is there.
    pub fn policy_field(&self, policy: &str, pointer: &str) -> Option<Value> {
        let text = fs::read_to_string(self.policy_status(policy)).ok()?;
        let status: Value = serde_yaml::from_str(&text).ok()?;
        status.pointer(pointer).cloned()
    }

    /// Replaces a text in a file.
    ///
    /// # Errors
    /// When the file does not contain it.
    pub fn edit(&self, path: &Path, from: &str, to: &str) -> Result<()> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("failed to read `{}`", path.display()))?;
        if !text.contains(from) {
            bail!("`{}` does not hold what the test edits", path.display());
        }
        put(path, text.replacen(from, to, 1).as_bytes())
    }

    /// Gives the Service of a HostedCluster another port for clients.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn set_port(&self, index: usize, port: u64) -> Result<()> {
        let path = self.hosted(index);
        let text = fs::read_to_string(&path)?;
        let (at, old) = port_of(&text).context("the Service has no port")?;
        let (before, after) = text.split_at(at);
        let text = format!("{before}{}", after.replacen(old, &port.to_string(), 1));
        put(&path, text.as_bytes())
    }

    /// The same, and waits until the agent has written it into the secret.
    ///
    /// # Errors
    /// When this never happens.
    pub fn follows_port(&self, index: usize, port: u64) -> Result<Secret> {
        self.set_port(index, port)?;
        self.wait_for_secret(index, "the new port", |secret| {
            secret.server.ends_with(&format!(":{port}"))
        })
    }

    /// The source of a HostedCluster, its kubeconfig in base64.
    ///
    /// # Errors
    /// When it has none.
    pub fn source(&self, index: usize) -> Result<String> {
        let text = fs::read_to_string(self.hosted(index))?;
        let mut lines = text.lines();
        let encoded = lines.find_map(|line| line.strip_prefix("  kubeconfig: "));
        Ok(encoded.context("there is no kubeconfig")?.to_owned())
    }

    /// The same, decoded.
    ///
    /// # Errors
    /// When it is no kubeconfig.
    pub fn kubeconfig(&self, index: usize) -> Result<Value> {
        let bytes = STANDARD.decode(self.source(index)?).ok();
        let bytes = bytes.context("the source is not base64")?;
        serde_yaml::from_slice(&bytes)
            .ok()
            .context("the source is not YAML")
    }

    /// Replaces the source of a HostedCluster.
    ///
    /// # Errors
    /// When it has none.
    pub fn put_source(&self, index: usize, encoded: &str) -> Result<()> {
        self.edit(&self.hosted(index), &self.source(index)?, encoded)
    }

    /// Waits until the agent has created an accepted secret.
    ///
    /// # Errors
    /// When this never happens.
    pub fn wait_for_secret(
        &self,
        index: usize,
        what: &str,
        is: impl Fn(&Secret) -> bool,
    ) -> Result<Secret> {
        let path = self.secret(index);
        Ok(wait::until(what, DEADLINE, || {
            Secret::read(&path).ok().filter(&is)
        })?)
    }

    /// Waits until the agent has created a secret, with any kind of credential.
    ///
    /// # Errors
    /// When this never happens.
    pub fn wait_for_secret_file(&self, index: usize) -> Result<()> {
        let path = self.secret(index);
        Ok(wait::until("the secret", DEADLINE, || {
            path.exists().then_some(())
        })?)
    }

    /// Waits until a file contains a text.
    ///
    /// # Errors
    /// When this never happens.
    pub fn wait_for_text(&self, path: &Path, text: &str) -> Result<()> {
        let what = format!("`{text}` in {}", path.display());
        let look = || {
            fs::read_to_string(path)
                .ok()
                .filter(|there| there.contains(text))
                .map(|_| ())
        };
        Ok(wait::until(&what, DEADLINE, look)?)
    }

    /// Waits until a file is gone.
    ///
    /// # Errors
    /// When this never happens.
    pub fn wait_for_end(&self, path: &Path) -> Result<()> {
        let what = format!("the end of {}", path.display());
        Ok(wait::until(&what, DEADLINE, || {
            (!path.exists()).then_some(())
        })?)
    }

    /// Writes a bundled policy without limits, with some texts replaced.
    ///
    /// # Errors
    /// When the policy does not contain one of them.
    pub fn put_policy(&self, name: &str, changes: &[(&str, &str)]) -> Result<()> {
        let mut text = fs::read_to_string(program::policy(name))?;
        for (from, to) in changes {
            ensure!(
                text.contains(from),
                "the policy {name} does not hold `{from}`"
            );
            text = text.replace(from, to);
        }
        text = program::without_limits(&text);
        put(
            &self.policies.join(name).join("policy.yaml"),
            text.as_bytes(),
        )
    }
}

/// Writes a temporary file and renames it, so that a watcher never sees half of it.
///
/// # Errors
/// When the file cannot be written.
pub fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path
        .parent()
        .with_context(|| format!("`{}` has no folder", path.display()))?;
    fs::create_dir_all(folder)?;
    let draft = path.with_extension("draft~");
    fs::write(&draft, bytes).with_context(|| format!("failed to write `{}`", draft.display()))?;
    fs::rename(&draft, path).with_context(|| format!("failed to put `{}` in place", path.display()))
}

/// The position and value of the port for clients.
pub(crate) fn port_of(text: &str) -> Option<(usize, &str)> {
    let end = text.rfind("\n    protocol: TCP\n    targetPort: client")?;
    let start = text.get(..end)?.rfind("port: ")? + "port: ".len();
    Some((start, text.get(start..end)?))
}
