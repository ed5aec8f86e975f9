//! Faults of the server, the agent and its permissions. Afterwards everything is correct: nothing is lost, and no
//! object of others was changed. Prints how long recovery took.

use crate::agent::Worker;
use crate::fleet::{MANY, POLICIES, all_right, fleet, name, ports, recovers, started};
use crate::objects::CLUSTERS;
use crate::stage::{
    CRDS, DEADLINE, HOSTED, KLUSTERLET, PARALLEL, SECRET, Stage, on_stage, on_stage_without_cache,
};
use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use std::time::Instant;
use transom_support::numbers::Numbers;
use transom_test_cluster::{Proxy, wait};

#[test]
fn recovers_when_the_api_server_is_killed_under_load() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let agent = started(stage, 6443).await?;
        // The agent is working on these when the server dies.
        ports(stage, 0..MANY, 7443).await?;
        stage.cluster.restart_apiserver().await?;
        recovers(stage, "the API server killed under load", MANY, 7443).await?;
        ports(stage, 0..MANY / 2, 8443).await?;
        stage.cluster.restart_etcd().await?;
        ports(stage, MANY / 2..MANY, 8443).await?;
        recovers(stage, "etcd killed under load", MANY, 8443).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn an_expired_watch_relists_and_misses_nothing() -> Result<()> {
    on_stage_without_cache(async |stage| {
        fleet(stage, MANY).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let mut agent = stage.start_agent_at(&proxy.server(), &[POLICIES])?;
        agent.wait_for_first_pass().await?;
        all_right(stage, MANY, 6443).await?;
        // Once in some twenty runs, on a busy machine, no watch was told in the first round.
        for round in 0..5 {
            if proxy.gone() > 0 {
                break;
            }
            expire(stage, &agent, &proxy, round).await?;
        }
        ensure!(
            proxy.gone() > 0,
            "no watch was told that its past is gone: {}",
            agent.tail()
        );
        println!("    {} watches got 410", proxy.gone());
        agent.stop()?;
        Ok(())
    })
}

/// Compacts the history while the agent is away and misses a deletion; then everything becomes right.
async fn expire(stage: &Stage, agent: &Worker, proxy: &Proxy, round: usize) -> Result<()> {
    let port = 7443 + u16::try_from(round)?;
    agent.freeze()?;
    // Otherwise requests in flight would still reach it.
    proxy.cut();
    ports(stage, round..MANY, port).await?;
    stage.delete(HOSTED, Some(CLUSTERS), &name(round)).await?;
    stage.cluster.compact().await?;
    agent.thaw()?;
    let start = Instant::now();
    let right = stream::iter(round + 1..MANY)
        .map(|index| async move { stage.wait_for_right(&name(index), port).await });
    right
        .buffer_unordered(PARALLEL)
        .try_collect::<Vec<()>>()
        .await?;
    wait::until(
        "the end of what the missed deletion left",
        DEADLINE,
        async || Ok(stage.made(&name(round)).await?.is_none().then_some(())),
    )
    .await?;
    println!(
        "history compacted while the agent was away: right after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

#[test]
fn an_agent_killed_at_any_moment_leaves_consistent_state() -> Result<()> {
    killed(8, MANY)
}

#[test]
#[ignore = "takes minutes: cargo test -p transom-e2e --test cluster soak -- --ignored --nocapture"]
fn soak() -> Result<()> {
    killed(100, 300)
}

/// Kills the agent over and over while the fleet changes; then one more start makes everything correct.
fn killed(kills: usize, clusters: usize) -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, clusters).await?;
        let first = Instant::now();
        let agent = stage.start_agent(&[POLICIES])?;
        all_right(stage, clusters, 6443).await?;
        let span = first.elapsed();
        agent.kill()?;
        let mut numbers = Numbers::new(11, 0);
        for round in 0..kills {
            let port = 10_000 + u16::try_from(round)?;
            ports(stage, 0..clusters, port).await?;
            for _ in 0..clusters / 4 {
                let victim = format!(
                    "klusterlet-{}",
                    name((numbers.take() % clusters as u64) as usize)
                );
                stage
                    .delete(SECRET, Some(&victim), "external-managed-kubeconfig")
                    .await?;
            }
            let agent = stage.start_agent(&[POLICIES])?;
            let instant = Instant::now() + span.mul_f64((numbers.take() % 1000) as f64 / 1000.0);
            wait::until("the instant of the kill", DEADLINE, async || {
                Ok((Instant::now() >= instant).then_some(()))
            })
            .await?;
            agent.kill()?;
        }
        let last = 10_000 + u16::try_from(kills)? - 1;
        let mut agent = stage.start_agent(&[POLICIES])?;
        agent.wait_for_first_pass().await?;
        recovers(
            stage,
            &format!("{kills} kills at random instants"),
            clusters,
            last,
        )
        .await?;
        agent.stop()?;
        // A start after that finds nothing to do.
        let mark = stage.mark()?;
        let mut agent = stage.start_agent(&[POLICIES])?;
        agent.wait_for_first_pass().await?;
        agent.stop()?;
        let writes = stage.writes(mark).await?;
        ensure!(writes.is_empty(), "{writes:#?}");
        Ok(())
    })
}

#[test]
fn recovers_when_permissions_are_revoked_and_restored() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let agent = started(stage, 6443).await?;
        let revoked = stage.revoke().await;
        ports(stage, 0..MANY, 7443).await?;
        let told = wait::until("a word on the rights", DEADLINE, async || {
            Ok(agent.log()?.contains("Forbidden").then_some(()))
        });
        let told = told.await;
        stage.grant().await?;
        revoked?;
        told?;
        recovers(stage, "rights revoked and given back", MANY, 7443).await?;
        agent.stop()?;
        Ok(())
    })
}

/// V29: the agent reports that it cannot list HostedClusters, and this blocks no other policy.
#[test]
fn v29_a_missing_kind_blocks_no_other_and_is_watched_once_installed() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        for index in [0, 2] {
            stage.remove_crd(CRDS[index]).await?;
        }
        let agent = stage.start_agent(&[POLICIES])?;
        let told = wait::until("a word on the kind", DEADLINE, async || {
            Ok(agent.log()?.contains("KindMissing").then_some(()))
        });
        let told = told.await;
        stage.cluster.install_crds(&[CRDS[0], CRDS[2]]).await?;
        told?;
        let start = Instant::now();
        stage.ready("new", true).await?;
        stage.wait_for_right("new", 6443).await?;
        println!(
            "a kind that was missing: right after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        // Removed with its objects and installed again while the agent is running.
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "metadata": {"name": "klusterlet-new"}, "spec": {}});
        stage.objects().create(klusterlet).await?;
        stage.remove_crd(CRDS[0]).await?;
        stage.cluster.install_crds(&[CRDS[0]]).await?;
        let start = Instant::now();
        stage.ready("newer", true).await?;
        stage.wait_for_right("newer", 6443).await?;
        println!(
            "a kind removed and installed again: right after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        agent.stop()?;
        Ok(())
    })
}
