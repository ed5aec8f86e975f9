//! A ManagedClusterSet that nearly all clusters belong to: what one changed label costs.

use super::Rows;
use super::fleet::Scene;
use super::taints::names;
use crate::floor::server::{MANAGED, api};
use crate::process::{self, Programs, cpu_millis};
use crate::rounds::percentile;
use crate::table::{Figure, Table};
use anyhow::{Context as _, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use transom_e2e::agent::ADMIN;
use transom_e2e::program;
use transom_test_cluster::wait;

const SET: (&str, &str, &str) = (
    "cluster.open-cluster-management.io",
    "v1beta2",
    "ManagedClusterSet",
);
/// The label of a cluster that does not belong to the set.
const OUT: &str = "example.com/out";
/// How many labels are changed.
const CHANGES: usize = 30;
/// The deadline of one change.
const DEADLINE: Duration = Duration::from_secs(60);

/// One cluster after the other leaves the set; only then the next one.
pub(super) async fn measure(programs: &Programs, scene: &Scene, table: &mut Table) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    let names = names(&clusters).await?;
    let sets = api(&scene.client, SET, None);
    let selector = json!({"matchExpressions": [{"key": OUT, "operator": "DoesNotExist"}]});
    let set = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": SET.2, "metadata": {"name": "bench"},
        "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": selector}},
    });
    let set = serde_json::from_value(set)?;
    sets.create(&PostParams::default(), &set).await?;
    let policy = scene.outputs.with_file_name("cluster-set-members.yaml");
    let text = std::fs::read_to_string(program::policy("cluster-set-members"))?;
    std::fs::write(&policy, program::without_limits(&text))?;
    let (policy, admin) = (
        policy.display().to_string(),
        TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string(),
    );
    let words = [
        "run",
        "--kubeconfig",
        &scene.agent,
        "--policies",
        &policy,
        ADMIN,
        &admin,
    ];
    let agent = process::start(&mut programs.transom(&words))?;
    agent.ready()?;
    let left = |out: usize| names.len() - out;
    settled(&sets, left(0)).await?;
    let (cpu, mut walls) = (cpu_millis(agent.id())?, Vec::new());
    for (at, name) in names.iter().take(CHANGES).enumerate() {
        let start = Instant::now();
        let out = Patch::Merge(json!({"metadata": {"labels": {OUT: ""}}}));
        clusters.patch(name, &PatchParams::default(), &out).await?;
        settled(&sets, left(at + 1)).await?;
        walls.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let cpu = (cpu_millis(agent.id())? - cpu) / walls.len() as f64;
    let what = format!("a set of {} members, one changed label", names.len());
    let mut rows = Rows::about(what, table);
    let (cpu, most) = (Figure::Millis(cpu), Figure::Millis(20.0));
    rows.add("CPU of the agent", cpu, "20 ms", most, Some(1.0))?;
    let wall = Figure::Millis(percentile(&walls, 50));
    let until = "until the set says so, median, with two writes";
    rows.add(until, wall, "20 ms", most, None)
}

/// Waits until the set says how many members it has.
async fn settled(sets: &Api<DynamicObject>, members: usize) -> Result<()> {
    let said = json!(format!("{members} ManagedClusters selected"));
    let mut last = Value::Null;
    let told = wait::until("the members of a set", DEADLINE, async || {
        let set = sets.get("bench").await?;
        last = set.data["status"]["conditions"][0]["message"].clone();
        Ok((last == said).then_some(()))
    });
    told.await
        .with_context(|| format!("the set says {last}, not {said}"))
}
