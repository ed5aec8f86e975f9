//! Rows of the reference that need more than objects and so cannot be cases: a missing permission, and a patch that
//! comes too late. Row T21, times that a webhook sets, is in `taint_times.rs`.

use crate::objects::{OUTPUT, home, primary};
use crate::stage::{DEADLINE, MANAGED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::{Proxy, wait};

impl Stage {
    /// Grants the agent its permissions except those on one resource.
    async fn grant_without(&self, resource: &str) -> Result<()> {
        self.revoke().await?;
        let mut printed: Value = serde_json::from_str(&self.rights("agent", &[], "json")?)?;
        let mut without = 0;
        for object in printed["items"].as_array_mut().context("no list")? {
            if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
                let before = rules.len();
                rules.retain(|rule| rule["resources"] != json!([resource]));
                without += before - rules.len();
            }
            self.objects().apply(object.clone()).await?;
        }
        ensure!(
            without > 0,
            "no right on {resource} was there to be left out"
        );
        Ok(())
    }
}

#[test]
fn e03_an_unreadable_namespace_fails_until_access_is_granted() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("unread", true).await?;
        stage.grant_without("namespaces").await?;
        let mark = stage.mark()?;
        let mut agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass().await?;
        agent
            .wait_for(&primary("unread"), "Failed ReadForbidden")
            .await?;
        ensure!(
            stage
                .get(SECRET, Some(&home("unread")), OUTPUT)
                .await?
                .is_none(),
            "it was written unseen"
        );
        let denied = stage
            .lines(mark)
            .await?
            .into_iter()
            .filter(|line| !line.allowed);
        let of = |line: &transom_test_cluster::Line| {
            line.target
                .as_ref()
                .is_some_and(|it| it.resource == "namespaces")
        };
        ensure!(
            denied.clone().count() > 0 && denied.clone().all(|line| of(&line)),
            "{:#?}",
            denied.collect::<Vec<_>>()
        );
        stage.grant().await?;
        stage.wait_for_right("unread", 6443).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn t20_replans_a_patch_after_a_conflict() -> Result<()> {
    on_stage(async |stage| {
        stage.managed("late").await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let policy = program::policy("built-in-taints").display().to_string();
        let mut agent = stage.start_agent_at(&proxy.server(), &["--policies", &policy])?;
        agent.wait_for_first_pass().await?;
        let mark = stage.mark()?;
        // The agent's patch is in flight when another client writes.
        proxy.hold(Some("/managedclusters/late"));
        stage.set_available("late", "Unknown").await?;
        let patch = wait::until("the patch", DEADLINE, async || {
            Ok((proxy.met() > 0).then_some(()))
        });
        patch
            .await
            .with_context(|| format!("it said {}", agent.tail()))?;
        let theirs = json!({"spec": {"taints": [{"key": "theirs", "effect": "NoSelect"}]}});
        stage.patch(MANAGED, None, "late", theirs).await?;
        proxy.hold(None);
        ensure!(
            stage.taint_times("late", 2).await?.len() == 1,
            "the taint that somebody else set has a time"
        );
        agent
            .wait_for("ManagedCluster late", "Applied InSync")
            .await?;
        agent.stop()?;
        let lines = stage.lines(mark).await?;
        let ours = |line: &&transom_test_cluster::Line| {
            line.target.as_ref().is_some_and(|it| it.name == "late")
        };
        let codes: Vec<u16> = lines
            .iter()
            .filter(ours)
            .filter(|line| line.verb == "patch")
            .map(|line| line.code)
            .collect();
        ensure!(codes == [409, 200], "{codes:?}");
        Ok(())
    })
}
