//! ManagedClusters that turn Unknown, all at once and one at a time. Never looks at taints of others.

use super::Running;
use super::fleet::{PARALLEL, Scene};
use crate::floor::server::{MANAGED, UNREACHABLE, api};
use crate::process::Programs;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Single flips of each.
const FLIPS: usize = 60;
/// How long everything may take before this gives up.
const DEADLINE: Duration = Duration::from_secs(600);
/// How often a program that has just been started is tried, and how long it may take each time.
const TRIES: usize = 20;
const TRY: Duration = Duration::from_secs(2);
/// How long objects beat.
const BEATING: Duration = Duration::from_secs(60);

/// All at once, one by one, and beating hearts.
pub(super) async fn measure(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    let names: Vec<String> = all(&clusters).await?.into_iter().filter_map(|one| one.metadata.name).collect();
    turn(&clusters, &names, "True", &[]).await?;
    let floor = {
        let start = Instant::now();
        turn(&clusters, &names, "Unknown", &[json!({"key": UNREACHABLE, "effect": "NoSelect"})]).await?;
        start.elapsed()
    };
    turn(&clusters, &names, "True", &[]).await?;
    let agent = Running::start(&mut programs.transom(&["run", "--kubeconfig", &scene.agent]))?;
    flip(&clusters, &names, "Unknown").await?;
    flip(&clusters, &names, "True").await?;
    settled(&clusters, names.len(), false).await?;
    let mark = scene.cluster.audit().mark()?;
    let ours = at_once(&clusters, &names).await?;
    let counted = scene.requests(mark)?;
    let row = |what: String, figure, against: &str, floor, target| Row {
        what,
        figure,
        against: against.to_owned(),
        floor,
        fastest: None,
        target: Some(target),
    };
    let many = names.len();
    let what = |rest: &str| format!("{many} ManagedClusters turn Unknown: {rest}");
    let millis = |time: Duration| Figure::Millis(time.as_secs_f64() * 1e3);
    table.add(row(what("until all are tainted"), millis(ours), "the same flips and patches", millis(floor), 1.2))?;
    let requests = Figure::Count((counted.writes + counted.gets) as f64);
    table.add(row(what("requests"), requests, "ManagedClusters", Figure::Count(many as f64), 1.0))?;
    let ours = flips(&clusters, &names).await?;
    beat(scene, &clusters, &names, &agent, table).await?;
    drop(agent);
    let tainting = Running::start(&mut programs.floor(&["server", "--kubeconfig", &scene.floor, "taint"]))?;
    until_watching(&clusters, &names).await?;
    let floor = flips(&clusters, &names).await?;
    drop(tainting);
    for (which, place, target) in [("median", FLIPS / 2, 2.0), ("p99", FLIPS - 1, 5.0)] {
        let of = |times: &[f64]| Figure::Millis(times.get(place).copied().unwrap_or(f64::INFINITY));
        let what = format!("one ManagedCluster turns Unknown in a quiet fleet, {which}");
        table.add(row(what, of(&ours), "watch and patch, nothing else", of(&floor), target))?;
    }
    Ok(())
}

