//! Replaces the revisions of two policies under a running agent while its fleet changes all the time, in a folder or on
//! an API server. Used by tests and soak.

mod folder;
mod place;
mod versions;

pub use place::{Component, Place, Writes};

use crate::agent::Agent;
use crate::http::Meter;
use crate::load::{Load, Pace, ready};
use anyhow::{Error, Result, anyhow, ensure};
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use versions::Versions;

/// The policy whose answers differ with each swap.
pub const POLICY: &str = "external-managed-kubeconfig";
/// The policy whose components differ and answer alike.
pub const ALIKE: &str = "built-in-taints";
/// HostedClusters that nobody changes: each swap writes their secrets once.
const QUIET: usize = 4;
/// By how much memory may grow after the first half of the swaps.
pub const GROWTH_BYTES: u64 = 16 << 20;
/// How often is looked for what takes seconds.
const SELDOM: Duration = Duration::from_millis(200);

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Swap {
    /// HostedClusters.
    pub clusters: usize,
    /// ManagedClusters; more than HostedClusters.
    pub managed: usize,
    /// Seconds between two resyncs of a ManagedCluster: what keeps the agent busy beside the changes.
    pub resync_seconds: u32,
    /// Reconciles for each change of the fleet: changes cost whoever makes them more than the agent.
    pub reconciles_per_change: usize,
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
    /// Writes of the agent, each of which was called for.
    pub writes: usize,
    /// Reconciles meanwhile.
    pub reconciles: f64,
    /// Reconciles in a second.
    pub rate: f64,
    /// The share of the ManagedClusters that a swap did not reconcile, because their answers stay the same.
    pub settled: f64,
    /// Memory after each swap, in bytes.
    pub memory: Vec<u64>,
}

/// What was observed, and what is to be checked once the agent has ended.
struct Worked {
    seen: Swapped,
    /// How often each HostedCluster got another port.
    ports: BTreeMap<usize, usize>,
    /// How often the state of each ManagedCluster changed.
    flips: BTreeMap<String, usize>,
    log: String,
}

impl Swapped {
    /// By how many bytes the median of the last quarter of the swaps exceeds that of the first or the second, whichever
    /// is larger. Single samples vary by a third of the memory, because each is taken while the agent works.
    pub fn growth(&self) -> u64 {
        let [first, second, _, last] = self.quarters();
        last.saturating_sub(first.max(second))
    }

    /// The median of memory in each quarter of the swaps, in bytes.
    fn quarters(&self) -> [u64; 4] {
        let swaps = self.memory.len();
        [0, 1, 2, 3].map(|quarter| {
            let [from, to] = [quarter, quarter + 1].map(|quarter| quarter * swaps / 4);
            let mut samples = self.memory.get(from..to).unwrap_or_default().to_vec();
            samples.sort_unstable();
            samples.get(samples.len() / 2).copied().unwrap_or_default()
        })
    }

    /// The figures in one line.
    pub fn told(&self) -> String {
        let [first, second, third, last] = self.quarters().map(|bytes| bytes >> 20);
        format!(
            "{:.0} reconciles per second, {:.0} in all, {} changes, {} writes, {} secrets read, {:.0} % of the unchanged answers not asked for again, memory {first}, {second}, {third} and {last} MiB in its quarters",
            self.rate,
            self.reconciles,
            self.edits,
            self.writes,
            self.read,
            self.settled * 100.0,
        )
    }
}

