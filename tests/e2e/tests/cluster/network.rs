//! Faults of networks and proxies between the agent and the API server; afterwards everything is correct. Prints how
//! long recovery took.

use crate::fleet::{MANY, all_right, fleet, ports, recovers};
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::time::Instant;
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Carries, Fault, Proxy, Wire, wait};

/// Detecting silence takes more than a minute, so the rest runs meanwhile with another agent and another policy.
#[test]
fn recovers_from_silent_watches_bad_networks_and_wrong_answers() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let others = async {
            bad_wire(stage).await?;
            wrong_answers(stage).await
        };
        tokio::try_join!(silence(stage), others)?;
        Ok(())
    })
}

fn policy(name: &str) -> String {
    program::policy(name).display().to_string()
}

/// Open connections stay open without data, as behind a firewall that has dropped their state.
async fn silence(stage: &Stage) -> Result<()> {
    stage
        .cluster
        .install_fleet(Fleet {
            clusters: 0,
            managed: 8,
            seed: 7,
        })
        .await?;
    let name = "edge-00007";
    let wire = Wire::to(&stage.cluster.server())?;
    let agent =
        stage.start_agent_at(&wire.server(), &["--policies", &policy("built-in-taints")])?;
    let wait_for_taint = async |key: &str| {
        wait::until(&format!("the taint {key}"), DEADLINE, async || {
            let object = stage
                .get(MANAGED, None, name)
                .await?
                .context("no ManagedCluster")?;
            Ok(object["spec"]["taints"]
                .to_string()
                .contains(key)
                .then_some(()))
        })
        .await
    };
    wait_for_taint("open-cluster-management.io/unavailable").await?;
    wire.silence();
    let start = Instant::now();
    let mut status = stage
        .get(MANAGED, None, name)
        .await?
        .context("no ManagedCluster")?["status"]
        .clone();
    for it in status["conditions"].as_array_mut().into_iter().flatten() {
        if it["type"] == "ManagedClusterConditionAvailable" {
            it["status"] = json!("Unknown");
        }
    }
    stage.put_status(MANAGED, None, name, &status).await?;
    wait_for_taint("open-cluster-management.io/unreachable").await?;
    println!(
        "a watch that stays silent: right after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    agent.stop()?;
    Ok(())
}

/// Cut off, slow, and with requests that get lost.
async fn bad_wire(stage: &Stage) -> Result<()> {
    let wire = Wire::to(&stage.cluster.server())?;
    let agent = stage.start_agent_at(
        &wire.server(),
        &["--policies", &policy("external-managed-kubeconfig")],
    )?;
    all_right(stage, MANY, 6443).await?;
    ports(stage, 0..MANY / 2, 7443).await?;
    wire.cut();
    ports(stage, MANY / 2..MANY, 7443).await?;
    wait::until("a word on the server", DEADLINE, async || {
        Ok(agent.log()?.contains("ServerUnavailable").then_some(()))
    })
    .await?;
    wire.carry(Carries::All);
    recovers(stage, "cut off under load", MANY, 7443).await?;
    wire.carry(Carries::Slowly(20_000));
    ports(stage, 0..MANY, 8443).await?;
    recovers(stage, "20 kB per second and connection", MANY, 8443).await?;
    // The agent receives data but its requests get lost: every request times out.
    wire.carry(Carries::Answers);
    ports(stage, 0..MANY, 9443).await?;
    wait::until("a request that ended by itself", DEADLINE, async || {
        Ok(agent.log()?.contains("did not answer within").then_some(()))
    })
    .await?;
    wire.carry(Carries::All);
    recovers(stage, "no request went through", MANY, 9443).await?;
    agent.stop()?;
    Ok(())
}

async fn wrong_answers(stage: &Stage) -> Result<()> {
    let proxy = Proxy::start(&stage.cluster).await?;
    let words = ["--policies", &policy("external-managed-kubeconfig")];
    let mut command = stage.command_of(&stage.agent, &proxy.server(), &words)?;
    let mut agent = stage.start_command(command.env("RUST_LOG", "debug"))?;
    agent.wait_for_first_pass().await?;
    let faults = [
        ("429 with Retry-After", Fault::Code(429, Some(1))),
        ("500", Fault::Code(500, None)),
        ("503", Fault::Code(503, None)),
        ("HTML", Fault::NoJson),
        ("half of each answer", Fault::Half),
    ];
    for (index, (what, fault)) in faults.into_iter().enumerate() {
        let port = 7000 + u16::try_from(index)?;
        // The writes get the error first, then the watches.
        proxy.fail(Some(fault));
        ports(stage, 0..MANY, port).await?;
        meet(&proxy, what, 3).await?;
        proxy.cut();
        meet(&proxy, what, proxy.met() + 10).await?;
        proxy.fail(None);
        recovers(stage, &format!("answered with {what}"), MANY, port).await?;
    }
    agent.stop()?;
    Ok(())
}

async fn meet(proxy: &Proxy, what: &str, requests: usize) -> Result<()> {
    wait::until(
        &format!("{requests} requests that meet {what}"),
        DEADLINE,
        async || Ok((proxy.met() >= requests).then_some(())),
    )
    .await
}
