//! Replaces the revisions of two policies under a running agent while its fleet changes all the time. Used by tests and
//! soak.

use crate::agent::{ADMIN, Agent, DEADLINE};
use crate::http::metric;
use crate::load::{Load, ready};
use crate::program;
use crate::secret::{Secret, is_secret};
use crate::stage::{Stage, port_of, put};
use crate::tree;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use transom_support::{fleet, wait};

/// The policy whose answers differ with each swap.
pub const POLICY: &str = "external-managed-kubeconfig";
/// The policy whose components differ and answer alike.
const ALIKE: &str = "built-in-taints";
/// The two versions of a component, each with the end of the server's host name that only it writes.
const VERSIONS: [(&str, &str); 2] = [
    ("kubeconfig", ".svc.cluster.local"),
    ("fixture-second", ".svc"),
];
/// The annotation of each secret with the number of the swap whose revision wrote it.
const ROUND: &str = "example.com/round";
/// HostedClusters that nobody changes: each swap writes their secrets once.
const QUIET: usize = 4;
/// After so many swaps memory has its size.
const WARM: usize = 20;

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Swap {
    /// HostedClusters.
    pub clusters: usize,
    /// ManagedClusters; more than HostedClusters.
    pub managed: usize,
    /// Seconds between two resyncs of a ManagedCluster: what keeps the agent busy beside the changes.
    pub resync_seconds: u32,
    /// How often both policies are replaced.
    pub swaps: usize,
}

/// What was observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Swapped {
    /// Changes of the fleet meanwhile.
    pub edits: usize,
    /// Secrets that were read meanwhile; each came from one version, and from no earlier revision than before.
    pub read: usize,
    /// Reconciles meanwhile.
    pub reconciles: f64,
    /// Reconciles in a second.
    pub rate: f64,
    /// The share of the ManagedClusters that a swap did not reconcile, because their answers stay the same.
    pub settled: f64,
    /// Memory after each swap, in bytes.
    pub memory: Vec<u64>,
}

impl Swapped {
    /// Memory after so many swaps, in MiB; 0 when there were fewer.
    pub fn mebibytes_after(&self, swaps: usize) -> u64 {
        let after = swaps.checked_sub(1).and_then(|at| self.memory.get(at));
        after.map_or(0, |bytes| bytes >> 20)
    }

    /// By how many bytes memory at the end exceeds its maximum during the first swaps.
    pub fn growth(&self) -> u64 {
        let first = self.memory.len().div_ceil(2).min(WARM);
        let most = self.memory.iter().take(first).max();
        let last = self.memory.last();
        last.copied()
            .unwrap_or_default()
            .saturating_sub(most.copied().unwrap_or_default())
    }
}

impl Swap {
    /// Replaces both policies over and over. Follows every written secret, and counts every write.
    ///
    /// # Errors
    /// When a change is lost, a secret mixes two versions or is written by an earlier revision after a later one, or
    /// something is written twice.
    pub fn run(self) -> Result<Swapped> {
        let stage = Stage::new(self.clusters, self.managed)?;
        let versions = Versions::read()?;
        versions.put(&stage, 0, self.resync_seconds)?;
        let mut command = stage.run()?;
        command.args([ADMIN, "127.0.0.1:0", "--log-format", "json"]);
        let agent = Agent::start(&mut command, stage.path("log"))?;
        let admin = agent.ready()?;
        let load = Load::new(&stage, self.clusters - QUIET, self.clusters, self.managed)?;
        versions.wait_for_all(&stage, self.clusters, 0)?;
        let counted = || metric(admin, "transom_reconciles_total", "");
        let (begun, before) = (Instant::now(), counted()?);
        let (over, read) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (memory, flips) = std::thread::scope(|scope| {
            let hosted = scope.spawn(|| load.edit_hosted(admin, &over));
            let managed = scope.spawn(|| load.edit_managed(admin, &over));
            let reader = scope.spawn(|| versions.read_all(&stage, admin, &over, &read));
            let memory = self.swap_all(&stage, &agent, &versions);
            over.store(true, Ordering::Relaxed);
            let ended = |_| anyhow::anyhow!("a thread panicked");
            let ports = hosted.join().map_err(ended)??;
            let flips = managed.join().map_err(ended)??;
            reader.join().map_err(ended)??;
            anyhow::Ok((memory?, (ports, flips)))
        })?;
        let (reconciles, span) = (counted()? - before, begun.elapsed().as_secs_f64());
        versions.wait_for_all(&stage, self.clusters, self.swaps)?;
        load.wait_for_taints()?;
        let swapped = metric(
            admin,
            "transom_reconciles_total",
            "cause=\"Swapped\",policy=\"built-in-taints\"",
        )?;
        let log = agent.stop()?;
        self.ends_well(&log, &flips.0, &flips.1)?;
        Ok(Swapped {
            edits: load.edits(),
            read: read.into_inner(),
            reconciles,
            rate: reconciles / span,
            settled: 1.0 - swapped / (self.managed * self.swaps) as f64,
            memory,
        })
    }

