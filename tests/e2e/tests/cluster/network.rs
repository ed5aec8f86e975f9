//! Faults of networks and proxies between the agent and the API server, and a server with one seat for the agent that
//! refuses what does not fit (its real priority and fairness). Afterwards everything is correct. Prints how long
//! recovery took.

use crate::fleet::{MANY, all_right, fleet, ports, recovers};
use crate::stage::{DEADLINE, Stage, on_stage};
use anyhow::{Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use serde_json::json;
use std::time::Instant;
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
    let agent = stage.start_agent_at(
        &wire.server(),
        &["--policies", &stage.unlimited("built-in-taints")?],
    )?;
    let wait_for_taint = async |key: &str| {
        wait::until(&format!("the taint {key}"), DEADLINE, async || {
            let taints = json!(stage.taints_of(name).await?);
            Ok(taints.to_string().contains(key).then_some(()))
        })
        .await
    };
    wait_for_taint("open-cluster-management.io/unavailable").await?;
    wire.silence();
    let start = Instant::now();
    stage.set_available(name, "Unknown").await?;
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
        &[
            "--policies",
            &stage.unlimited("external-managed-kubeconfig")?,
        ],
    )?;
    all_right(stage, MANY, 6443).await?;
    ports(stage, 0..MANY / 2, 7443).await?;
    wire.cut();
    ports(stage, MANY / 2..MANY, 7443).await?;
    agent.wait_for_lines(1, &["ServerUnavailable"])?;
    wire.carry(Carries::All);
    recovers(stage, "cut off under load", MANY, 7443).await?;
    wire.carry(Carries::Slowly(20_000));
    ports(stage, 0..MANY, 8443).await?;
    recovers(stage, "20 kB per second and connection", MANY, 8443).await?;
    // The agent receives data but its requests get lost: every request times out.
    wire.carry(Carries::Answers);
    ports(stage, 0..MANY, 9443).await?;
    agent.wait_for_lines(1, &["did not answer within"])?;
    wire.carry(Carries::All);
    recovers(stage, "no request went through", MANY, 9443).await?;
    agent.stop()?;
    Ok(())
}

async fn wrong_answers(stage: &Stage) -> Result<()> {
    let proxy = Proxy::start(&stage.cluster).await?;
    let words = [
        "--policies",
        &stage.unlimited("external-managed-kubeconfig")?,
    ];
    let mut command = stage.command_of(&stage.agent, &proxy.server(), &words)?;
    let agent = stage.start_command(command.env("RUST_LOG", "debug"))?;
    agent.wait_for_first_pass()?;
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

const FLOWS: &str = "flowcontrol.apiserver.k8s.io/v1";
const NAME: &str = "crowded";
/// Hosted clusters; with one seat, writing one takes about a second.
const CLUSTERS: usize = 14;
/// Requests that do not all fit into one seat.
const CROWD: usize = 20;

impl Stage {
    /// Gives the agent one seat, and waits until the server enforces it.
    async fn crowd(&self) -> Result<()> {
        // Each level gets its share of 600 seats; the second level exists only to make up the total.
        let manifest = format!(
            "
apiVersion: {FLOWS}
kind: PriorityLevelConfiguration
metadata: {{name: {NAME}}}
spec:
  type: Limited
  limited: {{nominalConcurrencyShares: 1, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {{type: Reject}}}}
---
apiVersion: {FLOWS}
kind: PriorityLevelConfiguration
metadata: {{name: {NAME}-others}}
spec:
  type: Limited
  limited: {{nominalConcurrencyShares: 1000, lendablePercent: 100, limitResponse: {{type: Reject}}}}
---
apiVersion: {FLOWS}
kind: FlowSchema
metadata: {{name: {NAME}}}
spec:
  matchingPrecedence: 50
  priorityLevelConfiguration: {{name: {NAME}}}
  rules:
  - subjects: [{{kind: ServiceAccount, serviceAccount: {{name: agent, namespace: transom}}}}]
    resourceRules: [{{verbs: ['*'], apiGroups: ['*'], resources: ['*'], clusterScope: true, namespaces: ['*']}}]
"
        );
        self.objects().apply_manifest(&manifest).await?;
        let namespaces: Api<Namespace> = Api::all(self.cluster.client(&self.agent).await?);
        wait::until("a request that is refused for want of a seat", DEADLINE, async || {
            let asked =
                join_all((0..CROWD).map(|_| async { namespaces.list(&ListParams::default()).await.err() })).await;
            let refused = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 429);
            Ok(asked.iter().flatten().any(refused).then_some(()))
        })
        .await
    }

    /// Removes the limit.
    async fn uncrowd(&self) -> Result<()> {
        self.delete((FLOWS, "FlowSchema"), None, NAME).await?;
        for name in [NAME.to_owned(), format!("{NAME}-others")] {
            self.delete((FLOWS, "PriorityLevelConfiguration"), None, &name)
                .await?;
        }
        Ok(())
    }
}

#[test]
fn writes_everything_with_one_api_server_seat() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, CLUSTERS).await?;
        let written = match stage.crowd().await {
            Ok(()) => crowded(stage).await,
            failed => failed,
        };
        stage.uncrowd().await?;
        written
    })
}

async fn crowded(stage: &Stage) -> Result<()> {
    let mark = stage.mark()?;
    // Its first pass may find nothing at all: the server refuses even its lists.
    let agent = stage.start_agent(&[
        "--policies",
        &stage.unlimited("external-managed-kubeconfig")?,
    ])?;
    all_right(stage, CLUSTERS, 6443).await?;
    ports(stage, 0..CLUSTERS, 7443).await?;
    all_right(stage, CLUSTERS, 7443).await?;
    agent.stop()?;
    let lines = stage.lines(mark).await?;
    let mut writes = lines
        .iter()
        .filter(|line| line.verb == "patch" && line.resource() == "secrets");
    let (sent, pushed) = writes.clone().fold((0, 0), |(sent, pushed), line| {
        (sent + 1, pushed + usize::from(line.code == 429))
    });
    println!(
        "{sent} writes were sent for {} that were to be made, {pushed} of them refused for want of a seat",
        2 * CLUSTERS
    );
    ensure!(pushed > 0, "no write was refused");
    ensure!(
        writes.all(|line| line.code < 300 || line.code == 429 || line.code == 409),
        "another answer"
    );
    ensure!(sent <= 4 * 2 * CLUSTERS, "{sent} writes were sent");
    Ok(())
}