async fn all(clusters: &Api<DynamicObject>) -> Result<Vec<DynamicObject>> {
    let (mut params, mut objects) = (ListParams::default().limit(1000), Vec::new());
    loop {
        let page = match clusters.list(&params).await {
            // The server's own cache is behind after so many writes.
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

/// The one condition that counts, in place of all.
fn condition(status: &str) -> Patch<Value> {
    let reason = if status == "True" { "ManagedClusterAvailable" } else { "ManagedClusterLeaseUpdateStopped" };
    Patch::Merge(json!({"status": {"conditions": [{
        "type": "ManagedClusterConditionAvailable", "status": status, "reason": reason, "message": "measured",
        "lastTransitionTime": "2026-11-21T08:00:00Z"}]}}))
}

/// Sets the condition of every cluster.
async fn flip(clusters: &Api<DynamicObject>, names: &[String], status: &str) -> Result<()> {
    send(clusters, names, &condition(status)).await
}

/// Sends one patch to the status of every cluster.
async fn send(clusters: &Api<DynamicObject>, names: &[String], patch: &Patch<Value>) -> Result<()> {
    let params = &PatchParams::default();
    let one = |name: &String| {
        let name = name.clone();
        async move { clusters.patch_status(&name, params, patch).await.map(drop) }
    };
    stream::iter(names).map(one).buffer_unordered(PARALLEL).try_collect::<()>().await?;
    Ok(())
}

/// Sets condition and taints of every cluster: what the fleet and an agent do together, in as many requests.
async fn turn(clusters: &Api<DynamicObject>, names: &[String], status: &str, taints: &[Value]) -> Result<()> {
    let (patch, params) = (&condition(status), &PatchParams::default());
    let taints = &Patch::Merge(json!({"spec": {"taints": taints}}));
    let one = |name: &String| {
        let name = name.clone();
        async move {
            clusters.patch_status(&name, params, patch).await?;
            clusters.patch(&name, params, taints).await.map(drop)
        }
    };
    stream::iter(names).map(one).buffer_unordered(PARALLEL).try_collect::<()>().await?;
    Ok(())
}

fn is_tainted(cluster: &DynamicObject) -> bool {
    let taints = cluster.data["spec"].get("taints").and_then(Value::as_array);
    taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == UNREACHABLE))
}

/// From the first flip to the last taint; none is tainted yet.
async fn at_once(clusters: &Api<DynamicObject>, names: &[String]) -> Result<Duration> {
    let start = Instant::now();
    let (flipped, tainted) = tokio::join!(flip(clusters, names, "Unknown"), settled(clusters, names.len(), true));
    flipped?;
    tainted?;
    Ok(start.elapsed())
}

/// Waits until so many clusters are tainted, or are not.
async fn settled(clusters: &Api<DynamicObject>, many: usize, tainted: bool) -> Result<()> {
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
                let WatchEvent::Modified(object) = event else { continue };
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
    timeout(DEADLINE, follow).await.context("the taints did not come in ten minutes")?
}

/// Single flips, in order of their times in milliseconds.
async fn flips(clusters: &Api<DynamicObject>, names: &[String]) -> Result<Vec<f64>> {
    flip(clusters, names.get(..FLIPS).unwrap_or(names), "True").await?;
    let mut times = Vec::with_capacity(FLIPS);
    for name in names.iter().take(FLIPS) {
        settle_one(clusters, name, false).await?;
        let watching = settle_one(clusters, name, true);
        let start = Instant::now();
        let (unknown, params) = (condition("Unknown"), PatchParams::default());
        let flipping = clusters.patch_status(name, &params, &unknown);
        let (flipped, tainted) = tokio::join!(flipping, watching);
        flipped?;
        tainted?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Flips a cluster that is not measured until the program that has just been started follows.
async fn until_watching(clusters: &Api<DynamicObject>, names: &[String]) -> Result<()> {
    let last = names.last().context("there is no ManagedCluster")?;
    for _ in 0..TRIES {
        let tainted = is_tainted(&clusters.get(last).await?);
        flip(clusters, std::slice::from_ref(last), if tainted { "True" } else { "Unknown" }).await?;
        if timeout(TRY, settle_one(clusters, last, !tainted)).await.is_ok_and(|settled| settled.is_ok()) {
            return Ok(());
        }
    }
    bail!("`{last}` was never tainted")
}

/// Waits until one cluster is tainted, or is not.
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
    timeout(Duration::from_secs(30), follow).await.with_context(|| format!("{name} was not tainted in time"))?
}

/// Hearts that beat for a minute: every object changes where nobody decides by it.
async fn beat(
    scene: &Scene,
    clusters: &Api<DynamicObject>,
    names: &[String],
    agent: &Running,
    table: &mut Table,
) -> Result<()> {
    let (mark, before, start) = (scene.cluster.audit().mark()?, agent.cpu_millis()?, Instant::now());
    let mut beats = 0_usize;
    while start.elapsed() < BEATING {
        for chunk in names.chunks(PARALLEL * 8) {
            let patch =
                Patch::Merge(json!({"status": {"clusterClaims": [{"name": "beat", "value": beats.to_string()}]}}));
            send(clusters, chunk, &patch).await?;
            beats += chunk.len();
            if start.elapsed() >= BEATING {
                break;
            }
        }
    }
    let counted = scene.requests(mark)?;
    let requests = Figure::Count((counted.writes + counted.gets) as f64);
    let cpu = agent.cpu_millis()? - before;
    let row = |what: String, figure, against: &str, floor, target| Row {
        what,
        figure,
        against: against.to_owned(),
        floor,
        fastest: None,
        target,
    };
    let what = |rest: &str| format!("a minute of beating hearts, {beats} beats: {rest}");
    table.add(row(what("requests"), requests, "none", Figure::Count(0.0), Some(1.0)))?;
    table.add(row(what("CPU of the agent"), Figure::Millis(cpu), "the minute", Figure::Millis(60_000.0), None))
}
