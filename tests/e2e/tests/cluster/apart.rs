//! Rows of the reference that need more than objects and so cannot be cases: a missing permission, a patch that comes
//! too late, and (T21) the time of a taint, which the webhook of Open Cluster Management sets if it is installed, else
//! the agent. The test's webhook behaves as measured on the real one.

use crate::agent::NOW;
use crate::objects::{OUTPUT, home, primary};
use crate::stage::{DEADLINE, MANAGED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::{Asks, Line, Proxy, Say, TAINTED_AT, Webhook, set_taint_times, wait};

#[test]
fn e03_an_unreadable_namespace_fails_until_access_is_granted() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("unread", true).await?;
        stage.revoke().await?;
        stage
            .grant_but(&[], "namespaces", &["get", "list", "watch"])
            .await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        agent.wait_for(&primary("unread"), "Failed ReadForbidden")?;
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
            .filter(|line| line.denied);
        let of = |line: &transom_test_cluster::Line| line.resource() == "namespaces";
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
        let agent = stage.start_agent_at(&proxy.server(), &["--policies", &policy])?;
        agent.wait_for_first_pass()?;
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
        agent.wait_for("ManagedCluster late", "Applied InSync")?;
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

const NAME: &str = "timed";
const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
const UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";
/// The name of the webhook's configuration.
const WEBHOOK: &str = "ocm";

impl Stage {
    /// Waits until a ManagedCluster has exactly these taints.
    async fn wait_for_taints(&self, taints: &[Value]) -> Result<()> {
        let mut last = Value::Null;
        let came = wait::until("the taints", DEADLINE, async || {
            last = self
                .get(MANAGED, None, NAME)
                .await?
                .context("no ManagedCluster")?["spec"]["taints"]
                .take();
            Ok((last.as_array().map(Vec::as_slice).unwrap_or_default() == taints).then_some(()))
        });
        came.await
            .with_context(|| format!("wanted {taints:?}; the last were {last}"))
    }
}

/// Flips a cluster through all its states under a new agent; all times of the agent's taints equal `added`.
async fn flip(stage: &Stage, added: &str) -> Result<()> {
    let users = json!({"key": "user", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"});
    let taint = |key: &str| json!({"key": key, "effect": "NoSelect", "timeAdded": added});
    let mark = stage.mark()?;
    let agent = stage.start_on_taints()?;
    agent.wait_for_first_pass()?;
    for (status, ours) in [
        ("Unknown", Some(UNREACHABLE)),
        ("False", Some(UNAVAILABLE)),
        ("True", None),
    ] {
        stage.set_available(NAME, status).await?;
        let wanted: Vec<Value> = [Some(users.clone()), ours.map(taint)]
            .into_iter()
            .flatten()
            .collect();
        stage
            .wait_for_taints(&wanted)
            .await
            .with_context(|| format!("available: {status}"))?;
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Applied InSync")?;
    }
    agent.stop()?;
    let lines = stage.lines(mark).await?;
    let ours = |line: &&Line| {
        line.is_write()
            && line
                .target
                .as_ref()
                .is_some_and(|target| target.name == NAME)
    };
    let codes: Vec<_> = lines.iter().filter(ours).map(|line| line.code).collect();
    // A late read costs a conflict; a time that the agent must not set costs a refusal.
    ensure!(
        codes.iter().filter(|code| **code == 200).count() == 3,
        "{codes:?}"
    );
    ensure!(
        codes.iter().all(|code| [200, 409].contains(code)),
        "{codes:?}"
    );
    Ok(())
}

#[test]
fn sets_taint_times_itself_when_the_webhook_sets_none() -> Result<()> {
    on_stage(async |stage| {
        stage.managed(NAME).await?;
        let webhook = Webhook::start(|_| Say::Patch(Vec::new())).await?;
        beside_webhook(stage, webhook, async || {
            // The agent tried it with an object that is no cluster of this test.
            stage.delete(MANAGED, None, "probe").await?;
            flip_beside_an_idle_one(stage).await
        })
        .await
    })
}

/// Runs something while a webhook answers for ManagedClusters.
async fn beside_webhook(
    stage: &Stage,
    webhook: Webhook,
    test: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let asks = Asks {
        name: WEBHOOK,
        group: "cluster.open-cluster-management.io",
        resource: "managedclusters",
        scope: &json!({}),
    };
    let probe = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": "probe"},
        "spec": {"hubAcceptsClient": false}});
    let ended = match webhook.install(stage.objects(), asks, probe).await {
        Ok(()) => test().await,
        failed => failed,
    };
    Webhook::uninstall(stage.objects(), WEBHOOK).await?;
    ended
}

/// The first taint costs a second write, for its time. After that the agent knows who sets times.
async fn flip_beside_an_idle_one(stage: &Stage) -> Result<()> {
    let taint = |key: &str| json!({"key": key, "effect": "NoSelect", "timeAdded": NOW});
    let mark = stage.mark()?;
    let agent = stage.start_on_taints()?;
    agent.wait_for_first_pass()?;
    for (status, key) in [("Unknown", UNREACHABLE), ("False", UNAVAILABLE)] {
        stage.set_available(NAME, status).await?;
        stage
            .wait_for_taints(&[taint(key)])
            .await
            .with_context(|| format!("available: {status}"))?;
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Applied InSync")?;
    }
    agent.stop()?;
    let writes = stage.writes(mark).await?;
    let of_it = writes.iter().filter(|write| write.ends_with(NAME)).count();
    ensure!(of_it == 3, "{writes:?}");
    Ok(())
}

#[test]
fn leaves_taint_times_to_the_webhook_if_one_is_installed() -> Result<()> {
    on_stage(async |stage| {
        stage.managed(NAME).await?;
        let taints =
            json!([{"key": "user", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"}]);
        stage
            .patch(MANAGED, None, NAME, json!({"spec": {"taints": taints}}))
            .await?;
        flip(stage, NOW).await.context("without a webhook")?;
        let webhook = Webhook::start(set_taint_times).await?;
        let flips = async || flip(stage, TAINTED_AT).await.context("with the webhook");
        beside_webhook(stage, webhook, flips).await
    })
}
