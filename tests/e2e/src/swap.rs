//! Replaces a component under a running agent while its fleet changes all the time. Used by tests and soak.

use crate::agent::Agent;
use crate::program;
use crate::secret::{Secret, is_secret};
use crate::stage::{Stage, port_of, put};
use crate::tree;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use transom_support::fleet;

/// The policy whose component is replaced.
pub const POLICY: &str = "external-managed-kubeconfig";
/// The two versions, each with the end of the server's host name that only it writes.
const VERSIONS: [(&str, &str); 2] = [
    ("kubeconfig", ".svc.cluster.local"),
    ("fixture-second", ".svc"),
];
/// The generator makes the fourth cluster unavailable and the sixth without a namespace.
const WAITING: [usize; 2] = [3, 5];

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Swap {
    /// HostedClusters; at most 20.
    pub clusters: usize,
    /// How often the component is replaced.
    pub swaps: usize,
}

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// Changes of the fleet meanwhile.
    pub edits: usize,
    /// Secrets that were read meanwhile; each came from one version.
    pub read: usize,
    /// Memory after each swap, in bytes.
    pub memory: Vec<u64>,
}

impl Swapped {
    /// The difference in bytes between the maximum of the second half and that of the first.
    pub fn growth(&self) -> u64 {
        let (first, last) = self.memory.split_at(self.memory.len() / 2);
        let most = |half: &[u64]| half.iter().copied().max().unwrap_or_default();
        most(last).saturating_sub(most(first))
    }
}

impl Swap {
    /// Replaces the component over and over, and compares every written secret with the output of each version.
    ///
    /// # Errors
    /// When a reconcile is lost, or a secret mixes two versions.
    pub fn run(self) -> Result<Swapped> {
        let stage = Stage::new(self.clusters, 0)?;
        stage.put_policy(POLICY, &[("builtin:kubeconfig", "decide.wasm")])?;
        let versions = Versions::read()?;
        versions.put(&stage, 0)?;
        let agent = Agent::start(&mut stage.run()?, stage.path("log"))?;
        versions.wait_for_all(&stage, self.clusters, 0)?;
        let (over, edits, read) = (
            AtomicBool::new(false),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let memory = std::thread::scope(|scope| {
            let editor = scope.spawn(|| edit_all(&stage, self.clusters, &over, &edits));
            let reader = scope.spawn(|| versions.read_all(&stage, &over, &read));
            let memory = self.swap_all(&stage, &agent, &versions);
            over.store(true, Ordering::Relaxed);
            editor
                .join()
                .map_err(|_| anyhow::anyhow!("the editor panicked"))??;
            reader
                .join()
                .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
            memory
        })?;
        versions.wait_for_all(&stage, self.clusters, self.swaps % 2)?;
        let log = agent.stop()?;
        let swapped = log
            .lines()
            .filter(|line| line.contains(" swapped "))
            .count();
        ensure!(
            swapped == self.swaps,
            "{swapped} swaps were told, {} were made",
            self.swaps
        );
        Ok(Swapped {
            edits: edits.into_inner(),
            read: read.into_inner(),
            memory,
        })
    }

    /// Replaces the component; each time every secret must reach the new version before the next swap. Returns the
    /// memory after each.
    fn swap_all(self, stage: &Stage, agent: &Agent, versions: &Versions) -> Result<Vec<u64>> {
        let one = |round: usize| {
            versions.put(stage, round % 2)?;
            versions.wait_for_all_stamps(stage, self.clusters, round % 2)?;
            agent.resident_bytes()
        };
        (1..=self.swaps).map(one).collect()
    }
}

/// The two versions: their bytes, and the digest that the agent writes as an annotation.
struct Versions {
    bytes: [Vec<u8>; 2],
    digests: Mutex<BTreeMap<String, usize>>,
}

impl Versions {
    fn read() -> Result<Self> {
        let [(first, _), (second, _)] = VERSIONS;
        let bytes = [program::component(first)?, program::component(second)?];
        Ok(Self {
            bytes,
            digests: Mutex::default(),
        })
    }

    fn put(&self, stage: &Stage, version: usize) -> Result<()> {
        let bytes = self.bytes.get(version).context("there are two versions")?;
        put(&stage.policies.join(POLICY).join("decide.wasm"), bytes)
    }

    /// The version that wrote a secret, by its content; equal digests must always mean the same version.
    fn version_of(&self, secret: &Secret) -> Result<usize> {
        let host = secret.server.rsplit_once(':').map_or("", |(host, _)| host);
        let version = VERSIONS
            .iter()
            .position(|(_, end)| host.ends_with(end))
            .context("the server is of no version")?;
        let mut digests = self
            .digests
            .lock()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        let known = *digests.entry(secret.component.clone()).or_insert(version);
        ensure!(
            known == version,
            "{} wrote as version {known} and as version {version}",
            secret.component
        );
        ensure!(
            digests.len() <= 2,
            "more than two components wrote: {:?}",
            digests.keys()
        );
        Ok(version)
    }

    /// Waits until every secret was written by a version.
    fn wait_for_all_stamps(&self, stage: &Stage, clusters: usize, version: usize) -> Result<()> {
        for index in ready(clusters) {
            let of = |secret: &Secret| self.version_of(secret).is_ok_and(|of| of == version);
            stage.wait_for_secret(index, &format!("version {version} of {index}"), of)?;
        }
        Ok(())
    }

    /// Waits until every secret was written by a version from the latest state of its Service.
    fn wait_for_all(&self, stage: &Stage, clusters: usize, version: usize) -> Result<()> {
        for index in ready(clusters) {
            let text = fs::read_to_string(stage.hosted(index))?;
            let port = format!(":{}", port_of(&text).context("the Service has no port")?.1);
            let source = Secret::parse(&text)?;
            let right = |secret: &Secret| {
                secret.server.ends_with(&port)
                    && secret.carries(&source)
                    && self.version_of(secret).is_ok_and(|of| of == version)
            };
            stage.wait_for_secret(index, &format!("the last state of {index}"), right)?;
        }
        Ok(())
    }

    /// Reads every secret over and over; each must come from one version at all times.
    fn read_all(&self, stage: &Stage, over: &AtomicBool, read: &AtomicUsize) -> Result<()> {
        while !over.load(Ordering::Relaxed) {
            let all = tree::files(&stage.own().join("objects"))?;
            for path in all.iter().filter(|path| is_secret(path)) {
                match fs::read_to_string(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    text => drop(self.version_of(&Secret::parse(&text?)?)?),
                }
                read.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The clusters that get a secret.
fn ready(clusters: usize) -> impl Iterator<Item = usize> {
    (0..clusters).filter(|index| !WAITING.contains(index))
}

/// Changes the port of one Service after the other, and waits for the last one only.
fn edit_all(stage: &Stage, clusters: usize, over: &AtomicBool, edits: &AtomicUsize) -> Result<()> {
    let mut port = 10_000;
    while !over.load(Ordering::Relaxed) {
        for index in ready(clusters) {
            port = if port == 60_000 { 10_000 } else { port + 1 };
            stage.set_port(index, port)?;
            edits.fetch_add(1, Ordering::Relaxed);
            // One change at a time reaches its secret, so that changes and swaps run concurrently and neither starves.
            if index == 0 {
                let reached = |secret: &Secret| secret.server.ends_with(&format!(":{port}"));
                stage.wait_for_secret(
                    index,
                    &format!("the port of {}", fleet::hosted_name(index)),
                    reached,
                )?;
            }
        }
    }
    Ok(())
}
