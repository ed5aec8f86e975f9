//! A heavy stream of changes of a fleet, of which most call for a reconcile and change no answer. Used while policies
//! are replaced.

use crate::agent::DEADLINE;
use crate::http::Meter;
use crate::swap::Place;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use transom_support::{fleet, wait};

/// Of so many changes of an object one changes the answer: an object is written at most once in a second.
const DIFFERS: usize = 16;
/// By so many changes the stream may be ahead of the agent.
const AHEAD: usize = 64;
/// The taint of a ManagedCluster whose state is unknown.
pub const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";

/// The HostedClusters of a generated fleet that get a secret: the generator makes the others unavailable, or leaves out
/// their namespace.
pub fn ready(clusters: usize) -> impl Iterator<Item = usize> {
    (0..clusters).filter(|index| index % 20 != 3 && index % 40 != 5)
}

/// How fast the stream is.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    /// The agent's metrics.
    pub meter: &'a Meter,
    /// The policy whose primaries change.
    pub policy: &'static str,
    /// Its reconciles for each change.
    pub reconciles: usize,
}

/// A stream of changes.
pub struct Load<'a> {
    place: &'a dyn Place,
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
    pub fn new(
        place: &'a dyn Place,
        hosted: usize,
        clusters: usize,
        managed: usize,
    ) -> Result<Self> {
        let name = |index: usize| match index < clusters {
            true => fleet::managed_name(index),
            false => format!("edge-{index:05}"),
        };
        let available = (0..managed).filter(|index| [0, 1, 3, 5, 6].contains(&(index % 10)));
        let managed: Vec<String> = available.map(name).collect();
        ensure!(hosted > 0 && !managed.is_empty(), "nothing to change");
        Ok(Self {
            place,
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
    /// When a Service cannot be changed.
    pub fn edit_hosted(&self, pace: Pace<'_>, over: &AtomicBool) -> Result<BTreeMap<usize, usize>> {
        let all: Vec<usize> = ready(self.hosted).collect();
        let (mut ports, mut port) = (BTreeMap::new(), 10_000);
        self.rounds(pace, over, all.len(), |round, at| {
            let index = *all.get(at).context("no such HostedCluster")?;
            if (round + index) % DIFFERS != 0 {
                return self.place.touch_service(index, round % 2 == 0);
            }
            port = if port == 60_000 { 10_000 } else { port + 1 };
            *ports.entry(index).or_default() += 1;
            self.place.set_port(index, port)
        })?;
        Ok(ports)
    }

    /// Changes one ManagedCluster after the other. Returns how often the state of each changed.
    ///
    /// # Errors
    /// When a ManagedCluster cannot be changed.
    pub fn edit_managed(
        &self,
        pace: Pace<'_>,
        over: &AtomicBool,
    ) -> Result<BTreeMap<String, usize>> {
        let mut flips = BTreeMap::<String, usize>::new();
        self.rounds(pace, over, self.managed.len(), |round, at| {
            let name = self.managed.get(at).context("no such ManagedCluster")?;
            let mut flipped = flips.get(name).copied().unwrap_or_default();
            if (round + at) % DIFFERS == 0 {
                flipped += 1;
                flips.insert(name.clone(), flipped);
            }
            let message = round % 2 == 0;
            self.place.say_available(name, flipped % 2 == 0, message)
        })?;
        Ok(flips)
    }

    /// Makes one change after the other, round by round, until it is over. It makes no more than the agent has done its
    /// reconciles for, and none while more primaries are left than there are changes in a round.
    fn rounds(
        &self,
        pace: Pace<'_>,
        over: &AtomicBool,
        count: usize,
        mut change: impl FnMut(usize, usize) -> Result<()>,
    ) -> Result<()> {
        let of = format!("policy=\"{}\"", pace.policy);
        let reconciles = || pace.meter.metric("transom_reconciles_total", &of);
        let (mut made, before) = (0, reconciles()?);
        loop {
            let room = wait::until("room for more changes", DEADLINE, || {
                if over.load(Ordering::Relaxed) {
                    return Some(0);
                }
                let left = pace.meter.metric("transom_queue_primaries", &of).ok()?;
                let done = reconciles().ok()? - before;
                let most = AHEAD + (done / pace.reconciles as f64) as usize;
                (made < most && left <= count as f64).then_some(most - made)
            })?;
            if room == 0 {
                return Ok(());
            }
            for at in made..made + room {
                change(at / count, at % count)?;
                self.edits.fetch_add(1, Ordering::Relaxed);
            }
            made += room;
        }
    }

    /// Waits until every ManagedCluster has the taint of its last state, or none; `flips` says how often each changed.
    ///
    /// # Errors
    /// When this never happens.
    pub fn wait_for_taints(&self, flips: &BTreeMap<String, usize>) -> Result<()> {
        let right = || {
            let tainted = self.place.unreachable().ok()?;
            let is_unknown = |name| flips.get(name).is_some_and(|flips| flips % 2 == 1);
            let mut all = self.managed.iter();
            all.all(|name| tainted.contains(name) == is_unknown(name))
                .then_some(())
        };
        Ok(wait::until(
            "the taints of the last states",
            DEADLINE,
            right,
        )?)
    }
}
