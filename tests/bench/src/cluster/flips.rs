//! Single ManagedClusters that turn Unknown in a quiet fleet, one after the other; and one minute of heartbeats, in
//! which every one changes in a way that affects no decision.

use super::fleet::{PARALLEL, Scene, metric};
use super::taints::{condition, flip, is_tainted, send};
use super::{Rows, count};
use crate::floor::server::follow_from;
use crate::process::cpu_millis;
use crate::table::{Figure, Table};
use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use transom_core::metrics::{QUEUE, RECONCILES};
use transom_e2e::agent::Agent;
use transom_test_cluster::wait;

/// Flips that are measured.
const FLIPS: usize = 300;
/// The deadline for all of them.
const DEADLINE: Duration = Duration::from_secs(600);
/// How often a newly started program is tried, and how long it may take each time.
const TRIES: usize = 20;
const TRY: Duration = Duration::from_secs(2);

/// From each flip to its taint, in milliseconds.
pub(super) async fn times(clusters: &Api<DynamicObject>, names: &[String]) -> Result<Vec<f64>> {
    // The first one is not counted, because it includes waiting for the watch.
    let names = names.get(..=FLIPS).unwrap_or(names);
    flip(clusters, names, "True").await?;
    for name in names {
        settle_one(clusters, name, false).await?;
    }
    let (first, mut left) = names.split_first().context("there is no ManagedCluster")?;
    let version = clusters
        .get(first)
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    let (unknown, params) = (condition("Unknown"), PatchParams::default());
    let (mut times, mut name, mut start) = (Vec::with_capacity(names.len()), first, Instant::now());
    clusters.patch_status(name, &params, &unknown).await?;
    let flips = follow_from(clusters, None, version, async |object| {
        if object.metadata.name.as_ref() != Some(name) || !is_tainted(&object) {
            return Ok(false);
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let Some((next, rest)) = left.split_first() else {
            return Ok(true);
        };
        (name, left, start) = (next, rest, Instant::now());
        clusters.patch_status(name, &params, &unknown).await?;
        Ok(false)
    });
    timeout(DEADLINE, flips)
        .await
        .context("the taints did not come in ten minutes")??;
    Ok(times.split_off(1))
}

/// Flips a cluster that is not measured until the newly started program reacts.
pub(super) async fn until_watching(clusters: &Api<DynamicObject>, names: &[String]) -> Result<()> {
    let last = names.last().context("there is no ManagedCluster")?;
    for _ in 0..TRIES {
        let tainted = is_tainted(&clusters.get(last).await?);
        // It may have been flipped before the program was watching: then it is flipped back first.
        for unknown in [tainted, !tainted] {
            flip(
                clusters,
                std::slice::from_ref(last),
                if unknown { "Unknown" } else { "True" },
            )
            .await?;
        }
        if timeout(TRY, settle_one(clusters, last, !tainted))
            .await
            .is_ok_and(|settled| settled.is_ok())
        {
            return Ok(());
        }
    }
    bail!("`{last}` was never tainted")
}

/// Waits until one cluster is tainted, or not.
async fn settle_one(clusters: &Api<DynamicObject>, name: &str, tainted: bool) -> Result<()> {
    let now = clusters.get(name).await?;
    if is_tainted(&now) == tainted {
        return Ok(());
    }
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let follow = async {
        let version = now.metadata.resource_version.clone().unwrap_or_default();
        let mut events = pin!(clusters.watch(&params, &version).await?);
        while let Some(event) = events.try_next().await? {
            if matches!(event, WatchEvent::Modified(object) if is_tainted(&object) == tainted) {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    timeout(Duration::from_secs(30), follow)
        .await
        .with_context(|| format!("{name} was not tainted in time"))?
}

/// The minimum duration; each cluster sends one heartbeat, however long that takes.
const BEATING: Duration = Duration::from_secs(60);

/// Measures what the agent does meanwhile.
pub(super) async fn beats(
    scene: &Scene,
    clusters: &Api<DynamicObject>,
    names: &[String],
    agent: &Agent,
    table: &mut Table,
) -> Result<()> {
    // The agent may still be handling the last flip.
    let calm = async || Ok((metric(agent, &QUEUE)? == 0.0).then_some(()));
    wait::until("an agent with nothing to reconcile", DEADLINE, calm).await?;
    let reconciled = metric(agent, &RECONCILES)?;
    // A missing metric would be zero before and after.
    ensure!(
        reconciled >= names.len() as f64,
        "the agent tells of {reconciled} reconciles so far"
    );
    let (since, cpu, start) = (scene.now().await?, cpu_millis(agent.id())?, Instant::now());
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
        cpu_millis(agent.id())? - cpu,
    );
    let (requests, reconciles) = (
        scene.requests(&since).await?.all(),
        metric(agent, &RECONCILES)? - reconciled,
    );
    let what = format!(
        "a minute of heartbeats, {} ManagedClusters, {beats} beats",
        names.len()
    );
    let mut rows = Rows::about(what, table);
    let (reconciles, requests) = (Figure::Count(reconciles), count(requests));
    rows.add("reconciles", reconciles, "none", count(0), Some(1.0))?;
    rows.add("requests", requests, "none", count(0), Some(1.0))?;
    let (cpu, minute) = (Figure::Millis(cpu), Figure::Millis(wall));
    rows.add("CPU of the agent", cpu, "the minute", minute, None)
}
