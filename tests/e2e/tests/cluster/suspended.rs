//! A suspended policy and a paused primary: the agent writes and removes nothing meanwhile, and catches up afterwards.

use crate::objects::{CLUSTERS, OUTPUT, home, primary};
use crate::policies::POLICY;
use crate::stage::{HOSTED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_e2e::stage::put;
use transom_test_cluster::Mark;

impl Stage {
    /// Waits until the status of the policy counts this many suspended primaries, out of this many in all.
    async fn wait_for_suspended(&self, held: u64, total: u64) -> Result<()> {
        let what = "a status that counts the suspended";
        let wanted = |status: &Value| {
            let (counts, waiting) = (&status["counts"], status["waiting"].as_array());
            let mut suspended = waiting
                .into_iter()
                .flatten()
                .filter(|it| it["reason"] == "Suspended");
            let told = suspended.next().map_or(held == 0, |it| it["count"] == held);
            told && counts["held"] == held && counts["total"] == total
        };
        self.wait_for_status(what, wanted).await.map(drop)
    }

    /// Writes of Secrets since a mark, without those of the admin.
    async fn secrets_written(&self, since: Mark) -> Result<Vec<String>> {
        let lines = self.lines(since).await?;
        let secrets = lines
            .iter()
            .filter(|line| line.is_write() && line.resource() == "secrets");
        Ok(secrets
            .map(|line| format!("{} {} {}", line.verb, line.uri, line.code))
            .collect())
    }

    async fn suspend(&self, suspend: bool) -> Result<()> {
        self.patch(POLICY, None, OUTPUT, json!({"spec": {"suspend": suspend}}))
            .await
    }
}

fn start(stage: &Stage) -> Result<Agent> {
    let agent = stage.start_agent(&["--policy-objects"])?;
    agent.wait_for_first_pass()?;
    Ok(agent)
}

#[test]
fn a_suspended_policy_writes_and_removes_nothing_until_resumed() -> Result<()> {
    on_stage(async |stage| {
        let before = ["stays", "goes", "vanishes"];
        for name in before {
            stage.ready(name, true).await?;
        }
        stage.install_policies().await?;
        let agent = start(stage)?;
        for name in before {
            stage.wait_for_right(name, 6443).await?;
        }
        stage.suspend(true).await?;
        stage.wait_for_suspended(3, 3).await?;
        let mark = stage.mark()?;
        stage.move_port("stays", 7443).await?;
        stage.delete(HOSTED, Some(CLUSTERS), "goes").await?;
        stage.ready("new", true).await?;
        agent.wait_for(&primary("new"), "Held Suspended")?;
        stage.wait_for_suspended(3, 3).await?;
        agent.stop()?;
        // The next agent, suspended too, finds what happens while no agent is running.
        stage.delete(HOSTED, Some(CLUSTERS), "vanishes").await?;
        let agent = start(stage)?;
        agent.wait_for(&primary("new"), "Held Suspended")?;
        stage.wait_for_suspended(2, 2).await?;
        for name in before {
            ensure!(
                stage
                    .made(name)
                    .await?
                    .is_some_and(|made| made.server.ends_with(":6443")),
                "{name} was touched"
            );
        }
        let written = stage.secrets_written(mark).await?;
        ensure!(written.is_empty(), "written while suspended: {written:#?}");
        stage.suspend(false).await?;
        stage.wait_for_right("stays", 7443).await?;
        stage.wait_for_right("new", 6443).await?;
        stage.wait_for_no_output("goes").await?;
        stage.wait_for_no_output("vanishes").await?;
        stage.wait_for_suspended(0, 2).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_paused_primary_is_left_alone_until_resumed_or_deleted() -> Result<()> {
    on_stage(async |stage| {
        let pause =
            |value: Value| json!({"metadata": {"annotations": {"transom.dev/paused": value}}});
        for name in ["paused", "other"] {
            stage.ready(name, true).await?;
        }
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("paused", 6443).await?;
        stage
            .patch(HOSTED, Some(CLUSTERS), "paused", pause(json!("true")))
            .await?;
        agent.wait_for(&primary("paused"), "Held Paused")?;
        let mark = stage.mark()?;
        stage.move_port("paused", 7443).await?;
        stage.delete(SECRET, Some(&home("paused")), OUTPUT).await?;
        // A primary that is not paused comes after them and is processed.
        stage.move_port("other", 7443).await?;
        stage.wait_for_right("other", 7443).await?;
        let written = stage.secrets_written(mark).await?;
        ensure!(
            written
                .iter()
                .all(|write| write.contains("klusterlet-other")),
            "written while paused: {written:#?}"
        );
        ensure!(!written.is_empty(), "the audit log has nothing");
        stage
            .patch(HOSTED, Some(CLUSTERS), "paused", pause(Value::Null))
            .await?;
        stage.wait_for_right("paused", 7443).await?;
        // The annotation goes with the primary, and so does the managed secret.
        stage
            .patch(HOSTED, Some(CLUSTERS), "paused", pause(json!("true")))
            .await?;
        agent.wait_for(&primary("paused"), "Held Paused")?;
        stage.delete(HOSTED, Some(CLUSTERS), "paused").await?;
        stage.wait_for_no_output("paused").await?;
        agent.stop()?;
        Ok(())
    })
}

const CLUSTER: &str =
    include_str!("../../../../policies/built-in-taints/cases/T04-unknown/given.yaml");
/// Far more than the agent has threads.
const MANY: usize = 60;

/// Policies about every ManagedCluster that desire nothing, each with its own taint.
fn put_many(folder: &Path, suspended: &[usize]) -> Result<()> {
    put(
        &folder.join("good.wasm"),
        &transom_conformance::fixture::hostile("good")?,
    )?;
    let text = std::fs::read_to_string(program::policy("built-in-taints"))?;
    let (text, _) = text
        .rsplit_once("      taintKeys:")
        .context("the policy owns no keys")?;
    (0..MANY).try_for_each(|at| {
        let suspend = if suspended.contains(&at) {
            "spec:\n  suspend: true\n"
        } else {
            "spec:\n"
        };
        let text = text
            .replace("name: built-in-taints", &format!("name: many-{at}"))
            .replace("spec:\n", suspend);
        let text = text.replace("builtin:taints", "./good.wasm")
            + &format!("      taintKeys: [example.com/{at}]\n");
        put(&folder.join(format!("{at}.yaml")), text.as_bytes())
    })
}

/// Waits until the agent reports this for its only cluster under each of these policies.
fn wait_for_each(agent: &Agent, policies: &[usize], reason: &str) -> Result<()> {
    let reason = format!("\"reason\":\"{reason}\"");
    policies.iter().try_for_each(|at| {
        agent.wait_for_lines(1, &[&format!("\"policy\":\"many-{at}\""), &reason])
    })
}

#[test]
fn runs_and_suspends_more_policies_than_threads() -> Result<()> {
    on_stage(async |stage| {
        // The server gives it its own identifier.
        let cluster: String = CLUSTER
            .lines()
            .filter(|line| !line.contains("uid:"))
            .flat_map(|line| [line, "\n"])
            .collect();
        stage.objects().apply_manifest(&cluster).await?;
        let folder = tempfile::tempdir()?;
        put_many(folder.path(), &[])?;
        let path = folder.path().display().to_string();
        let agent = stage.start_agent(&["--policies", &path])?;
        wait_for_each(&agent, &(0..MANY).collect::<Vec<_>>(), "InSync")?;
        put_many(folder.path(), &[0, 16, 17, MANY - 1])?;
        wait_for_each(&agent, &[0, 16, 17, MANY - 1], "Suspended")?;
        agent.stop()?;
        Ok(())
    })
}