impl Swap {
    /// Replaces both policies over and over. Follows every written secret, and counts every write.
    ///
    /// # Errors
    /// When a change is lost, a secret mixes two versions or is written by an earlier revision after a later one, or
    /// something is written twice.
    pub fn run(self, place: &dyn Place) -> Result<Swapped> {
        let versions = Versions::read(place, self.resync_seconds)?;
        versions.put(0)?;
        let agent = place.agent()?;
        let meter = Meter::new(agent.ready()?);
        let (ended, read) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| versions.follow(&meter, &ended, &read));
            let worked = self.work(agent, &meter, &versions);
            ended.store(true, Ordering::Relaxed);
            reader.join().map_err(panicked)??;
            worked
        })
        .and_then(|worked| self.ends_well(worked, place, read.into_inner()))
    }

    /// Swaps under changes, until everything is as the last revisions have it and the agent has ended.
    fn work(self, agent: Agent, meter: &Meter, versions: &Versions<'_>) -> Result<Worked> {
        let quiet = self.clusters - QUIET;
        let load = Load::new(versions.place, quiet, self.clusters, self.managed)?;
        versions.wait_for_all(self.clusters, 0)?;
        let counted = || meter.metric("transom_reconciles_total", "");
        let (begun, before) = (Instant::now(), counted()?);
        let over = AtomicBool::new(false);
        let pace = |policy| Pace {
            meter,
            policy,
            reconciles: self.reconciles_per_change,
        };
        let (memory, ports, flips) = std::thread::scope(|scope| {
            let hosted = scope.spawn(|| load.edit_hosted(pace(POLICY), &over));
            let managed = scope.spawn(|| load.edit_managed(pace(ALIKE), &over));
            let memory = self.swap_all(&agent, versions);
            over.store(true, Ordering::Relaxed);
            let ports = hosted.join().map_err(panicked)?;
            let flips = managed.join().map_err(panicked)?;
            anyhow::Ok((memory?, ports?, flips?))
        })?;
        let (reconciles, span) = (counted()? - before, begun.elapsed().as_secs_f64());
        versions.wait_for_all(self.clusters, self.swaps)?;
        load.wait_for_taints(&flips)?;
        let told = "cause=\"Swapped\",policy=\"built-in-taints\"";
        let swapped = meter.metric("transom_reconciles_total", told)?;
        Ok(Worked {
            seen: Swapped {
                edits: load.edits(),
                read: 0,
                writes: 0,
                reconciles,
                rate: reconciles / span,
                settled: 1.0 - swapped / (self.managed * self.swaps) as f64,
                memory,
            },
            ports,
            flips,
            log: agent.stop()?,
        })
    }

    /// Replaces both policies; each time every secret that nobody changes must reach the new revision, and the other
    /// policy have its own, before the next swap. Returns the memory after each.
    fn swap_all(self, agent: &Agent, versions: &Versions<'_>) -> Result<Vec<u64>> {
        let one = |round: usize| {
            let before = versions.place.revision(ALIKE)?;
            versions.put(round)?;
            for index in ready(self.clusters).filter(|index| *index >= self.clusters - QUIET) {
                let came = seldom(|| {
                    let text = versions.place.made(index).ok()??;
                    (versions.round_of(&text).ok()? == round).then_some(())
                });
                agent.wait(&format!("round {round} of {index}"), came)?;
            }
            let other = seldom(|| {
                let now = versions.place.revision(ALIKE).ok()?;
                (now.is_some() && now != before).then_some(())
            });
            agent.wait("the other revision of the taints", other)?;
            agent.resident_bytes()
        };
        (1..=self.swaps).map(one).collect()
    }

    /// Checks that each swap was told once, and nothing was written without a difference: a secret that nobody changes
    /// once for each revision, everything else at most once more for each change.
    fn ends_well(self, worked: Worked, place: &dyn Place, read: usize) -> Result<Swapped> {
        let Worked {
            mut seen,
            ports,
            flips,
            log,
        } = worked;
        // Whatever changes between a trial and its swap is no divergence.
        ensure!(
            !log.contains("Diverged"),
            "a plan is told as another one: {log}"
        );
        let lines = log.lines().map(serde_json::from_str::<Value>);
        let is_swap = |line: &Value| line["message"] == "swapped";
        let swapped = lines.flatten().filter(is_swap).count();
        ensure!(
            swapped == 2 * self.swaps,
            "{swapped} swaps were told, {} were made",
            2 * self.swaps
        );
        let mut writes = place.writes(&log)?;
        let mut checked = 0;
        for index in ready(self.clusters) {
            let written = writes.hosted.remove(&index).unwrap_or_default();
            let count = written.len();
            let most = 1 + self.swaps + ports.get(&index).copied().unwrap_or_default();
            let is_quiet = index >= self.clusters - QUIET;
            ensure!(
                count <= most && (!is_quiet || count == most),
                "the secret of HostedCluster {index} was written {count} times, expected {most}: {written:?}"
            );
            checked += count;
        }
        for (name, most) in &flips {
            let written = writes.managed.remove(name).unwrap_or_default();
            let count = written.len();
            ensure!(
                count <= *most,
                "{name} was written {count} times for {most} changes: {written:?}"
            );
            checked += count;
        }
        ensure!(checked > self.clusters, "hardly anything was written");
        (seen.read, seen.writes) = (read, checked);
        Ok(seen)
    }
}

/// Looks a few times in a second only: whoever waits leaves the machine to the agent.
fn seldom<T>(mut look: impl FnMut() -> Option<T>) -> impl FnMut() -> Option<T> {
    let mut last = None::<Instant>;
    move || {
        if last.is_some_and(|last| last.elapsed() < SELDOM) {
            return None;
        }
        last = Some(Instant::now());
        look()
    }
}

fn panicked(_: Box<dyn Any + Send>) -> Error {
    anyhow!("a thread panicked")
}
