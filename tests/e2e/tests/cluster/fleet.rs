//! Hosted clusters by number for tests that need load, and ManagedClusters for tests that flip them. Waits until all of
//! them are correct.

use crate::objects::{Identifiers, case_text, parse};
use crate::stage::{DEADLINE, MANAGED, PARALLEL, Stage};
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::time::Instant;
use transom_e2e::agent::Agent;
use transom_test_cluster::wait;

/// The number of hosted clusters in tests that need load.
pub(crate) const MANY: usize = 20;

/// The name of one of them.
pub(crate) fn name(index: usize) -> String {
    format!("f{index:03}")
}

/// Creates this many ready hosted clusters, and the bundled policies without limits as objects, so that their status is
/// searched, too.
pub(crate) async fn fleet(stage: &Stage, clusters: usize) -> Result<()> {
    stage.install_policies().await?;
    for policy in ["built-in-taints", "external-managed-kubeconfig"] {
        stage.lift_limits(policy).await?;
    }
    let made =
        stream::iter(0..clusters).map(|index| async move { stage.ready(&name(index), true).await });
    made.buffer_unordered(PARALLEL).try_collect().await
}

/// The flag that makes the agent follow the policies of the fleet.
pub(crate) const POLICIES: &str = "--policy-objects";

/// Sets another port for each of some clusters.
pub(crate) async fn ports(
    stage: &Stage,
    clusters: impl Iterator<Item = usize>,
    port: u16,
) -> Result<()> {
    let moved = stream::iter(clusters)
        .map(|index| async move { stage.move_port(&name(index), port).await });
    moved.buffer_unordered(PARALLEL).try_collect().await
}

/// Waits until all of them are correct.
pub(crate) async fn all_right(stage: &Stage, clusters: usize, port: u16) -> Result<()> {
    let right = stream::iter(0..clusters)
        .map(|index| async move { stage.wait_for_right(&name(index), port).await });
    right.buffer_unordered(PARALLEL).try_collect().await
}

/// Waits until everything is correct, and prints how long it took.
pub(crate) async fn recovers(stage: &Stage, what: &str, clusters: usize, port: u16) -> Result<()> {
    let start = Instant::now();
    all_right(stage, clusters, port).await?;
    println!(
        "{what}: all {clusters} right after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Starts the agent and returns it once everything is correct.
pub(crate) async fn started(stage: &Stage, port: u16) -> Result<Agent> {
    let agent = stage.start_agent(&[POLICIES])?;
    agent.wait_for_first_pass()?;
    all_right(stage, MANY, port).await?;
    Ok(agent)
}

impl Stage {
    /// Creates a ManagedCluster that is available and has no taint.
    pub(crate) async fn managed(&self, name: &str) -> Result<()> {
        let text = case_text("built-in-taints", "T01-available", "given.yaml", |_| {
            name.to_owned()
        })?;
        for object in parse(&text.context("the case T01 is not there")?)? {
            self.put(&object, &mut Identifiers::new()).await?;
        }
        Ok(())
    }

    /// Sets whether a ManagedCluster is available: True, False or Unknown.
    pub(crate) async fn set_available(&self, name: &str, status: &str) -> Result<()> {
        let mut cluster = self
            .get(MANAGED, None, name)
            .await?
            .context("no ManagedCluster")?;
        for condition in cluster["status"]["conditions"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if condition["type"] == "ManagedClusterConditionAvailable" {
                condition["status"] = json!(status);
            }
        }
        self.put_status(MANAGED, None, name, &cluster["status"])
            .await
    }

    /// The taints of a ManagedCluster.
    pub(crate) async fn taints_of(&self, name: &str) -> Result<Vec<Value>> {
        let cluster = self.get(MANAGED, None, name).await?;
        let taints = cluster.context("no ManagedCluster")?["spec"]["taints"].take();
        Ok(taints.as_array().cloned().unwrap_or_default())
    }

    /// Waits until a ManagedCluster has this many taints, and returns their times.
    pub(crate) async fn taint_times(&self, name: &str, taints: usize) -> Result<Vec<String>> {
        let of = |taint: &Value| Some(taint["timeAdded"].as_str()?.to_owned());
        let what = format!("{taints} taints of {name}");
        wait::until(&what, DEADLINE, async || {
            let all = self.taints_of(name).await?;
            Ok((all.len() == taints).then(|| all.iter().filter_map(of).collect()))
        })
        .await
    }
}
