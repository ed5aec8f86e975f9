//! Priority and fairness of the real API server: the agent has one seat, the server refuses what does not fit, and the
//! agent still writes everything. Uses no simulated responses.

use crate::fleet::{all_right, fleet, ports};
use crate::stage::{DEADLINE, Stage, on_stage};
use anyhow::{Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use transom_test_cluster::wait;

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
    let agent = stage.start_agent(&[])?;
    all_right(stage, CLUSTERS, 6443).await?;
    ports(stage, 0..CLUSTERS, 7443).await?;
    all_right(stage, CLUSTERS, 7443).await?;
    agent.stop()?;
    let lines = stage.lines(mark).await?;
    let mut writes = lines.iter().filter(|line| {
        line.verb == "patch"
            && line
                .target
                .as_ref()
                .is_some_and(|target| target.resource == "secrets")
    });
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
