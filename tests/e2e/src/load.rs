//! A heavy stream of changes of a fleet in a folder, of which most call for a reconcile and change no answer. Used while
//! policies are replaced.

use crate::agent::DEADLINE;
use crate::http::metric;
use crate::stage::{Stage, put};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_core::reference::{LOCAL, ObjectRef};
use transom_support::{fleet, wait};

/// Of so many changes of an object one changes the answer: an object is written at most once in a second.
const DIFFERS: usize = 16;
/// The policies whose primaries change.
const HOSTED: &str = "policy=\"external-managed-kubeconfig\"";
const MANAGED: &str = "policy=\"built-in-taints\"";
/// So many changes are made before the workqueues are looked at.
const AT_ONCE: usize = 64;
/// A change of a Service that changes no answer.
const FAMILIES: [&str; 2] = ["PreferDualStack", "RequireDualStack"];
/// A change of a ManagedCluster that changes no answer, and one that does.
const SAID: [&str; 2] = [
    "Managed cluster is available\"",
    "Managed cluster is available.\"",
];
const AVAILABLE: [&str; 2] = [
    "status: \"True\"\n    type: ManagedClusterConditionAvailable",
    "status: \"Unknown\"\n    type: ManagedClusterConditionAvailable",
];
/// The taint of a ManagedCluster whose state is unknown.
const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";

/// The HostedClusters of a generated fleet that get a secret: the generator makes the others unavailable, or leaves out
/// their namespace.
pub fn ready(clusters: usize) -> impl Iterator<Item = usize> {
    (0..clusters).filter(|index| index % 20 != 3 && index % 40 != 5)
}

/// A stream of changes.
pub struct Load<'a> {
    stage: &'a Stage,
    /// HostedClusters that change: the first ones.
    hosted: usize,
    /// The ManagedClusters that change: those that are available at first.
    managed: Vec<String>,
    edits: AtomicUsize,
}

impl<'a> Load<'a> {
    /// Changes the first `hosted` of `clusters` HostedClusters, and the ManagedClusters of a generated fleet.
    ///
    /// # Errors
    /// When there is nothing to change.
    pub fn new(stage: &'a Stage, hosted: usize, clusters: usize, managed: usize) -> Result<Self> {
        let name = |index: usize| match index < clusters {
            true => fleet::managed_name(index),
            false => format!("edge-{index:05}"),
        };
        let available = (0..managed).filter(|index| [0, 1, 3, 5, 6].contains(&(index % 10)));
        let managed: Vec<String> = available.map(name).collect();
        ensure!(hosted > 0 && !managed.is_empty(), "nothing to change");
        Ok(Self {
            stage,
            hosted,
            managed,
            edits: AtomicUsize::new(0),
        })
    }

    /// How many changes were made.
    pub fn edits(&self) -> usize {
        self.edits.load(Ordering::Relaxed)
    }

    /// Changes the Service of one HostedCluster after the other. Returns how often each got another port.
    ///
    /// # Errors
    /// When a file cannot be changed.
    pub fn edit_hosted(
        &self,
        admin: SocketAddr,
        over: &AtomicBool,
    ) -> Result<BTreeMap<String, usize>> {
        let all: Vec<usize> = ready(self.hosted).collect();
        let (mut ports, mut port) = (BTreeMap::new(), 10_000);
        self.rounds((admin, HOSTED), over, all.len(), |round, at| {
            let index = *all.get(at).context("no such HostedCluster")?;
            if (round + index) % DIFFERS != 0 {
                return toggle(&self.stage.hosted(index), FAMILIES);
            }
            port = if port == 60_000 { 10_000 } else { port + 1 };
            *ports.entry(fleet::hosted_name(index)).or_default() += 1;
            self.stage.set_port(index, port)
        })?;
        Ok(ports)
    }

    /// Changes one ManagedCluster after the other. Returns how often the state of each changed.
    ///
    /// # Errors
    /// When a file cannot be changed.
    pub fn edit_managed(
        &self,
        admin: SocketAddr,
        over: &AtomicBool,
    ) -> Result<BTreeMap<String, usize>> {
        let mut flips = BTreeMap::new();
        self.rounds((admin, MANAGED), over, self.managed.len(), |round, at| {
            let name = self.managed.get(at).context("no such ManagedCluster")?;
            let path = self.stage.managed(name);
            if (round + at) % DIFFERS != 0 {
                return toggle(&path, SAID);
            }
            *flips.entry(name.clone()).or_default() += 1;
            toggle(&path, AVAILABLE)
        })?;
        Ok(flips)
    }

    /// Makes one change after the other, round by round. After every few waits while more primaries of the policy are to be
    /// reconciled than there are changes in a round, so that neither the agent nor the stream starves.
    fn rounds(
        &self,
        (admin, policy): (SocketAddr, &str),
        over: &AtomicBool,
        count: usize,
        mut change: impl FnMut(usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut made = 0;
        while !over.load(Ordering::Relaxed) {
            change(made / count, made % count)?;
            self.edits.fetch_add(1, Ordering::Relaxed);
            made += 1;
            if !made.is_multiple_of(AT_ONCE) {
                continue;
            }
            wait::until("room in the workqueues", DEADLINE, || {
                let left = metric(admin, "transom_queue_primaries", policy).ok()?;
                (left <= count as f64 || over.load(Ordering::Relaxed)).then_some(())
            })?;
        }
        Ok(())
    }

    /// Waits until every ManagedCluster that changed has the taint of its last state, or none.
    ///
    /// # Errors
    /// When this never happens.
    pub fn wait_for_taints(&self) -> Result<()> {
        let expected = |name: &String| {
            let text = fs::read_to_string(self.stage.managed(name))?;
            anyhow::Ok((managed(name), text.contains(AVAILABLE[1])))
        };
        let expected: Vec<_> = self.managed.iter().map(expected).collect::<Result<_>>()?;
        let (references, unreachable): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
        let right = || {
            let options = DirectoryOptions {
                writable: false,
                watch: false,
                ..DirectoryOptions::new(LOCAL, &self.stage.fleet)
            };
            let there = Directory::open(options).ok()?.read(&references);
            let mut both = there.iter().zip(&unreachable);
            both.all(|(object, unreachable)| {
                let Ok(Some(object)) = object else {
                    return false;
                };
                let taints = object.body.pointer("/spec/taints");
                let taints = taints.map(ToString::to_string).unwrap_or_default();
                taints.contains(UNREACHABLE) == *unreachable
            })
            .then_some(())
        };
        Ok(wait::until(
            "the taints of the last states",
            DEADLINE,
            right,
        )?)
    }
}

fn managed(name: &str) -> ObjectRef {
    let kind = "cluster.open-cluster-management.io/v1";
    ObjectRef::local(kind, "ManagedCluster", None, name)
}

/// Replaces one of two texts in a file by the other.
fn toggle(path: &PathBuf, texts: [&str; 2]) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let [one, other] = texts;
    let (from, to) = if text.contains(other) {
        (other, one)
    } else {
        (one, other)
    };
    ensure!(
        text.contains(from),
        "`{}` holds neither text",
        Path::display(path)
    );
    put(path, text.replacen(from, to, 1).as_bytes())
}
