//! Heartbeats of ManagedClusters by leases: what a minute of them costs (policy `availability`), and how soon all
//! clusters whose heartbeats stop at once are tainted.

use super::fleet::{PARALLEL, Scene, metric};
use super::hub::{self, LEASE_NAME, LONG, Lease, micro, now};
use super::spent::Spending;
use super::taints::{flip_and_taint, names, settled};
use super::{Rows, SERVERS, count};
use crate::floor::server::{MANAGED, api};
use crate::process::{self, Programs, cpu_millis};
use crate::table::{Figure, Table};
use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use transom_core::metrics::{QUEUE, RECONCILES};
use transom_e2e::agent::{ADMIN, Agent};
use transom_test_cluster::wait;

const LEASE: (&str, &str, &str) = ("coordination.k8s.io", "v1", "Lease");
/// So many lease durations without a heartbeat are its end.
const MISSED: i64 = 5;
/// One that is over after two minutes, in seconds: until then the agent has to be at rest.
const SHORT: i64 = 24;
/// The deadline for anything else.
const DEADLINE: Duration = Duration::from_secs(600);
/// The shortest time of heartbeats; each cluster sends one, however long that takes.
const BEATING: Duration = Duration::from_secs(60);
/// The share of one core that the agent may take meanwhile.
const SHARE: f64 = 0.03;

/// A minute of heartbeats.
pub(super) async fn beats(
    programs: &Programs,
    (scene, many): (&Scene, usize),
    table: &mut Table,
) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    hub::install(scene, many, Lease::Made(LONG)).await?;
    let names = names(&clusters).await?;
    let agent = start(programs, scene, &["availability"])?;
    at_rest(&agent, names.len()).await?;
    let reconciled = metric(&agent, &RECONCILES)?;
    let (since, cpu, start) = (scene.now().await?, cpu_millis(agent.id())?, Instant::now());
    let mut beats = 0_usize;
    for chunk in names.chunks(PARALLEL * 8).cycle() {
        renew(scene, chunk, now()).await?;
        beats += chunk.len();
        if beats >= names.len() && start.elapsed() >= BEATING {
            break;
        }
        // A real fleet does not send all its heartbeats in the first seconds.
        let due = BEATING.mul_f64((beats as f64 / names.len() as f64).min(1.0));
        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
    }
    let wall = start.elapsed().as_secs_f64() * 1e3;
    let cpu = cpu_millis(agent.id())? - cpu;
    let requests = scene.requests(&since).await?.all();
    let reconciles = metric(&agent, &RECONCILES)? - reconciled;
    let what = format!("{many} leases, a minute of {beats} heartbeats");
    let mut rows = Rows::about(what, table);
    let (cpu, share) = (Figure::Millis(cpu), Figure::Millis(wall * SHARE));
    rows.add("CPU of the agent", cpu, "3 % of one core", share, Some(1.0))?;
    let (reconciles, none) = (Figure::Count(reconciles), count(0));
    rows.add("reconciles", reconciles, "none", none, Some(1.0))?;
    let beyond = "requests beyond lists and watches";
    rows.add(beyond, count(requests), "none", none, Some(1.0))?;
    rows.memory(&agent)
}

