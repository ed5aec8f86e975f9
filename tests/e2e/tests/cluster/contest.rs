//! Others who write the taints that a policy owns, or have them written all the time. Nobody is written against for ever.

use crate::agent::Worker;
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::{Mark, wait};

const NAME: &str = "contested";
const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
const UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";
/// The most writes to one object in a minute.
const BUDGET: usize = 60;

impl Stage {
    /// The taints of a ManagedCluster.
    async fn taints_of(&self, name: &str) -> Result<Vec<Value>> {
        let cluster = self.get(MANAGED, None, name).await?.context("no ManagedCluster")?;
        Ok(cluster["spec"]["taints"].as_array().cloned().unwrap_or_default())
    }

    /// How often the agent wrote a ManagedCluster since a mark.
    async fn writes_of(&self, name: &str, since: Mark) -> Result<usize> {
        let target = format!("managedclusters /{name}");
        Ok(self.writes(since).await?.iter().filter(|write| write.ends_with(&target)).count())
    }

    fn start_on_taints(&self) -> Result<Worker> {
        self.start_agent(&["--policies", &program::policy("built-in-taints").display().to_string()])
    }
}

fn has(taints: &[Value], key: &str) -> bool {
    taints.iter().any(|taint| taint["key"] == key)
}

#[test]
fn who_takes_a_taint_away_three_times_is_left_alone_and_told_of() -> Result<()> {
    on_stage(async |stage| {
        stage.managed(NAME).await?;
        let mark = stage.mark()?;
        let mut agent = stage.start_on_taints()?;
        agent.wait_for_first_pass().await?;
        stage.set_available(NAME, "Unknown").await?;
        for _ in 0..3 {
            wait::until("the taint", DEADLINE, async || {
                Ok(has(&stage.taints_of(NAME).await?, UNREACHABLE).then_some(()))
            })
            .await?;
            agent.wait_for(&format!("ManagedCluster {NAME}"), "Applied AsDesired").await?;
            stage.patch(MANAGED, None, NAME, json!({"spec": {"taints": null}})).await?;
        }
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Failed Contended").await?;
        ensure!(stage.taints_of(NAME).await?.is_empty(), "it is left as the other one wants it");
        wait::until("an Event about it", DEADLINE, async || {
            let events = stage.list(("events.k8s.io/v1", "Event")).await?;
            let told = |event: &Value| event["reason"] == "Contended" && event["regarding"]["name"] == NAME;
            Ok(events.iter().any(|event| told(&event.data)).then_some(()))
        })
        .await?;
        let writes = stage.writes_of(NAME, mark).await?;
        ensure!(writes == 3, "{writes} writes");
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn what_changes_all_the_time_is_written_so_often_in_a_minute_and_not_more() -> Result<()> {
    on_stage(async |stage| {
        for name in [NAME, "calm"] {
            stage.managed(name).await?;
        }
        let mark = stage.mark()?;
        let mut agent = stage.start_on_taints()?;
        agent.wait_for_first_pass().await?;
        let subject = format!("ManagedCluster {NAME}");
        let braked = || Ok::<_, anyhow::Error>(agent.state(&subject)?.as_deref() == Some("Failed WriteBudgetExceeded"));
        let mut flips = 0;
        while !braked()? {
            ensure!(flips <= BUDGET, "{flips} flips were all written");
            let (status, key) = [("Unknown", UNREACHABLE), ("False", UNAVAILABLE)][flips % 2];
            stage.set_available(NAME, status).await?;
            wait::until("the taint, or the brake", DEADLINE, async || {
                Ok((has(&stage.taints_of(NAME).await?, key) || braked()?).then_some(()))
            })
            .await?;
            flips += 1;
        }
        let writes = stage.writes_of(NAME, mark).await?;
        ensure!(writes == BUDGET, "{writes} writes, {flips} flips");
        stage.set_available("calm", "Unknown").await?;
        stage.taint_times("calm", 1).await.context("others go on")?;
        agent.stop()?;
        Ok(())
    })
}