    /// Replaces both policies; each time every secret that nobody changes must reach the new revision, and the other policy
    /// have its own, before the next swap. Returns the memory after each.
    fn swap_all(self, stage: &Stage, agent: &Agent, versions: &Versions) -> Result<Vec<u64>> {
        let one = |round: usize| {
            let before = revision(stage);
            versions.put(stage, round, self.resync_seconds)?;
            for index in ready(self.clusters).filter(|index| *index >= self.clusters - QUIET) {
                agent.wait(&format!("round {round} of {index}"), || {
                    let text = fs::read_to_string(stage.secret(index)).ok()?;
                    (versions.round_of(&text).ok()? == round).then_some(())
                })?;
            }
            let other = || revision(stage).filter(|now| Some(now) != before.as_ref());
            agent.wait("the other revision of the taints", other)?;
            agent.resident_bytes()
        };
        (1..=self.swaps).map(one).collect()
    }

    /// Whether each swap was told once, and nothing was written without a difference: a secret that nobody changes once for
    /// each revision, everything else at most once more for each change.
    fn ends_well(
        self,
        log: &str,
        ports: &BTreeMap<String, usize>,
        flips: &BTreeMap<String, usize>,
    ) -> Result<()> {
        let (mut swapped, mut writes) = (0, BTreeMap::<String, Vec<String>>::new());
        for line in log.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let message = line["message"].as_str().unwrap_or_default();
            swapped += usize::from(message == "swapped");
            if let (Some(primary), true) = (line["primary"].as_str(), line["target"].is_string()) {
                let cause = line["cause"].as_str().unwrap_or_default();
                let write = format!("{message} for {cause}");
                writes.entry(primary.to_owned()).or_default().push(write);
            }
        }
        ensure!(
            swapped == 2 * self.swaps,
            "{swapped} swaps were told, {} were made",
            2 * self.swaps
        );
        let mut checked = 0;
        for index in ready(self.clusters) {
            let name = fleet::hosted_name(index);
            let primary = format!("HostedCluster clusters/{name}");
            let written = writes.remove(&primary).unwrap_or_default();
            let count = written.len();
            let most = 1 + self.swaps + ports.get(&name).copied().unwrap_or_default();
            let is_quiet = index >= self.clusters - QUIET;
            ensure!(
                count <= most && (!is_quiet || count == most),
                "{name} was written {count} times, expected {most}: {written:?}"
            );
            checked += count;
        }
        for (name, most) in flips {
            let primary = format!("ManagedCluster {name}");
            let written = writes.remove(&primary).unwrap_or_default();
            let count = written.len();
            ensure!(
                count <= *most,
                "{name} was written {count} times for {most} changes: {written:?}"
            );
            checked += count;
        }
        ensure!(checked > self.clusters, "hardly anything was written");
        Ok(())
    }
}

/// The active revision of the policy whose components answer alike.
fn revision(stage: &Stage) -> Option<String> {
    let text = fs::read_to_string(stage.policy_status(ALIKE)).ok()?;
    let status: Value = serde_yaml::from_str(&text).ok()?;
    Some(status.pointer("/revision/id")?.as_str()?.to_owned())
}

/// The two versions of each component, and the digest that the agent writes as an annotation.
struct Versions {
    bytes: [Vec<u8>; 2],
    alike: [Vec<u8>; 2],
    digests: Mutex<BTreeMap<String, usize>>,
}

