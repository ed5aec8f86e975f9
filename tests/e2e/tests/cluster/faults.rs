//! Faults of the server, of the agent and its permissions, and of the agent's machine. Afterwards everything is
//! correct: nothing is lost, and no object of others was changed. Prints how long recovery took. The machine's faults
//! are simulated without changing the test's machine: a full disk is a device that accepts no data, and for files a
//! size limit of the process; the clock is that of the agent's process.

use crate::agent::NOW;
use crate::fleet::{MANY, POLICIES, all_right, fleet, name, ports, recovers, started};
use crate::objects::CLUSTERS;
use crate::stage::{
    CRDS, DEADLINE, HOME, HOSTED, KLUSTERLET, PARALLEL, SECRET, Stage, on_stage,
    on_stage_without_cache,
};
use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;
use transom_core::rights::LEASE;
use transom_e2e::agent::{ADMIN, Agent};
use transom_e2e::size::Size;
use transom_support::numbers::Numbers;
use transom_test_cluster::{Clock, Proxy, wait};

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
        let agent = stage.start_agent_at(&proxy.server(), &[POLICIES])?;
        agent.wait_for_first_pass()?;
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
async fn expire(stage: &Stage, agent: &Agent, proxy: &Proxy, round: usize) -> Result<()> {
    let port = 7443 + u16::try_from(round)?;
    agent.signal("-STOP")?;
    // Otherwise requests in flight would still reach it.
    proxy.cut();
    ports(stage, round..MANY, port).await?;
    stage.delete(HOSTED, Some(CLUSTERS), &name(round)).await?;
    stage.cluster.compact().await?;
    agent.signal("-CONT")?;
    let start = Instant::now();
    let right = stream::iter(round + 1..MANY)
        .map(|index| async move { stage.wait_for_right(&name(index), port).await });
    right
        .buffer_unordered(PARALLEL)
        .try_collect::<Vec<()>>()
        .await?;
    stage.wait_for_no_output(&name(round)).await?;
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
#[ignore = "takes minutes: cargo xtask soak faults"]
fn soak() -> Result<()> {
    let size = Size::given(100, 300)?;
    killed(size.rounds, size.clusters)
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
        let agent = stage.start_agent(&[POLICIES])?;
        agent.wait_for_first_pass()?;
        recovers(
            stage,
            &format!("{kills} kills at random instants"),
            clusters,
            last,
        )
        .await?;
        agent.stop()?;
        let first = format!("HostedCluster {CLUSTERS}/{}", name(0));
        stage.finds_all_right(&[POLICIES], &[&first]).await
    })
}

#[test]
fn recovers_when_permissions_are_revoked_and_restored() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let agent = started(stage, 6443).await?;
        let revoked = stage.revoke().await;
        ports(stage, 0..MANY, 7443).await?;
        let told = agent.wait_for_lines(1, &["Forbidden"]);
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
        let told = agent.wait_for_lines(1, &["KindMissing"]);
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

/// A file cannot grow beyond 256 KiB, and standard output and standard error accept nothing.
const FULL: &str = r#"ulimit -f 512; trap "" XFSZ; exec "$@" >/dev/full 2>/dev/full"#;

#[test]
fn a_full_disk_stops_no_work() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        for name in ["one", "two"] {
            stage.ready(name, name == "one").await?;
        }
        let cache = stage.cluster.folder().join("full");
        fs::create_dir_all(&cache)?;
        // The log with the address of its admin server is lost, so the test chooses the address.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let inner = stage.command(&["--log-format", "text", POLICIES, ADMIN, &admin])?;
        let mut command = Command::new("sh");
        command
            .args(["-c", FULL, "sh"])
            .arg(inner.get_program())
            .args(inner.get_args());
        command
            .current_dir(stage.cluster.folder())
            .env("RUST_LOG", "debug")
            .env("XDG_CACHE_HOME", &cache);
        let start = Instant::now();
        let agent = stage.start_command(&mut command)?;
        stage.wait_for_right("one", 6443).await?;
        stage.objects().namespace("klusterlet-two").await?;
        stage.wait_for_right("two", 6443).await?;
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        println!(
            "a full disk from the start: right after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        ensure!(agent.stop()?.is_empty(), "the log could be written");
        Ok(())
    })
}

#[test]
fn a_clock_jump_costs_no_work_and_no_lease() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("timely", true).await?;
        stage.managed("timely").await?;
        let lease = ("coordination.k8s.io/v1", "Lease");
        stage.delete(lease, Some(HOME), LEASE).await?;
        let holder = async || -> Result<Value> {
            let lease = stage
                .get(lease, Some(HOME), LEASE)
                .await?
                .unwrap_or_default();
            Ok(json!([
                lease["spec"]["holderIdentity"],
                lease["spec"]["leaseTransitions"]
            ]))
        };
        // The clock shows 8 o'clock when the agent starts; the agent uses this running clock and no fixed time.
        let clock = Clock::at(&stage.cluster.folder().join("clock"), "2026-11-21 08:00:00")?;
        let fixed = stage.command(&["--lease-namespace", HOME, POLICIES])?;
        let mut command = Command::new(fixed.get_program());
        command.args(
            fixed
                .get_args()
                .filter(|word| *word != "--now" && *word != NOW),
        );
        command
            .current_dir(stage.cluster.folder())
            .env("RUST_LOG", "info,transom=debug");
        let agent = stage.start_command(clock.wear(&mut command)?)?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("timely", 6443).await?;
        let led = holder().await?;
        let hours = [
            ("a day on", "2026-11-22 12"),
            ("two hours back", "2026-11-21 06"),
            ("right again", "2026-11-21 08"),
        ];
        for ((what, hour), port) in hours.into_iter().zip(7443..) {
            clock.set(&format!("{hour}:00:00"))?;
            let start = Instant::now();
            stage.move_port("timely", port).await?;
            stage.wait_for_right("timely", port).await?;
            stage.set_available("timely", "Unknown").await?;
            let added = stage.taint_times("timely", 1).await?;
            ensure!(
                added[0].starts_with(&hour.replace(' ', "T")),
                "{what}: a taint of {added:?}"
            );
            stage.set_available("timely", "True").await?;
            stage.taint_times("timely", 0).await?;
            println!(
                "the clock is {what}: right after {:.1} s",
                start.elapsed().as_secs_f64()
            );
        }
        ensure!(
            holder().await? == led,
            "the lease changed hands: {led}, then {}",
            holder().await?
        );
        agent.stop()?;
        Ok(())
    })
}
