//! The agent on a real API server, beside programs that send only the necessary requests. Compares only figures of the
//! same run: server, agent and baselines share one machine.

mod acceptance;
mod changes;
mod first;
mod fleet;
mod flips;
mod hub;
mod leases;
mod registered;
mod sets;
mod spent;
mod taints;

use crate::process::Programs;
use crate::table::{Figure, Row, Table};
use anyhow::Result;
use fleet::{Scene, allowance};
use spent::Verbs;
use std::path::Path;
use tokio::runtime::Runtime;
use transom_e2e::agent::Agent;

/// The cost of the servers.
const SERVERS: &str = "CPU of the API server and etcd";
/// The limit for peak memory.
const ALLOWED: &str = "64 MiB and 10 KiB an object kept";

/// How many clusters are accepted, or whose leases expire, at once, at most.
const ACCEPTED: usize = 1000;

/// The sizes of the fleets.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// HostedClusters.
    pub(crate) hosted: usize,
    /// ManagedClusters.
    pub(crate) managed: usize,
}

/// What can be measured apart, each on a server of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Kubeconfigs: first run, restart, rotations.
    Kubeconfigs,
    /// ManagedClusters that turn Unknown.
    Taints,
    /// Sets of them.
    Sets,
    /// Clusters that are accepted.
    Acceptance,
    /// Leases that beat, and that expire.
    Leases,
    /// A restart of the agent of a hub.
    Registered,
}

impl Part {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Kubeconfigs,
        Self::Taints,
        Self::Sets,
        Self::Acceptance,
        Self::Leases,
        Self::Registered,
    ];
}

/// Measures a part.
pub(crate) fn measure(
    programs: &Programs,
    work: &Path,
    (part, sizes): (Part, Sizes),
    table: &mut Table,
) -> Result<()> {
    let Sizes { hosted, managed } = sizes;
    let few = managed.min(ACCEPTED);
    Runtime::new()?.block_on(async {
        match part {
            Part::Kubeconfigs => {
                let scene = Scene::hosted(work, hosted).await?;
                let writes = first::first(programs, &scene, table).await?;
                first::again(programs, &scene, table).await?;
                first::strict(programs, &scene, writes, table).await?;
                changes::rotations(programs, &scene, table).await
            }
            Part::Taints => {
                let scene = Scene::managed(work, managed).await?;
                taints::measure(programs, &scene, table).await
            }
            Part::Sets => {
                let scene = Scene::managed(work, managed).await?;
                sets::measure(programs, &scene, table).await
            }
            Part::Acceptance => {
                let scene = Scene::managed(work, few).await?;
                acceptance::measure(programs, &scene, table).await
            }
            Part::Leases => {
                let scene = Scene::managed(work, 0).await?;
                leases::beats(programs, (&scene, managed), table).await?;
                drop(scene);
                let scene = Scene::managed(work, 0).await?;
                leases::expiry(programs, (&scene, few), table).await
            }
            Part::Registered => {
                let scene = Scene::managed(work, 0).await?;
                registered::measure(programs, (&scene, managed), table).await
            }
        }
    })
}

/// The rows about one thing that is measured.
struct Rows<'a> {
    what: String,
    table: &'a mut Table,
}

impl<'a> Rows<'a> {
    /// Rows that begin with these words.
    fn about(what: String, table: &'a mut Table) -> Self {
        Self { what, table }
    }

    /// Adds a figure of the agent and its floor.
    fn add(
        &mut self,
        rest: &str,
        figure: Figure,
        against: &str,
        floor: Figure,
        target: Option<f64>,
    ) -> Result<()> {
        let what = format!("{}: {rest}", self.what);
        self.table.add(row(what, figure, against, floor, target))
    }

    /// Adds all requests by verb, by the server's own counters, of the agent and of its floor.
    fn verbs(&mut self, ours: &Verbs, against: &str, floor: &Verbs) -> Result<()> {
        let rest = format!(
            "all requests by the server's own counters ({})",
            ours.shown()
        );
        let against = format!("{against} ({})", floor.shown());
        self.add(&rest, count(ours.sum()), &against, count(floor.sum()), None)
    }

    /// Adds the peak memory of an agent.
    fn memory(&mut self, agent: &Agent) -> Result<()> {
        let peak = Figure::Mebibytes(agent.peak_bytes()? as f64 / f64::from(1 << 20));
        let allowed = Figure::Mebibytes(allowance(agent)?);
        self.add("peak memory", peak, ALLOWED, allowed, Some(1.0))
    }
}

fn row(what: String, figure: Figure, against: &str, floor: Figure, target: Option<f64>) -> Row {
    Row {
        what,
        figure,
        against: against.to_owned(),
        floor,
        fastest: None,
        target,
    }
}

fn count(things: usize) -> Figure {
    Figure::Count(things as f64)
}
