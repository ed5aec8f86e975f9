//! Faults under all policies of a hub, while its clusters come, are accepted, denied and go.

use crate::access::{PREFIX, accept};
use crate::availability::{CLOCK, beat, from_now};
use crate::copying::HUB;
use crate::disturbed::{Life, deprived, failed, killed, plain, succeeded};
use crate::spoke::{AVAILABLE, HUB_CRDS, SET_CRDS, UNREACHABLE, says};
use crate::stage::{MANAGED, NAMESPACE, Stage};
use crate::together::{ADDON, WORK, addon_is_well, put_all};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use transom_e2e::size::Size;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ACCEPTED: &str = "HubAcceptedManagedCluster";
const ACCEPTED_ON: &str = "open-cluster-management.io/automatically-accepted-on";

/// The ManagedClusters of a hub.
struct Registered;

/// What becomes of a cluster in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Accepted,
    Denied,
    Unreachable,
    Gone,
}

/// A ManagedCluster whose agent says that it is available or not; it may be there already.
async fn put(stage: &Stage, name: &str, available: &str) -> Result<()> {
    // Its agent beats once, which has to last for the whole test.
    let body = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": name},
        "spec": {"leaseDurationSeconds": 600}});
    stage.objects().apply(body).await?;
    let cluster = stage.objects().get(MANAGED, (None, name)).await?;
    let mut status = match &cluster["status"] {
        Value::Null => json!({}),
        status => status.clone(),
    };
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|one| one["type"] != AVAILABLE);
    all.push(
        json!({"type": AVAILABLE, "status": available, "reason": "Told", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}),
    );
    status["conditions"] = json!(all);
    stage.put_status(MANAGED, None, name, &status).await
}

/// An add-on and a work of a cluster; they may be there already.
async fn furnish(stage: &Stage, name: &str) -> Result<()> {
    for (kind, object) in [(ADDON, "addon"), (WORK, "work")] {
        let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {},
            "metadata": {"name": object, "namespace": name}});
        stage.objects().apply(body).await?;
    }
    addon_is_well(stage, name).await
}

/// Whether a cluster has come to its end.
fn is_at_end(cluster: &Value, end: End) -> bool {
    let says = |status: &str| says(cluster, ACCEPTED, status);
    let is_tainted = cluster.to_string().contains(UNREACHABLE);
    match end {
        End::Accepted => says("True") && !is_tainted,
        End::Denied => says("False") && !is_tainted,
        End::Unreachable => says("True") && is_tainted,
        End::Gone => cluster.is_null(),
    }
}

impl Life for Registered {
    type End = End;

    const ENDS: [End; 4] = [End::Accepted, End::Denied, End::Unreachable, End::Gone];
    const WRITES: u64 = 4;

    async fn prepare(&self, stage: &Stage, folder: &Path) -> Result<()> {
        for crds in [&HUB_CRDS, &SET_CRDS] {
            stage.cluster.install_crds(crds).await?;
        }
        stage.objects().namespace(HUB).await?;
        put_all(folder, None).map(drop)
    }

    async fn begin(&self, stage: &Stage, name: &str) -> Result<()> {
        put(stage, name, "True").await
    }

    async fn settle(&self, stage: &Stage, name: &str) -> Result<()> {
        let accepted = |cluster: &Value| says(cluster, ACCEPTED, "True");
        let came = stage.objects().wait_for(MANAGED, (None, name), accepted);
        came.await.map(drop)
    }

    async fn disturb(&self, stage: &Stage, name: &str, number: u64) -> Result<()> {
        match number % 6 {
            0 => put(stage, name, "True").await,
            1 => put(stage, name, "Unknown").await,
            2 => accept(stage, name, true).await,
            3 => accept(stage, name, false).await,
            4 => furnish(stage, name).await,
            _ => stage.delete(MANAGED, None, name).await,
        }
    }

