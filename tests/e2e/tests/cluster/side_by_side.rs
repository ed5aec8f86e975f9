//! All policies of a hub beside the real registration controller of Open Cluster Management, which does the same:
//! whoever installs them there sees no fight. Both become quiet, whatever happens to the clusters.

use crate::access::{BINDING, CLUSTERS, PREFIX, accept};
use crate::contest::start_registration;
use crate::copying::HUB;
use crate::inputs::reconciles_of;
use crate::spoke::{AVAILABLE, says};
use crate::stage::{DEADLINE, MANAGED, Stage, is_main_write, on_stage_of_its_own};
use crate::together::{
    ADDON, EDGE, HOLD, SELF_MANAGED, SET_LABEL, WORK, addon_is_well, put_all, put_set,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use transom_e2e::agent::Agent;
use transom_test_cluster::{Line, Mark, wait};

const ACCEPTED: &str = "HubAcceptedManagedCluster";
const LEASE: (&str, &str) = ("coordination.k8s.io/v1", "Lease");

/// Every write of the agent and of the registration controller since a mark, but for what each keeps for itself. The
/// controller deletes again and again what waits for its finalizers.
async fn writes(stage: &Stage, since: Mark) -> Result<Vec<String>> {
    let lines = stage.all_lines(since).await?;
    let counts = |line: &&Line| {
        let counted = match line.user.as_str() {
            "ocm" => line.verb != "delete",
            user => user == stage.agent.name(),
        };
        counted && is_main_write(line)
    };
    let text = |line: &Line| format!("{} {} {} {}", line.user, line.verb, line.uri, line.code);
    Ok(lines.iter().filter(counts).map(text).collect())
}

/// Waits until five resyncs of each policy pass without a write of either, and no policy gave way to the other.
async fn is_quiet(stage: &Stage, agent: &Agent, names: &BTreeSet<String>) -> Result<()> {
    let mut last = Vec::new();
    let quiet = wait::until("five resyncs without a write", DEADLINE, async || {
        let mark = stage.mark()?;
        let before: Vec<f64> = names
            .iter()
            .map(|name| reconciles_of(agent, name))
            .collect::<Result<_>>()?;
        wait::until("five resyncs", DEADLINE, async || {
            let resynced = |(name, before): (&String, &f64)| {
                // Nothing is imported here, and nobody asks for certificates.
                let idle = *before == 0.0;
                Ok::<_, anyhow::Error>(idle || reconciles_of(agent, name)? >= before + 5.0)
            };
            let all = names.iter().zip(&before).map(resynced);
            Ok(all
                .collect::<Result<Vec<bool>>>()?
                .into_iter()
                .all(|one| one)
                .then_some(()))
        })
        .await?;
        last = writes(stage, mark).await?;
        Ok(last.is_empty().then_some(()))
    });
    quiet
        .await
        .with_context(|| format!("{last:#?}\n{}", agent.tail()))?;
    let log = agent.log()?;
    let gave_way: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("\"Contended\""))
        .collect();
    ensure!(gave_way.is_empty(), "{gave_way:#?}");
    Ok(())
}

/// The cluster has this condition.
async fn tells(stage: &Stage, name: &str, kind: &str, status: &str) -> Result<()> {
    let told = |cluster: &Value| says(cluster, kind, status);
    let told = stage.objects().wait_for(MANAGED, (None, name), told);
    told.await.map(drop)
}

/// A ManagedCluster whose agent reports that it is available.
async fn joins(stage: &Stage, name: &str, lease_seconds: u32) -> Result<()> {
    let body = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1,
        "metadata": {"name": name, "labels": {SET_LABEL: EDGE}},
        "spec": {"hubAcceptsClient": true, "leaseDurationSeconds": lease_seconds}});
    stage.objects().create(body).await?;
    tells(stage, name, ACCEPTED, "True").await?;
    let cluster = stage.objects().get(MANAGED, (None, name)).await?;
    let mut conditions = cluster["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for kind in [AVAILABLE, "ManagedClusterJoined"] {
        conditions.retain(|one| one["type"] != kind);
        conditions.push(
            json!({"type": kind, "status": "True", "reason": "Told", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}),
        );
    }
    let status = json!({"conditions": conditions});
    stage.patch_status(name, status).await?;
    let place = (Some(name), "managed-cluster-lease");
    stage
        .objects()
        .wait_for(LEASE, place, Value::is_object)
        .await?;
    for (kind, object) in [(ADDON, "addon"), (WORK, "work")] {
        let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {},
            "metadata": {"name": object, "namespace": name, "finalizers": [HOLD]}});
        stage.objects().apply(body).await?;
    }
    addon_is_well(stage, name).await
}

#[test]
fn no_policy_of_a_hub_fights_with_the_ocm_registration_controller() -> Result<()> {
    on_stage_of_its_own(async |stage| {
        stage.install_other_crds().await?;
        stage.objects().namespace(HUB).await?;
        let folder = stage.cluster.folder().join("policies-side-by-side");
        let names = put_all(&folder, Some(1))?;
        let path = folder.to_str().context("the folder has another name")?;
        stage.grant_exactly(&["--policies", path]).await?;
        let mut ocm = start_registration(stage)?;
        let words = [&["--policies", path][..], &SELF_MANAGED].concat();
        let began = stage.mark()?;
        let agent = stage.start_at_real_time(&words)?;
        put_set(stage).await?;
        let [well, denied, lost, leaving] =
            ["well", "denied", "lost", "leaving"].map(|name| format!("{CLUSTERS}{name}"));
        for name in [&well, &denied, &leaving] {
            joins(stage, name, 60).await?;
        }
        joins(stage, &lost, 1).await?;
        tells(stage, &lost, AVAILABLE, "Unknown").await?;
        is_quiet(stage, &agent, &names)
            .await
            .context("after four clusters joined")?;
        accept(stage, &denied, false).await?;
        tells(stage, &denied, ACCEPTED, "False").await?;
        stage.delete(MANAGED, None, &leaving).await?;
        is_quiet(stage, &agent, &names)
            .await
            .context("while one is denied and one leaves")?;
        for name in [&leaving, &denied] {
            for (kind, object) in [(ADDON, "addon"), (WORK, "work")] {
                let free = json!({"metadata": {"finalizers": null}});
                stage.patch(kind, Some(name), object, free).await?;
                stage.delete(kind, Some(name), object).await?;
            }
        }
        let gone = stage
            .objects()
            .wait_for(MANAGED, (None, &*leaving), Value::is_null);
        gone.await?;
        let binding = format!("{PREFIX}{denied}:work");
        let gone = stage
            .objects()
            .wait_for(BINDING, (Some(&*denied), &*binding), Value::is_null);
        gone.await?;
        is_quiet(stage, &agent, &names)
            .await
            .context("after one left")?;
        agent.stop()?;
        ensure!(
            ocm.ended()?.is_none(),
            "the registration controller ended: {}",
            ocm.log()?
        );
        stage.nothing_denied(began).await
    })
}
