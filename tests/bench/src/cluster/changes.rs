//! One rotated secret in a quiet fleet, from its patch to the new result; and the cost of an idle agent. Rotates one at
//! a time.

use super::fleet::Scene;
use super::{count, row};
use crate::floor::server::{SECRET, api, follow_from};
use crate::process::{Programs, cpu_millis, start};
use crate::rounds::median;
use crate::table::{Figure, Table};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use transom_support::fleet::{hosted_name, managed_name};

/// Rotations of each.
const ROTATIONS: usize = 30;
/// The watched object in the target's namespace.
const NAMED: &str = "metadata.name=external-managed-kubeconfig";
/// How often a newly started program is tried.
const TRIES: usize = 5;
/// The deadline of every wait.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long an idle agent is observed.
const IDLE: Duration = Duration::from_secs(60);

/// Rotations and idleness of the agent, beside a program that only copies.
pub(super) async fn rotations(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let index = available(scene).await?;
    let agent = start(&mut programs.transom(&["run", "--kubeconfig", &scene.agent]))?;
    // The first one includes the start.
    rotate(scene, index, usize::MAX)
        .await
        .context("the first one of the agent")?;
    let ours = times(scene, index, 0).await.context("of the agent")?;
    let (before, since) = (cpu_millis(agent.id())?, scene.now().await?);
    tokio::time::sleep(IDLE).await;
    let (idle, counted) = (
        cpu_millis(agent.id())? - before,
        scene.requests(&since).await?,
    );
    drop(agent);
    let floor = ["server", "--kubeconfig", &scene.floor, "copy"];
    let copying = start(&mut programs.floor(&floor))?;
    // If it missed one because it was not watching yet, the next one counts.
    for turn in 0..TRIES {
        if rotate(scene, index, usize::MAX - 1 - turn).await.is_ok() {
            break;
        }
    }
    let theirs = times(scene, index, ROTATIONS)
        .await
        .context("of the program that only copies")?;
    drop(copying);
    let (ours, theirs) = (
        Figure::Millis(median(&ours)),
        Figure::Millis(median(&theirs)),
    );
    let what = "one rotation in a quiet fleet, median".to_owned();
    let against = "watch and write, nothing else";
    table.add(row(what, ours, against, theirs, Some(2.0)))?;
    let (what, existing) = (
        "CPU of an idle minute".to_owned(),
        "the existing agent, measured elsewhere",
    );
    let (idle, most) = (Figure::Millis(idle), Figure::Millis(40.0));
    table.add(row(what, idle, existing, most, Some(1.0)))?;
    let what = "requests of an idle minute beyond watches".to_owned();
    table.add(row(what, count(counted.all()), "none", count(0), Some(1.0)))
}

/// A cluster that has a result.
async fn available(scene: &Scene) -> Result<usize> {
    let made: Vec<_> = scene
        .outputs()
        .await?
        .into_iter()
        .filter_map(|one| one.metadata.namespace)
        .collect();
    let has = |index: &usize| made.contains(&format!("klusterlet-{}", managed_name(*index)));
    (0..scene.clusters)
        .find(has)
        .context("no HostedCluster has a result")
}

async fn times(scene: &Scene, index: usize, offset: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(ROTATIONS);
    for turn in 0..ROTATIONS {
        times.push(rotate(scene, index, offset + turn).await?.as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Changes the admin secret, and waits until its result has changed.
async fn rotate(scene: &Scene, index: usize, turn: usize) -> Result<Duration> {
    let (source, namespace) = (
        api(&scene.client, SECRET, Some("clusters")),
        format!("klusterlet-{}", managed_name(index)),
    );
    let name = format!("{}-admin-kubeconfig", hosted_name(index));
    let now = source.get(&name).await?;
    let text = now.data["data"]["kubeconfig"]
        .as_str()
        .context("the secret has no kubeconfig")?;
    let text = String::from_utf8(STANDARD.decode(text)?)?;
    let text = text
        .lines()
        .filter(|line| !line.starts_with("rotation:"))
        .collect::<Vec<_>>()
        .join("\n");
    let text = STANDARD.encode(format!("{text}\nrotation: \"{turn}\"\n"));
    let target = api(&scene.client, SECRET, Some(&namespace));
    let now = target
        .list_metadata(&ListParams::default().fields(NAMED))
        .await?;
    let before = now.metadata.resource_version.unwrap_or_default();
    let start = Instant::now();
    let patch = Patch::Merge(json!({"data": {"kubeconfig": text}}));
    source.patch(&name, &PatchParams::default(), &patch).await?;
    let seen = follow_from(&target, Some(NAMED), before, async |_| Ok(true));
    timeout(DEADLINE, seen)
        .await
        .context("no new result within 20 s")??;
    Ok(start.elapsed())
}
