//! Who sets the time of a taint that the agent adds: the webhook of Open Cluster Management if it is installed, else
//! the agent. The test's webhook behaves as measured on the real one.

use crate::agent::NOW;
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::{Asks, Line, Say, TAINTED_AT, Webhook, set_taint_times, wait};

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
    let mut agent = stage.start_agent(&[
        "--policies",
        &program::policy("built-in-taints").display().to_string(),
    ])?;
    agent.wait_for_first_pass().await?;
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
        agent
            .wait_for(&format!("ManagedCluster {NAME}"), "Applied InSync")
            .await?;
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
        let group = "cluster.open-cluster-management.io";
        let asks = Asks {
            name: "idle",
            group,
            resource: "managedclusters",
            scope: &json!({}),
        };
        let probe = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": "probe"},
            "spec": {"hubAcceptsClient": false}});
        let installed = webhook.install(stage.objects(), asks, probe).await;
        let flipped = match installed {
            // The agent tried it with an object that is no cluster of this test.
            Ok(()) => match stage.delete(MANAGED, None, "probe").await {
                Ok(()) => flip_beside_an_idle_one(stage).await,
                failed => failed,
            },
            failed => failed,
        };
        Webhook::uninstall(stage.objects(), "idle").await?;
        flipped
    })
}

/// The first taint costs a second write, for its time. After that the agent knows who sets times.
async fn flip_beside_an_idle_one(stage: &Stage) -> Result<()> {
    let taint = |key: &str| json!({"key": key, "effect": "NoSelect", "timeAdded": NOW});
    let mark = stage.mark()?;
    let mut agent = stage.start_agent(&[
        "--policies",
        &program::policy("built-in-taints").display().to_string(),
    ])?;
    agent.wait_for_first_pass().await?;
    for (status, key) in [("Unknown", UNREACHABLE), ("False", UNAVAILABLE)] {
        stage.set_available(NAME, status).await?;
        stage
            .wait_for_taints(&[taint(key)])
            .await
            .with_context(|| format!("available: {status}"))?;
        agent
            .wait_for(&format!("ManagedCluster {NAME}"), "Applied InSync")
            .await?;
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
        let group = "cluster.open-cluster-management.io";
        let asks = Asks {
            name: WEBHOOK,
            group,
            resource: "managedclusters",
            scope: &json!({}),
        };
        let probe = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": "probe"},
            "spec": {"hubAcceptsClient": false}});
        let installed = webhook.install(stage.objects(), asks, probe).await;
        let flipped = match installed {
            Ok(()) => flip(stage, TAINTED_AT).await.context("with the webhook"),
            failed => failed,
        };
        Webhook::uninstall(stage.objects(), WEBHOOK).await?;
        flipped
    })
}
