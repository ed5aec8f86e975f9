//! A hub that loses sight of its whole fleet: no more clusters are tainted than the limit allows, also when the agent
//! is killed meanwhile, until the rest is approved.

use crate::leases::LEASES;
use crate::policies::POLICY;
use crate::stage::{DEADLINE, HOME, MANAGED, PARALLEL, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use transom_core::rights::{LEASE, LIMITS};
use transom_e2e::agent::Agent;
use transom_e2e::program::stderr;
use transom_test_cluster::{Line, Mark, wait};

const FLEET: usize = 40;
/// 30 percent of the fleet.
const LIMIT: usize = 12;
pub(crate) const TAINTS: &str = "built-in-taints";

fn name(index: usize) -> String {
    format!("m{index:02}")
}

impl Stage {
    /// How many of the clusters have a taint.
    pub(crate) async fn tainted(&self) -> Result<usize> {
        let clusters = self.list(MANAGED).await?;
        let tainted = clusters
            .iter()
            .filter(|one| one.data["spec"]["taints"].is_array());
        Ok(tainted.count())
    }

    async fn set_all(&self, status: &str) -> Result<()> {
        let set = stream::iter(0..FLEET)
            .map(|index| async move { self.set_available(&name(index), status).await });
        set.buffer_unordered(PARALLEL).try_collect().await
    }

    /// A new agent that leads at once: the one before was killed.
    async fn lead(&self) -> Result<Agent> {
        self.delete(LEASES, Some(HOME), LEASE).await?;
        let agent = self.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
        agent.ready()?;
        Ok(agent)
    }

    pub(crate) async fn status_of_taints(&self) -> Result<Value> {
        let policy = self.get(POLICY, None, TAINTS).await?;
        Ok(policy.context("the policy is gone")?["status"].take())
    }

    /// Waits until all that is not tainted is withheld, as the status says, and returns the status.
    async fn withheld(&self) -> Result<Value> {
        let mut last = Value::Null;
        let seen = wait::until("the rest withheld", DEADLINE, async || {
            last = self.status_of_taints().await?;
            let rest = FLEET - self.tainted().await?;
            Ok((last["limits"]["withheld"] == rest).then_some(()))
        });
        seen.await
            .with_context(|| format!("the last status was {last}"))?;
        Ok(last)
    }

    /// The clusters that the agent patched.
    pub(crate) async fn patched(&self, since: Mark) -> Result<BTreeSet<String>> {
        let lines = self.lines(since).await?;
        let patched = lines
            .into_iter()
            .filter(|line| line.verb == "patch" && line.code < 300);
        let names = patched.filter_map(|line: Line| line.target);
        let clusters = names.filter(|target| target.resource == "managedclusters");
        Ok(clusters.map(|target| target.name).collect())
    }
}

fn ready(status: &Value) -> (&str, &str) {
    let all = status["conditions"].as_array().map(Vec::as_slice);
    let ready = all
        .unwrap_or_default()
        .iter()
        .find(|one| one["type"] == "Ready");
    let text = |field: &str| {
        ready
            .and_then(|one| one[field].as_str())
            .unwrap_or_default()
    };
    (text("status"), text("reason"))
}

#[test]
fn no_more_clusters_are_tainted_than_the_limit_until_the_rest_is_approved() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        let made =
            stream::iter(0..FLEET).map(|index| async move { stage.managed(&name(index)).await });
        made.buffer_unordered(PARALLEL)
            .try_collect::<Vec<()>>()
            .await?;
        let agent = stage.lead().await?;
        agent.wait_for_first_pass()?;
        let mark = stage.mark()?;
        let (flipped, killed) = futures::join!(stage.set_all("Unknown"), async {
            let some = async || Ok((stage.tainted().await? >= 3).then_some(()));
            wait::until("some tainted clusters", DEADLINE, some).await?;
            // Killed, not asked to end.
            drop(agent);
            anyhow::Ok(())
        });
        flipped.and(killed)?;
        let agent = stage.lead().await?;
        let status = stage.withheld().await?;
        let patched = stage.patched(mark).await?;
        ensure!((3..=LIMIT).contains(&patched.len()), "{patched:?}");
        ensure!(ready(&status) == ("False", "LimitReached"), "{status}");
        ensure!(
            status["limits"]["primaries"]
                .as_array()
                .is_some_and(|all| all.len() == 10),
            "{status}"
        );
        let kept = stage.get(("v1", "ConfigMap"), Some(HOME), LIMITS).await?;
        ensure!(kept.is_some_and(|kept| kept["data"][TAINTS].is_string()));
        told(stage, "LimitReached").await?;
        // Still so after another start.
        drop(agent);
        let agent = stage.lead().await?;
        agent.wait_for_first_pass()?;
        let status = stage.withheld().await?;
        ensure!(
            stage.patched(mark).await? == patched,
            "the start let some pass"
        );
        // An approval by nobody does not count, and the agent says so.
        let annotations = json!({"transom.dev/approved": status["limits"]["approve"]});
        let nobody = json!({"metadata": {"annotations": annotations}});
        stage.patch(POLICY, None, TAINTS, nobody).await?;
        told(stage, "ApprovalForbidden").await?;
        ensure!(
            agent.log()?.contains("ApprovalForbidden"),
            "it is not logged"
        );
        ensure!(
            stage.patched(mark).await? == patched,
            "nobody let some pass"
        );
        let approved = stage.mark()?;
        stage.approve().await?;
        let all = async || Ok((stage.tainted().await? == FLEET).then_some(()));
        wait::until("all tainted", DEADLINE, all).await?;
        let mended = async || {
            let status = stage.status_of_taints().await?;
            Ok((ready(&status).0 == "True" && status["limits"].is_null()).then_some(()))
        };
        wait::until("a policy that is ready", DEADLINE, mended).await?;
        ensure!(
            !agent.log()?.contains("swapped"),
            "the approval loaded the policy again"
        );
        // What was approved is used up: the way back has limits of its own, and the digest counts no more.
        stage.set_all("True").await?;
        let status = stage.removals_withheld().await?;
        ensure!(ready(&status) == ("False", "LimitReached"), "{status}");
        let records = |line: &Line| line.verb != "list" && line.resource() == "configmaps";
        let records = stage
            .lines(approved)
            .await?
            .iter()
            .filter(|line| records(line))
            .count();
        ensure!(records <= 15, "{records} writes of the record");
        agent.stop()?;
        Ok(())
    })
}

