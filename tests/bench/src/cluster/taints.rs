//! ManagedClusters that turn Unknown, all at once. Ignores taints of others.

use super::fleet::{PARALLEL, Scene};
use super::spent::Spending;
use super::{Rows, SERVERS, count, flips, row};
use crate::floor::server::{MANAGED, UNREACHABLE, api};
use crate::process::{self, Programs, cpu_millis};
use crate::rounds::percentile;
use crate::table::{Figure, Table};
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// The deadline for everything.
const DEADLINE: Duration = Duration::from_secs(600);
/// All at once, one by one, and heartbeats.
pub(super) async fn measure(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    let names = names(&clusters).await?;
    flip(&clusters, &names, "True").await?;
    let floor = Spending::start(scene).await?;
    flip_and_taint(&clusters, &names).await?;
    let floor = floor.end(scene).await?;
    let agent = scene.start_agent(programs)?;
    flip(&clusters, &names, "True").await?;
    settled(&clusters, names.len(), false).await?;
    let (start, cpu) = (scene.now().await?, cpu_millis(agent.id())?);
    let ours = Spending::start(scene).await?;
    at_once(&clusters, &names).await?;
    let ours = ours.end(scene).await?;
    let (requests, cpu) = (
        scene.requests(&start).await?.all(),
        cpu_millis(agent.id())? - cpu,
    );
    let (many, against) = (names.len(), "the same flips and patches");
    let what = format!("{many} ManagedClusters turn Unknown");
    let mut rows = Rows::about(what, table);
    let all = "until all are tainted";
    rows.add(all, ours.wall(), against, floor.wall(), Some(1.2))?;
    let (requests, necessary) = (count(requests), count(many));
    let each = "ManagedClusters";
    rows.add("requests", requests, each, necessary, Some(1.0))?;
    let (cpu, time) = (Figure::Millis(cpu), "the time until all are tainted");
    rows.add("CPU of the agent", cpu, time, ours.wall(), None)?;
    rows.add(SERVERS, ours.servers(), against, floor.servers(), None)?;
    rows.verbs(&ours.verbs, against, &floor.verbs)?;
    let ours = flips::times(&clusters, &names).await?;
    flips::beats(scene, &clusters, &names, &agent, table).await?;
    let what = format!("{many} ManagedClusters, all of this");
    Rows::about(what, table).memory(&agent)?;
    drop(agent);
    let tainting =
        process::start(&mut programs.floor(&["server", "--kubeconfig", &scene.floor, "taint"]))?;
    flips::until_watching(&clusters, &names).await?;
    let floor = flips::times(&clusters, &names).await?;
    drop(tainting);
    single(&ours, &floor, table)
}

/// Adds the times of single flips, of the agent and of the floor.
fn single(ours: &[f64], floor: &[f64], table: &mut Table) -> Result<()> {
    for (which, percent, target) in [("median", 50, 2.0), ("p99", 99, 5.0)] {
        let of = |times: &[f64]| Figure::Millis(percentile(times, percent));
        let what = format!(
            "one ManagedCluster turns Unknown in a quiet fleet, {which} of {}",
            ours.len()
        );
        let against = "watch and patch, nothing else";
        table.add(row(what, of(ours), against, of(floor), Some(target)))?;
    }
    Ok(())
}

/// The name of every cluster.
pub(super) async fn names(clusters: &Api<DynamicObject>) -> Result<Vec<String>> {
    let all = all(clusters).await?.into_iter();
    Ok(all.filter_map(|one| one.metadata.name).collect())
}

async fn all(clusters: &Api<DynamicObject>) -> Result<Vec<DynamicObject>> {
    let (mut params, mut objects) = (ListParams::default().limit(1000), Vec::new());
    loop {
        let page = match clusters.list(&params).await {
            // The server's own cache lags behind after so many writes.
            Err(kube::Error::Api(status)) if status.code == 504 => continue,
            page => page?,
        };
        objects.extend(page.items);
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(objects);
        }
    }
}

/// The one condition that counts, replacing all others.
pub(super) fn condition(status: &str) -> Patch<Value> {
    let reason = if status == "True" {
        "ManagedClusterAvailable"
    } else {
        "ManagedClusterLeaseUpdateStopped"
    };
    Patch::Merge(json!({"status": {"conditions": [{
        "type": "ManagedClusterConditionAvailable", "status": status, "reason": reason, "message": "measured",
        "lastTransitionTime": "2026-11-21T08:00:00Z"}]}}))
}

/// Sets the condition of every cluster.
pub(super) async fn flip(
    clusters: &Api<DynamicObject>,
    names: &[String],
    status: &str,
) -> Result<()> {
    send(clusters, names, &condition(status)).await
}

/// Sends one patch to the status of every cluster.
pub(super) async fn send(
    clusters: &Api<DynamicObject>,
    names: &[String],
    patch: &Patch<Value>,
) -> Result<()> {
    let params = &PatchParams::default();
    let one = |name: &String| {
        let name = name.clone();
        async move { clusters.patch_status(&name, params, patch).await.map(drop) }
    };
    stream::iter(names)
        .map(one)
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// Makes every cluster Unknown and taints it: the requests of the fleet and an agent together, in the same number.
pub(super) async fn flip_and_taint(clusters: &Api<DynamicObject>, names: &[String]) -> Result<()> {
    let (unknown, params) = (&condition("Unknown"), &PatchParams::default());
    let taints =
        &Patch::Merge(json!({"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoSelect"}]}}));
    let one = |name: &String| {
        let name = name.clone();
        async move {
            clusters.patch_status(&name, params, unknown).await?;
            clusters.patch(&name, params, taints).await.map(drop)
        }
    };
    stream::iter(names)
        .map(one)
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(())
}

pub(super) fn is_tainted(cluster: &DynamicObject) -> bool {
    let taints = cluster.data["spec"].get("taints").and_then(Value::as_array);
    taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == UNREACHABLE))
}

/// From the first flip to the last taint; no cluster is tainted at the start.
async fn at_once(clusters: &Api<DynamicObject>, names: &[String]) -> Result<()> {
    let (flipped, tainted) = tokio::join!(
        flip(clusters, names, "Unknown"),
        settled(clusters, names.len(), true)
    );
    flipped.and(tainted)
}

/// Waits until this many clusters are tainted, or not.
pub(super) async fn settled(
    clusters: &Api<DynamicObject>,
    many: usize,
    tainted: bool,
) -> Result<()> {
    let listed = all(clusters).await?;
    let mut version = String::new();
    let mut there = std::collections::BTreeSet::new();
    for object in listed {
        let number = object.metadata.resource_version.clone().unwrap_or_default();
        if (number.len(), &number) > (version.len(), &version) {
            version = number;
        }
        if is_tainted(&object) == tainted {
            there.insert(object.metadata.name.unwrap_or_default());
        }
    }
    let follow = async {
        while there.len() < many {
            let mut events = pin!(clusters.watch(&WatchParams::default(), &version).await?);
            while let Some(event) = events.try_next().await? {
                let WatchEvent::Modified(object) = event else {
                    continue;
                };
                version = object.metadata.resource_version.clone().unwrap_or_default();
                let is = is_tainted(&object) == tainted;
                let name = object.metadata.name.unwrap_or_default();
                if is {
                    there.insert(name)
                } else {
                    there.remove(&name)
                };
                if there.len() == many {
                    break;
                }
            }
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, follow)
        .await
        .context("the taints did not come in ten minutes")?
}
