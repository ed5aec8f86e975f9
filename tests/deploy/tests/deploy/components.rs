//! An operator brings a component to a running agent with `kubectl` alone, as host/docs/policies.md says.

use crate::applied::{install_chart, with_fleet};
use crate::deployed::{DEADLINE, Deployed, kubectl};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use transom_core::digest::Digest;
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, wait};
use transom_test_deploy::rendered::said;

/// ManagedClusters, some of which are unreachable; so few that no limit keeps any of them from being changed.
const FLEET: Fleet = Fleet {
    clusters: 0,
    managed: 10,
    seed: 11,
};
const POLICY: &str = "fleetpolicies.transom.dev/built-in-taints";

/// How the keys of the policy's taints begin.
const OWNED: &str = "cluster.open-cluster-management.io/un";

/// How many lines of the agent's log an error shows.
const LAST: usize = 30;

/// Runs a command of the operator: the words of a line of the page.
fn run(cluster: &Cluster, line: &str) -> Result<String> {
    said(kubectl(cluster)?.args(line.split(' ')))
}

/// Writes a component into a file of this name, and returns its path and its digest.
fn put(cluster: &Cluster, file: &str, component: &str) -> Result<(PathBuf, String)> {
    let path = cluster.folder().join(file);
    let bytes = program::component(component)?;
    fs::write(&path, &bytes)?;
    Ok((path, Digest::of_bytes(&bytes).to_string()))
}

/// Waits until a component is active.
fn wait_for(cluster: &Cluster, digest: &str) -> Result<()> {
    let active = format!("--for=jsonpath={{.status.revision.decide}}={digest}");
    let seconds = format!("--timeout={}s", DEADLINE.as_secs());
    said(kubectl(cluster)?.args(["wait", &active, &seconds, POLICY])).map(drop)
}

/// Waits until this is true of the number of ManagedClusters with taints. An error shows the policy's status and what
/// the agent logged last.
async fn wait_for_tainted(
    cluster: &Cluster,
    agent: &Deployed,
    wanted: impl Fn(usize) -> bool,
) -> Result<()> {
    let waited = wait::until("the taints", DEADLINE, async || {
        let all = run(cluster, "get managedclusters --output json")?;
        let all: Value = serde_json::from_str(&all)?;
        let all = all["items"].as_array().context("no list")?;
        let owned = |one: &&Value| one["spec"]["taints"].to_string().contains(OWNED);
        let tainted = all.iter().filter(owned);
        Ok(wanted(tainted.count()).then_some(()))
    });
    let Err(why) = waited.await else {
        return Ok(());
    };
    let status = run(
        cluster,
        &format!("get {POLICY} --output jsonpath={{.status}}"),
    )?;
    let log = agent.log()?;
    let last: Vec<_> = log.lines().rev().take(LAST).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    bail!("{why:#}\n{status}\n{}", last.join("\n"))
}

#[tokio::test]
async fn an_operator_swaps_a_component_with_kubectl_alone() -> Result<()> {
    let cluster = with_fleet(FLEET).await?;
    install_chart(&cluster, &[])?;
    let agent = Deployed::start(&cluster).await?;
    wait_for_tainted(&cluster, &agent, |tainted| tainted > 0).await?;

    let (file, calm) = put(&cluster, "my-taints.wasm", "calm")?;
    let from = format!("--from-file={}", file.display());
    let create = "create configmap my-taints --namespace transom";
    run(&cluster, &format!("{create} {from}"))?;
    let patch = r#"{"spec": {"guests": {"decide": {"component": "configmap:transom/my-taints/my-taints.wasm", "settings": null}}}}"#;
    let merge = ["patch", POLICY, "--type=merge", "--patch", patch];
    said(kubectl(&cluster)?.args(merge))?;
    wait_for(&cluster, &calm)?;
    wait_for_tainted(&cluster, &agent, |tainted| tainted == 0).await?;

    let (_, bundled) = put(&cluster, "my-taints.wasm", "taints")?;
    let changed = run(
        &cluster,
        &format!("{create} {from} --dry-run=client --output yaml"),
    )?;
    let manifest = cluster.folder().join("my-taints.yaml");
    fs::write(&manifest, changed)?;
    run(
        &cluster,
        &format!("replace --filename {}", manifest.display()),
    )?;
    wait_for(&cluster, &bundled)?;
    wait_for_tainted(&cluster, &agent, |tainted| tainted > 0).await?;
    agent.stop(&cluster).map(drop)
}
