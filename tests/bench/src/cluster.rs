//! The agent on a real API server, beside programs that send only the necessary requests. Compares only figures of the
//! same run: server, agent and baselines share one machine.

mod acceptance;
mod changes;
mod first;
mod fleet;
mod flips;
mod sets;
mod spent;
mod taints;

use crate::process::Programs;
use crate::table::{Figure, Row, Table};
use anyhow::Result;
use fleet::Scene;
use spent::Verbs;
use std::path::Path;
use tokio::runtime::Runtime;

/// The cost of the servers.
const SERVERS: &str = "CPU of the API server and etcd";
/// The limit for peak memory.
const ALLOWED: &str = "64 MiB and 10 KiB an object kept";

/// How many clusters are accepted at once, at most.
const ACCEPTED: usize = 1000;

/// The sizes of the fleets.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// HostedClusters.
    pub(crate) hosted: usize,
    /// ManagedClusters.
    pub(crate) managed: usize,
}

/// Measures everything on its own server.
pub(crate) fn measure(
    programs: &Programs,
    work: &Path,
    sizes: Sizes,
    table: &mut Table,
) -> Result<()> {
    Runtime::new()?.block_on(async {
        let scene = Scene::hosted(work, sizes.hosted).await?;
        let writes = first::first(programs, &scene, table).await?;
        first::again(programs, &scene, table).await?;
        first::strict(programs, &scene, writes, table).await?;
        changes::rotations(programs, &scene, table).await?;
        drop(scene);
        let scene = Scene::managed(work, sizes.managed).await?;
        taints::measure(programs, &scene, table).await?;
        sets::measure(programs, &scene, table).await?;
        drop(scene);
        let scene = Scene::managed(work, sizes.managed.min(ACCEPTED)).await?;
        acceptance::measure(programs, &scene, table).await
    })
}

/// Measures only sets of ManagedClusters, on a server of its own.
pub(crate) fn sets(
    programs: &Programs,
    work: &Path,
    managed: usize,
    table: &mut Table,
) -> Result<()> {
    Runtime::new()?.block_on(async {
        let scene = Scene::managed(work, managed).await?;
        sets::measure(programs, &scene, table).await
    })
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

/// All requests by verb, of the measured program and of the bench.
fn verbs(what: impl Fn(&str) -> String, ours: &Verbs, against: &str, floor: &Verbs) -> Row {
    let what = what(&format!(
        "all requests by the server's own counters ({})",
        ours.shown()
    ));
    row(
        what,
        count(ours.sum()),
        &format!("{against} ({})", floor.shown()),
        count(floor.sum()),
        None,
    )
}
