//! One minute of heartbeats: every ManagedCluster changes in a way that affects no decision. Changes no condition.

use super::fleet::{PARALLEL, Scene};
use super::running::Agent;
use super::taints::send;
use super::{count, row};
use crate::table::{Figure, Table};
use anyhow::{Result, ensure};
use kube::api::{Api, DynamicObject, Patch};
use serde_json::json;
use std::time::{Duration, Instant};
use transom_core::metrics::{QUEUE, RECONCILES};
use transom_test_cluster::wait;

/// The minimum duration; each cluster sends one heartbeat, however long that takes.
const BEATING: Duration = Duration::from_secs(60);

/// The deadline for finishing earlier work; far longer than needed.
const DEADLINE: Duration = Duration::from_secs(60);

/// Measures what the agent does meanwhile.
pub(super) async fn measure(
    scene: &Scene,
    clusters: &Api<DynamicObject>,
    names: &[String],
    agent: &Agent,
    table: &mut Table,
) -> Result<()> {
    // The agent may still be handling the last flip.
    let calm = async || Ok((agent.metric(&QUEUE)? == 0.0).then_some(()));
    wait::until("an agent with nothing to reconcile", DEADLINE, calm).await?;
    let reconciled = agent.metric(&RECONCILES)?;
    // A missing metric would be zero before and after.
    ensure!(
        reconciled >= names.len() as f64,
        "the agent tells of {reconciled} reconciles so far"
    );
    let (since, cpu, start) = (
        scene.now().await?,
        agent.running.cpu_millis()?,
        Instant::now(),
    );
    let mut beats = 0_usize;
    for chunk in names.chunks(PARALLEL * 8).cycle() {
        let patch = Patch::Merge(
            json!({"status": {"clusterClaims": [{"name": "beat", "value": beats.to_string()}]}}),
        );
        send(clusters, chunk, &patch).await?;
        beats += chunk.len();
        if beats >= names.len() && start.elapsed() >= BEATING {
            break;
        }
    }
    let (wall, cpu) = (
        start.elapsed().as_secs_f64() * 1e3,
        agent.running.cpu_millis()? - cpu,
    );
    let (requests, reconciles) = (
        scene.requests(&since).await?.all(),
        agent.metric(&RECONCILES)? - reconciled,
    );
    let what = |rest: &str| {
        format!(
            "a minute of beating hearts, {} ManagedClusters, {beats} beats: {rest}",
            names.len()
        )
    };
    table.add(row(
        what("reconciles"),
        Figure::Count(reconciles),
        "none",
        count(0),
        Some(1.0),
    ))?;
    table.add(row(
        what("requests"),
        count(requests),
        "none",
        count(0),
        Some(1.0),
    ))?;
    table.add(row(
        what("CPU of the agent"),
        Figure::Millis(cpu),
        "the minute",
        Figure::Millis(wall),
        None,
    ))
}
