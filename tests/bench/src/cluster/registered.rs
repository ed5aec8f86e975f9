//! A restart of the agent of a hub on which all clusters are accepted and nothing has changed (policies
//! `cluster-access`, `availability` and `built-in-taints`), beside a program that only lists what the agent watches.

use super::fleet::Scene;
use super::hub::{self, LONG, Lease, say};
use super::leases::start;
use super::spent::Runs;
use super::{Rows, count};
use crate::process::Programs;
use crate::table::Table;
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};
use transom_core::metrics::{QUEUE, RECONCILES};
use transom_test_cluster::wait;

/// What a hub has at least.
const POLICIES: [&str; 3] = ["availability", "built-in-taints", "cluster-access"];
/// Restarts that count.
const RESTARTS: usize = 5;
/// The deadline until nothing is left to do after a start.
const DEADLINE: Duration = Duration::from_secs(600);

/// The first run makes what is there at each restart; it is not measured.
pub(super) async fn measure(
    programs: &Programs,
    (scene, many): (&Scene, usize),
    table: &mut Table,
) -> Result<()> {
    hub::install(scene, many, Lease::LeftToTheAgent(LONG)).await?;
    let policies = scene.policies(&POLICIES)?;
    let words = [
        "run",
        "--once",
        "--kubeconfig",
        &scene.agent,
        "--policies",
        &policies,
    ];
    // What waits for something else that is made comes in a second run.
    for run in ["first", "second"] {
        let start = Instant::now();
        let mut first = Runs::default();
        first
            .add(scene, &mut programs.transom(&words))
            .await
            .context("failed to register the clusters")?;
        say(&format!(
            "{run} run of the agent: {:.0} s",
            start.elapsed().as_secs_f64()
        ))?;
    }
    let list = ["server", "--kubeconfig", &scene.floor, "list-hub"];
    let (mut ours, mut floor) = (Runs::default(), Runs::default());
    let since = scene.now().await?;
    for _ in 0..RESTARTS {
        ours.add(scene, &mut programs.transom(&words)).await?;
        floor.add(scene, &mut programs.floor(&list)).await?;
    }
    let requests = scene.requests(&since).await?;
    let what = format!("restart with {many} registered clusters");
    let mut rows = Rows::about(what, table);
    let none = count(0);
    rows.add("writes", count(requests.writes), "none", none, Some(1.0))?;
    rows.add("single reads", count(requests.gets), "none", none, None)?;
    let (list, cpu) = ("list and decode with kube", ours.cpu());
    rows.add("CPU of the agent", cpu, list, floor.cpu(), Some(3.0))?;
    let agent = start(programs, scene, &POLICIES)?;
    let rests = async || {
        let metric = |of| super::fleet::metric(&agent, of);
        let done = metric(&RECONCILES)? >= (POLICIES.len() * many) as f64;
        Ok((done && metric(&QUEUE)? == 0.0).then_some(()))
    };
    wait::until("an agent with nothing to reconcile", DEADLINE, rests).await?;
    rows.memory(&agent)
}