    /// First all are accepted.
    async fn finish(&self, stage: &Stage, name: &str, end: End) -> Result<()> {
        let objects = stage.objects();
        let stays = |cluster: &Value| cluster["metadata"]["deletionTimestamp"].is_null();
        objects.wait_for(MANAGED, (None, name), stays).await?;
        put(stage, name, "True").await?;
        accept(stage, name, true).await?;
        let lease = ("coordination.k8s.io/v1", "Lease");
        let place = (Some(name), "managed-cluster-lease");
        objects.wait_for(lease, place, Value::is_object).await?;
        // Whatever the clock said when the Lease was made.
        beat(stage, name, &from_now(0)?).await?;
        // Before that a rule would accept it once more, and a denial would deny what never was accepted.
        let is_accepted = |cluster: &Value| {
            cluster["metadata"]["annotations"][ACCEPTED_ON].is_string()
                && says(cluster, ACCEPTED, "True")
                // Told of clusters that are available, and kept of others.
                && says(cluster, CLOCK, "True")
        };
        let came = objects.wait_for(MANAGED, (None, name), is_accepted);
        came.await?;
        // Those of an earlier life remember it.
        for (kind, object) in [(ADDON, "addon"), (WORK, "work")] {
            stage.delete(kind, Some(name), object).await?;
        }
        if end != End::Denied {
            furnish(stage, name).await?;
        }
        match end {
            End::Accepted => Ok(()),
            End::Denied => accept(stage, name, false).await,
            End::Unreachable => put(stage, name, "Unknown").await,
            End::Gone => stage.delete(MANAGED, None, name).await,
        }
    }

    async fn ended(&self, stage: &Stage, name: &str, end: End) -> Result<()> {
        let right = |cluster: &Value| is_at_end(cluster, end);
        let came = stage.objects().wait_for(MANAGED, (None, name), right);
        came.await?;
        if end == End::Accepted {
            // What was decided before the agent saw that the cluster is reachable may have been written after the
            // add-on said that it is well. An add-on says so again and again.
            addon_is_well(stage, name).await?;
        }
        Ok(())
    }

    async fn state(&self, stage: &Stage, name: &str, _: End) -> Result<Value> {
        let objects = stage.objects();
        let role = format!("{PREFIX}{name}");
        let bindings = ["registration", "work"].map(|what| format!("{role}:{what}"));
        let here = Some(name);
        let mut all = Vec::new();
        for (kind, place) in [
            (MANAGED, (None, name)),
            (NAMESPACE, (None, name)),
            ((RBAC, "ClusterRole"), (None, &*role)),
            ((RBAC, "ClusterRoleBinding"), (None, &*role)),
            ((RBAC, "RoleBinding"), (here, &*bindings[0])),
            ((RBAC, "RoleBinding"), (here, &*bindings[1])),
            (
                ("coordination.k8s.io/v1", "Lease"),
                (here, "managed-cluster-lease"),
            ),
            (ADDON, (here, "addon")),
            (WORK, (here, "work")),
        ] {
            let mut object = plain(objects.get(kind, place).await?);
            if let Some(notes) = object.pointer_mut("/metadata/annotations") {
                notes.as_object_mut().map(|notes| notes.remove(ACCEPTED_ON));
            }
            all.push(object);
        }
        Ok(json!(all))
    }
}

#[test]
fn an_agent_of_a_hub_killed_at_any_moment_leaves_consistent_state() -> Result<()> {
    killed(&Registered, 12, 8)
}

#[test]
#[ignore = "takes minutes: cargo xtask soak hub_faults"]
fn soak() -> Result<()> {
    let size = Size::given(100, 40)?;
    killed(&Registered, size.rounds, size.clusters)
}

#[test]
fn a_hub_recovers_from_wrong_answers_conflicts_and_the_end_of_its_api_server() -> Result<()> {
    failed(&Registered)
}

#[test]
fn a_hub_recovers_from_rights_and_a_clock_that_come_and_go() -> Result<()> {
    deprived(&Registered)
}

#[test]
fn a_hub_survives_swaps_of_all_guests_and_ends_of_its_leader() -> Result<()> {
    succeeded(&Registered)
}