impl Stage {
    /// Approves what is withheld, as the documentation says. The status of a new leader shows it after a moment.
    async fn approve(&self) -> Result<()> {
        let mut said = String::new();
        let approved = wait::until("an approval", DEADLINE, async || {
            let status = self.status_of_taints().await?;
            let Some(digest) = status["limits"]["approve"].as_str() else {
                return Ok(None);
            };
            let output = self.transom_as(self.cluster.admin(), &["approve", TAINTS, digest])?;
            said = stderr(&output);
            Ok(output.status.success().then_some(()))
        });
        approved.await.with_context(|| said)
    }

    /// Waits until no more taints may be removed.
    async fn removals_withheld(&self) -> Result<Value> {
        let mut last = Value::Null;
        let seen = wait::until("the removal withheld", DEADLINE, async || {
            last = self.status_of_taints().await?;
            let all = last["limits"]["withheld"] == FLEET - LIMIT;
            Ok((all && self.tainted().await? == FLEET - LIMIT).then_some(()))
        });
        seen.await
            .with_context(|| format!("the last status was {last}"))?;
        Ok(last)
    }
}

/// Waits for the Event on the policy.
async fn told(stage: &Stage, reason: &str) -> Result<()> {
    wait::until("an Event on the policy", DEADLINE, async || {
        let events = stage.list(("events.k8s.io/v1", "Event")).await?;
        let on_policy =
            |data: &Value| data["regarding"]["name"] == TAINTS && data["reason"] == reason;
        Ok(events
            .iter()
            .any(|event| on_policy(&event.data))
            .then_some(()))
    })
    .await
}
