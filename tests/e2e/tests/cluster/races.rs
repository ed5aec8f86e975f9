//! Another client reverts what the agent writes before the response to its write arrives: everything becomes correct
//! again without a resync.

use crate::fleet::{all_right, fleet, name};
use crate::objects::{OUTPUT, home};
use crate::stage::{DEADLINE, MANAGED, PARALLEL, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::time::Duration;
use transom_e2e::program;
use transom_test_cluster::{Proxy, wait};

/// Objects that are raced for concurrently; each is reverted once.
const ROUNDS: usize = 24;
/// The delay of responses to writes: long enough for the other client, even on a busy machine.
const LATE: Duration = Duration::from_millis(600);

#[test]
fn recreates_an_object_deleted_before_its_write_was_answered() -> Result<()> {
    deleted(ROUNDS)
}

#[test]
fn sets_a_taint_again_when_removed_before_its_write_was_answered() -> Result<()> {
    reverted(ROUNDS)
}

#[test]
#[ignore = "takes minutes: cargo xtask soak races"]
fn soak() -> Result<()> {
    (0..10).try_for_each(|_| deleted(50).and_then(|()| reverted(50)))
}

fn policy(name: &str) -> String {
    program::policy(name).display().to_string()
}

/// Waits until an object exists that was created later than another one.
async fn made_again(stage: &Stage, namespace: &str, before: &Value) -> Result<()> {
    wait::until(
        &format!("another {OUTPUT} in {namespace}"),
        DEADLINE,
        async || {
            let now = stage.get(SECRET, Some(namespace), OUTPUT).await?;
            Ok(now
                .filter(|now| now["metadata"]["uid"] != *before)
                .map(drop))
        },
    )
    .await
}

fn deleted(rounds: usize) -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, rounds).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let words = ["--policies", &policy("external-managed-kubeconfig")];
        let agent = stage.start_agent_at(&proxy.server(), &words)?;
        all_right(stage, rounds, 6443).await?;
        proxy.answer_writes_late(Some(LATE));
        let undone = stream::iter(0..rounds).map(|index| async move {
            let namespace = home(&name(index));
            let first = stage
                .get(SECRET, Some(&namespace), OUTPUT)
                .await?
                .context("there is no output")?;
            stage.delete(SECRET, Some(&namespace), OUTPUT).await?;
            made_again(stage, &namespace, &first["metadata"]["uid"]).await?;
            // The agent does not know yet that it has created it.
            stage.delete(SECRET, Some(&namespace), OUTPUT).await
        });
        undone
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        proxy.answer_writes_late(None);
        all_right(stage, rounds, 6443)
            .await
            .with_context(|| agent.tail())?;
        agent.stop()?;
        Ok(())
    })
}

/// Waits until a cluster has taints, or none.
async fn tainted(stage: &Stage, name: &str, wanted: bool) -> Result<()> {
    wait::until(
        &format!("taints of {name}: {wanted}"),
        DEADLINE,
        async || {
            let cluster = stage
                .get(MANAGED, None, name)
                .await?
                .context("there is no ManagedCluster")?;
            let some = cluster["spec"]["taints"]
                .as_array()
                .is_some_and(|taints| !taints.is_empty());
            Ok((some == wanted).then_some(()))
        },
    )
    .await
}

fn reverted(rounds: usize) -> Result<()> {
    on_stage(async |stage| {
        let names: Vec<String> = (0..rounds).map(name).collect();
        let each = || stream::iter(&names);
        each()
            .map(|name| stage.managed(name))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let mut agent =
            stage.start_agent_at(&proxy.server(), &["--policies", &policy("built-in-taints")])?;
        agent.wait_for_first_pass().await?;
        proxy.answer_writes_late(Some(LATE));
        let undone = each().map(|name| async move {
            stage.set_available(name, "Unknown").await?;
            tainted(stage, name, true).await?;
            // It looks again as in the agent's last reconcile.
            stage
                .patch(MANAGED, None, name, json!({"spec": {"taints": null}}))
                .await
        });
        undone
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        proxy.answer_writes_late(None);
        let again = each().map(|name| tainted(stage, name, true));
        again
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await
            .with_context(|| agent.tail())?;
        let last = names.last().context("nobody was raced")?;
        agent
            .wait_for(&format!("ManagedCluster {last}"), "Applied InSync")
            .await?;
        ensure!(
            !agent.stop()?.contains("Contended"),
            "one undone write is no contest"
        );
        Ok(())
    })
}
