//! A component of each generation of the contract at work in one agent, on a real API server: the guest `availability`
//! of 0.2 tells a cluster whose clock is behind from one that stopped, and the guest `taints` as it was released with
//! 0.1.0 taints by what it says.

use crate::availability::{self, CLOCK, LEASE_NAME};
use crate::inputs::{LEASE, reconciles_of};
use crate::spoke::{AVAILABLE, is_tainted, says};
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use transom_e2e::program;
use transom_test_cluster::wait;

/// For how long heartbeats may be missing: five lease durations.
const LIMIT: Duration = Duration::from_secs(10);

/// The policies, with the component of 0.1.0 beside the one that was built.
fn put_policies(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, pointer, value) in [
        (
            "availability",
            "/spec/guests/decide/settings",
            json!({"observed": true}),
        ),
        (
            "built-in-taints",
            "/spec/guests/decide/component",
            json!("taints.wasm"),
        ),
    ] {
        let mut policy = program::unlimited_manifest(name)?;
        if let Some(place) = policy.pointer_mut(pointer) {
            *place = value;
        }
        fs::write(folder.join(format!("{name}.yaml")), policy.to_string())?;
    }
    let released = program::root().join("tests/fixtures/released/0.1.0/taints.wasm");
    fs::copy(released, folder.join("taints.wasm"))?;
    Ok(())
}

/// A heartbeat of a clock that is an hour behind, if the lease is there.
async fn beat(stage: &Stage) -> Result<()> {
    if stage.get(LEASE, Some("one"), LEASE_NAME).await?.is_none() {
        return Ok(());
    }
    availability::beat(stage, "one", &availability::from_now(-3600)?).await
}

/// The message of a condition.
fn message(cluster: &Value, kind: &str) -> Option<String> {
    let mut all = cluster["status"]["conditions"].as_array()?.iter();
    let found = all.find(|one| one["type"] == kind)?;
    found["message"].as_str().map(str::to_owned)
}

/// Waits until the cluster is so; the agent of the cluster beats meanwhile, or does not.
async fn wait_for(
    stage: &Stage,
    beats: bool,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    wait::until(what, DEADLINE, async || {
        if beats {
            beat(stage).await?;
        }
        let cluster = stage.get(MANAGED, None, "one").await?.unwrap_or_default();
        Ok(is_so(&cluster).then_some(cluster))
    })
    .await
}

#[test]
fn heartbeats_of_a_clock_that_is_behind_are_told_from_those_that_stopped() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-generations");
        put_policies(&folder)?;
        let words = ["--policies", &folder.to_string_lossy()];
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let seconds = json!({"spec": {"leaseDurationSeconds": LIMIT.as_secs() / 5}});
        stage.patch(MANAGED, None, "one", seconds).await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}});
        stage.objects().apply(namespace).await?;
        let mark = stage.mark()?;
        let agent = stage.start_at_real_time(&words)?;
        let behind = wait_for(stage, true, "a clock that is behind", |cluster| {
            says(cluster, CLOCK, "False")
        })
        .await?;
        let told = message(&behind, CLOCK);
        let wanted = "The clock of the managed cluster is behind that of the hub.";
        ensure!(told.as_deref() == Some(wanted), "{told:?}");
        // It stays available for as long as it beats, and the heartbeats wake nobody.
        let (before, start) = (reconciles_of(&agent, "availability")?, Instant::now());
        wait_for(stage, true, "twice the limit", |cluster| {
            assert!(says(cluster, AVAILABLE, "True"), "{cluster}");
            start.elapsed() > LIMIT * 2
        })
        .await?;
        let woken = reconciles_of(&agent, "availability")? - before;
        ensure!(woken <= 1.0, "{woken} reconciles");
        // It stops. The guest of 0.1.0 sees what that of 0.2 says.
        let stopped = wait_for(stage, false, "a cluster that stopped", is_tainted).await?;
        ensure!(says(&stopped, AVAILABLE, "Unknown"), "{stopped}");
        ensure!(says(&stopped, CLOCK, "False"), "{stopped}");
        // It comes back, and says so until it is seen: before its heartbeat is, it is `Unknown` again.
        wait::until("a cluster that is back", DEADLINE, async || {
            beat(stage).await?;
            let cluster = stage.get(MANAGED, None, "one").await?.unwrap_or_default();
            if !says(&cluster, AVAILABLE, "True") {
                // Another writer may come in between.
                stage.set_available("one", "True").await.ok();
                return Ok(None);
            }
            Ok((!is_tainted(&cluster)).then_some(()))
        })
        .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}
