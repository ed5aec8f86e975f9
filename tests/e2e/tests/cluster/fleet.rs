//! Hosted clusters by number, for tests that need load. Waits until all of them are correct.

use crate::agent::Worker;
use crate::stage::{PARALLEL, Stage};
use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::time::Instant;

/// The number of hosted clusters in tests that need load.
pub(crate) const MANY: usize = 20;

/// The name of one of them.
pub(crate) fn name(index: usize) -> String {
    format!("f{index:03}")
}

/// Creates this many ready hosted clusters, and the bundled policies as objects, so that their status is searched, too.
pub(crate) async fn fleet(stage: &Stage, clusters: usize) -> Result<()> {
    stage.install_policies().await?;
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
pub(crate) async fn started(stage: &Stage, port: u16) -> Result<Worker> {
    let mut agent = stage.start_agent(&[POLICIES])?;
    agent.wait_for_first_pass().await?;
    all_right(stage, MANY, port).await?;
    Ok(agent)
}
