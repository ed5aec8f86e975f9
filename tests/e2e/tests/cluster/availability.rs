//! The policy `availability` on a real API server, with exactly the permissions that `transom rbac` prints: the lease
//! of a cluster is made once, heartbeats wake nobody, and their end is noticed, as is a clock that is behind. The agent
//! works at 2026-11-21T08:00:00Z.

use crate::inputs::{LEASE, reconciles_of};
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage};
use crate::status::wait_for_condition;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use transom_core::time::{format_rfc3339, parse_rfc3339};
use transom_e2e::program;
use transom_test_cluster::{Line, wait};

const AVAILABLE: &str = "ManagedClusterConditionAvailable";
pub(crate) const CLOCK: &str = "ManagedClusterConditionClockSynced";
/// The lease of a cluster.
pub(crate) const LEASE_NAME: &str = "managed-cluster-lease";

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// A heartbeat, as the agent of the cluster sends it.
pub(crate) async fn beat(stage: &Stage, cluster: &str, renewed: &str) -> Result<()> {
    let renewed = json!({"spec": {"renewTime": renewed}});
    stage.patch(LEASE, Some(cluster), LEASE_NAME, renewed).await
}

/// A time as a lease has it.
pub(crate) fn lease_time(seconds: i64) -> String {
    format_rfc3339(seconds).replace('Z', ".000000Z")
}

/// The time so many seconds from now, as a lease has it.
pub(crate) fn from_now(seconds: i64) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seconds = format_rfc3339(i64::try_from(now.as_secs())? + seconds);
    Ok(seconds.replace('Z', &format!(".{:06}Z", now.subsec_micros())))
}

/// Rows of `availability`: L03, L04, L06, C01, C02, C05.
#[test]
fn heartbeats_that_stop_are_noticed_and_those_that_come_wake_nobody() -> Result<()> {
    on_stage(async |stage| {
        let file = program::policy("availability");
        let words = ["--policies", &file.to_string_lossy()];
        let rights = stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let primary = "ManagedCluster one";
        agent.wait_for(primary, "Waiting ClusterNamespaceMissing")?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}});
        stage.objects().apply(namespace).await?;
        let lease = wait::until("the lease of the cluster", DEADLINE, async || {
            stage.get(LEASE, Some("one"), LEASE_NAME).await
        });
        let lease = lease.await?;
        ensure!(lease["spec"]["holderIdentity"] == LEASE_NAME, "{lease}");
        // The first heartbeat says that the clock is right.
        beat(stage, "one", "2026-11-21T07:59:00.000000Z").await?;
        let synced = condition(
            CLOCK,
            "True",
            "ManagedClusterClockSynced",
            "The clock of the managed cluster is synced with the hub.",
        );
        wait_for_condition(stage, MANAGED, "one", &synced).await?;
        // More of them wake nobody: the one reconcile is that of the last, which comes too late.
        let before = reconciles_of(&agent, "availability")?;
        for second in 1..=50 {
            beat(
                stage,
                "one",
                &format!("2026-11-21T07:59:{second:02}.000000Z"),
            )
            .await?;
        }
        beat(stage, "one", "2026-11-21T07:55:00.000000Z").await?;
        let stopped = condition(
            AVAILABLE,
            "Unknown",
            "ManagedClusterLeaseUpdateStopped",
            "Registration agent stopped updating its lease.",
        );
        wait_for_condition(stage, MANAGED, "one", &stopped).await?;
        // It came, so its clock is behind.
        let behind = condition(
            CLOCK,
            "False",
            "ManagedClusterClockOutOfSync",
            "The clock of the managed cluster is behind that of the hub.",
        );
        wait_for_condition(stage, MANAGED, "one", &behind).await?;
        agent.wait_for(primary, "Waiting ManagedClusterLeaseUpdateStopped")?;
        let woken = reconciles_of(&agent, "availability")? - before;
        ensure!((1.0..=2.0).contains(&woken), "{woken} reconciles");
        // The agent of the cluster comes back, and says that it is available.
        beat(stage, "one", "2026-11-21T07:59:59.000000Z").await?;
        stage.set_available("one", "True").await?;
        agent.wait_for(primary, "Applied InSync")?;
        let available = stage.get(MANAGED, None, "one").await?.unwrap_or_default();
        let conditions = available["status"]["conditions"].as_array().into_iter();
        let mut unknown = conditions
            .flatten()
            .filter(|one| one["status"] == "Unknown");
        ensure!(unknown.next().is_none(), "{available}");
        // Its clock is ahead, and the lease goes and is made again.
        beat(stage, "one", "2026-11-21T08:05:00.000000Z").await?;
        let ahead = condition(
            CLOCK,
            "False",
            "ManagedClusterClockOutOfSync",
            "The clock of the managed cluster is ahead of that of the hub.",
        );
        wait_for_condition(stage, MANAGED, "one", &ahead).await?;
        stage.delete(LEASE, Some("one"), LEASE_NAME).await?;
        wait::until("the lease comes back", DEADLINE, async || {
            let again = stage.get(LEASE, Some("one"), LEASE_NAME).await?;
            let uid = |lease: &Value| lease["metadata"]["uid"].clone();
            Ok(again.filter(|again| uid(again) != uid(&lease)).map(drop))
        })
        .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again.
        let unused = "get managedclusters, get leases, create events, patch events";
        stage.all_used_but(&rights, mark, unused)
    })
}

/// The limit of the heartbeats of a cluster with this lease duration, by default.
const SHORT: i64 = 6;
const LIMIT: i64 = 5 * SHORT;

/// Row of `availability`: L18. The heartbeat says when it is too old, and the audit log when it was told.
#[test]
fn l18_an_agent_that_starts_again_writes_nothing_and_notices_the_end_of_heartbeats_from_before()
-> Result<()> {
    on_stage(async |stage| {
        let words = ["--policies", &stage.unlimited("availability")?];
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let short = json!({"spec": {"leaseDurationSeconds": SHORT}});
        stage.patch(MANAGED, None, "one", short).await?;
        stage.objects().namespace("one").await?;
        let renewed = SystemTime::now()
            .duration_since(UNIX_EPOCH)?
            .as_secs()
            .cast_signed();
        let lease = json!({"apiVersion": LEASE.0, "kind": LEASE.1,
            "metadata": {"name": LEASE_NAME, "namespace": "one",
                "labels": {"open-cluster-management.io/cluster-name": "one"}},
            "spec": {"holderIdentity": LEASE_NAME, "renewTime": lease_time(renewed)}});
        stage.objects().apply(lease).await?;
        let first = stage.start_at_real_time(&words)?;
        first.wait_for_first_pass()?;
        first.stop()?;
        let mark = stage.mark()?;
        let agent = stage.start_at_real_time(&words)?;
        let unknown = condition(
            AVAILABLE,
            "Unknown",
            "ManagedClusterLeaseUpdateStopped",
            "Registration agent stopped updating its lease.",
        );
        wait_for_condition(stage, MANAGED, "one", &unknown).await?;
        agent.stop()?;
        let lines = stage.lines(mark).await?;
        let early = |line: &&Line| {
            let of_cluster = line.is_write() && line.resource().starts_with("managedclusters");
            of_cluster && parse_rfc3339(&line.received).is_none_or(|at| at < renewed + LIMIT)
        };
        let early: Vec<_> = lines.iter().filter(early).collect();
        ensure!(early.is_empty(), "{early:#?}");
        Ok(())
    })
}