/// All leases expire at once: from then until the last taint.
pub(super) async fn expiry(
    programs: &Programs,
    (scene, many): (&Scene, usize),
    table: &mut Table,
) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    hub::install(scene, many, Lease::Made(LONG)).await?;
    let names = names(&clusters).await?;
    let floor = Spending::start(scene).await?;
    flip_and_taint(&clusters, &names).await?;
    let floor = floor.end(scene).await?;
    let renewed = now();
    renew_all(scene, &names, (renewed, SHORT)).await?;
    let agent = start(programs, scene, &["availability", "built-in-taints"])?;
    at_rest(&agent, 2 * names.len()).await?;
    let expires = renewed + MISSED * SHORT;
    ensure!(
        now() < expires,
        "the leases expired before the agent was at rest"
    );
    let since = scene.now().await?;
    let cpu = cpu_millis(agent.id())?;
    let until = UNIX_EPOCH + Duration::from_secs(expires.unsigned_abs());
    let wait = until.duration_since(SystemTime::now()).unwrap_or_default();
    let (spending, tainted) = tokio::join!(
        async {
            tokio::time::sleep(wait).await;
            Spending::start(scene).await
        },
        settled(&clusters, names.len(), true),
    );
    tainted?;
    let ours = spending?.end(scene).await?;
    let cpu = cpu_millis(agent.id())? - cpu;
    let requests = scene.requests(&since).await?.all();
    let against = "the same two patches of each";
    let mut rows = Rows::about(format!("{many} leases expire at once"), table);
    let all = "until all are tainted";
    rows.add(all, ours.wall(), against, floor.wall(), Some(1.3))?;
    let (requests, necessary) = (count(requests), count(2 * many));
    let beyond = "requests beyond lists and watches";
    rows.add(beyond, requests, "writes", necessary, Some(1.1))?;
    let (cpu, hub) = (Figure::Millis(cpu), Figure::Millis(13_400.0));
    let existing = "the existing hub, measured elsewhere";
    rows.add("CPU of the agent", cpu, existing, hub, None)?;
    rows.add(SERVERS, ours.servers(), against, floor.servers(), None)?;
    rows.verbs(&ours.verbs, against, &floor.verbs)
}

/// Runs a request for each cluster, not all at once.
async fn for_each(names: &[String], send: impl AsyncFn(&str) -> kube::Result<()>) -> Result<()> {
    let requests = stream::iter(names).map(|name| send(name));
    requests
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// Makes every cluster available and untainted again, with a lease that is renewed now and has a duration.
async fn renew_all(scene: &Scene, names: &[String], (renewed, duration): (i64, i64)) -> Result<()> {
    let clusters = api(&scene.client, MANAGED, None);
    let merged = PatchParams::default();
    let status = Patch::Merge(json!({"status": {"conditions": hub::conditions()}}));
    let spec =
        Patch::Merge(json!({"spec": {"leaseDurationSeconds": duration, "taints": Value::Null}}));
    for_each(names, async |name| {
        clusters.patch(name, &merged, &spec).await?;
        clusters
            .patch_status(name, &merged, &status)
            .await
            .map(drop)
    })
    .await?;
    renew(scene, names, renewed).await
}

/// One heartbeat of each.
async fn renew(scene: &Scene, names: &[String], at: i64) -> Result<()> {
    let beat = Patch::Merge(json!({"spec": {"renewTime": micro(at)}}));
    for_each(names, async |name| {
        let leases: Api<DynamicObject> = api(&scene.client, LEASE, Some(name));
        leases
            .patch(LEASE_NAME, &PatchParams::default(), &beat)
            .await
            .map(drop)
    })
    .await
}

/// Starts an agent with some policies, without limits, and waits until it watches everything.
pub(super) fn start(programs: &Programs, scene: &Scene, policies: &[&str]) -> Result<Agent> {
    let folder = scene.policies(policies)?;
    let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let words = ["run", "--kubeconfig", &scene.agent, "--policies", &folder];
    let mut transom = programs.transom(&words);
    transom.args([ADMIN, &admin]);
    let agent = process::start(&mut transom)?;
    agent.ready()?;
    Ok(agent)
}

/// Waits until so many reconciles took place and nothing is left to do.
async fn at_rest(agent: &Agent, reconciles: usize) -> Result<()> {
    let rests = async || {
        let done = metric(agent, &RECONCILES)? >= reconciles as f64;
        Ok((done && metric(agent, &QUEUE)? == 0.0).then_some(()))
    };
    wait::until("an agent with nothing to reconcile", DEADLINE, rests).await
}
