//! The page host/docs/limits.md, followed command by command on a real API server with the agent of the chart: a hub
//! loses sight of all its clusters, most of the change is withheld, and somebody approves it. What the page shows is
//! compared.

use crate::applied::{install_chart, with_fleet};
use crate::change::wait_for;
use crate::deployed::{DEADLINE, Deployed};
use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, wait};
use transom_test_deploy::page::{Page, run};

const MANAGED: (&str, &str) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
const POLICY: &str = "built-in-taints";
const TAINT: &str = "cluster.open-cluster-management.io/unreachable";
/// The fleet of the page, and how many of it change without approval.
const CLUSTERS: usize = 40;
const LIMIT: usize = 12;

/// Says of each cluster whether it is available.
async fn say(cluster: &Cluster, status: &str) -> Result<()> {
    let api = cluster.objects().api(MANAGED.0, MANAGED.1, None).await?;
    let said = json!({"conditions": [{"type": "ManagedClusterConditionAvailable", "status": status, "reason": "Told",
        "message": "", "lastTransitionTime": "2026-11-24T03:04:43Z"}]});
    for number in 0..CLUSTERS {
        let name = format!("c{number}");
        let written = cluster.objects().write_status(&api, &name, &said);
        written.await?;
    }
    Ok(())
}

/// Waits until so many clusters are tainted.
async fn tainted(cluster: &Cluster, number: usize) -> Result<()> {
    let api = cluster.objects().api(MANAGED.0, MANAGED.1, None).await?;
    let mut last = 0;
    let came = wait::until("the taints", DEADLINE, async || {
        let all = api.list(&ListParams::default()).await?;
        let is_tainted = |one: &&DynamicObject| one.data.to_string().contains(TAINT);
        last = all.items.iter().filter(is_tainted).count();
        Ok((last == number).then_some(()))
    });
    came.await
        .with_context(|| format!("{last} instead of {number}"))
}

#[tokio::test]
async fn a_hub_that_loses_its_clusters_taints_some_and_the_rest_once_it_is_approved() -> Result<()>
{
    let none = Fleet {
        clusters: 0,
        managed: 0,
        seed: 7,
    };
    let cluster = with_fleet(none).await?;
    for number in 0..CLUSTERS {
        let body = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": format!("c{number}")},
            "spec": {"hubAcceptsClient": true}});
        cluster.objects().create(body).await?;
    }
    say(&cluster, "True").await?;
    install_chart(&cluster, &[])?;
    let agent = Deployed::start(&cluster).await?;
    let knows_all = |status: &Value| status["counts"]["applied"] == json!(CLUSTERS);
    wait_for(&cluster, POLICY, knows_all).await?;
    say(&cluster, "Unknown").await?;
    let is_withheld = |status: &Value| {
        status["limits"]["withheld"] == json!(CLUSTERS - LIMIT)
            && status["counts"]["held"] == json!(CLUSTERS - LIMIT)
    };
    wait_for(&cluster, POLICY, is_withheld).await?;
    tainted(&cluster, LIMIT).await?;
    let page = Page::read("limits.md")?;
    let transom = program::binary()?.parent().context("no folder")?.display();
    let mut digest = String::new();
    for (command, shown) in page.all_shown() {
        // The digest of the page is the one that the status shows here.
        let command = match command.split_once("sha256:") {
            Some((begin, _)) => format!("{begin}{digest}"),
            None => command.to_owned(),
        };
        let output = run(
            &cluster,
            &format!("export PATH={transom}:$PATH && {command}"),
        )?;
        let output = output.replace(cluster.admin().name(), "alice");
        let compared = shown.is_in(&output);
        compared.with_context(|| format!("`{command}`\n{output}"))?;
        let approve = output.lines().find_map(|line| line.split_once("approve: "));
        digest = approve.map_or(digest, |(_, digest)| digest.to_owned());
    }
    page.is_followed()?;
    tainted(&cluster, CLUSTERS).await?;
    agent.stop(&cluster).map(drop)
}