impl Versions {
    fn read() -> Result<Self> {
        let [(first, _), (second, _)] = VERSIONS;
        let taints = program::component("taints")?;
        let mut other = taints.clone();
        // A custom section with an empty name: other bytes, the same answers.
        other.extend([0, 1, 0]);
        Ok(Self {
            bytes: [program::component(first)?, program::component(second)?],
            alike: [taints, other],
            digests: Mutex::default(),
        })
    }

    /// Writes the revisions of a round: each policy names the component of the round's version, and the secrets bear the
    /// round.
    fn put(&self, stage: &Stage, round: usize, resync_seconds: u32) -> Result<()> {
        let version = round % 2;
        let name = format!("{version}.wasm");
        let of = |all: &[Vec<u8>; 2]| all.get(version).cloned().context("there are two versions");
        for (policy, component, bytes) in [
            (POLICY, "builtin:kubeconfig", of(&self.bytes)?),
            (ALIKE, "builtin:taints", of(&self.alike)?),
        ] {
            let path = stage.policies.join(policy).join(&name);
            if !path.exists() {
                put(&path, &bytes)?;
            }
            let annotations = json!({ROUND: round.to_string()});
            let own = format!("\n  own:\n    annotations: {annotations}\n");
            let mut changes = vec![(component, &*name)];
            let resync = format!("spec:\n  resyncSeconds: {resync_seconds}\n");
            match policy {
                POLICY => changes.push(("\n  own:\n", &own)),
                _ => changes.push(("spec:\n", &resync)),
            }
            stage.put_policy(policy, &changes)?;
        }
        Ok(())
    }

    /// The round whose revision wrote a secret, by its annotation. Its content must be of that round's version, and equal
    /// digests must always mean the same version.
    fn round_of(&self, text: &str) -> Result<usize> {
        let secret = Secret::parse(text)?;
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
        let round = text.split_once(ROUND).context("there is no round")?.1;
        let digits = round.trim_start_matches(|char: char| !char.is_ascii_digit());
        let end = digits.find(|char: char| !char.is_ascii_digit());
        let round: usize = digits
            .get(..end.unwrap_or(digits.len()))
            .unwrap_or_default()
            .parse()?;
        ensure!(
            round % 2 == version,
            "the round {round} bears the content of version {version}"
        );
        Ok(round)
    }

    /// Waits until every secret was written by the revision of a round from the latest state of its Service.
    fn wait_for_all(&self, stage: &Stage, clusters: usize, round: usize) -> Result<()> {
        for index in ready(clusters) {
            let text = fs::read_to_string(stage.hosted(index))?;
            let port = format!(":{}", port_of(&text).context("the Service has no port")?.1);
            let source = Secret::parse(&text)?;
            let right = || {
                let text = fs::read_to_string(stage.secret(index)).ok()?;
                let secret = Secret::parse(&text).ok()?;
                let right = secret.server.ends_with(&port) && secret.carries(&source);
                (right && self.round_of(&text).ok()? == round).then_some(())
            };
            wait::until(&format!("the last state of {index}"), DEADLINE, right)?;
        }
        Ok(())
    }

    /// Reads every secret over and over; at all times each must come from one version, and from no earlier round than
    /// before.
    fn read_all(
        &self,
        stage: &Stage,
        admin: SocketAddr,
        over: &AtomicBool,
        read: &AtomicUsize,
    ) -> Result<()> {
        let (mut rounds, mut written) = (BTreeMap::<PathBuf, usize>::new(), 0.0);
        while !over.load(Ordering::Relaxed) {
            written = wait::until("another write", DEADLINE, || {
                let writes = metric(admin, "transom_writes_total", "").ok()?;
                (writes > written || over.load(Ordering::Relaxed)).then_some(writes)
            })?;
            let all = tree::files(&stage.own().join("objects"))?;
            for path in all.into_iter().filter(|path| is_secret(path)) {
                let text = match fs::read_to_string(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    text => text?,
                };
                let round = self.round_of(&text)?;
                let before = rounds.get(&path).copied().unwrap_or_default();
                ensure!(
                    before <= round,
                    "`{}`: written in round {before}, then in round {round}",
                    path.display()
                );
                rounds.insert(path, round);
                read.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
