//! A hub whose ManagedClusters are accepted, available and untainted, made with as few writes as possible. Tells how
//! far it is, because that takes minutes.

use super::fleet::Scene;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use transom_core::time::format_rfc3339;
use transom_support::fleet::Fleet;

/// The name of the lease of every cluster.
pub(super) const LEASE_NAME: &str = "managed-cluster-lease";
/// A lease duration that no heartbeat exceeds here, in seconds.
pub(super) const LONG: i64 = 3_600;
/// How often it tells how far it is.
const PARTS: usize = 10;

/// The lease of each cluster, with its duration in seconds.
#[derive(Clone, Copy)]
pub(super) enum Lease {
    /// It is made, renewed now, in a namespace.
    Made(i64),
    /// The agent makes it, and the namespace.
    LeftToTheAgent(i64),
}

/// Creates the clusters: for each one write of its own and one of its status, and two for namespace and lease.
pub(super) async fn install(scene: &Scene, many: usize, lease: Lease) -> Result<()> {
    let change = |documents: &mut Vec<Value>| {
        let (Lease::Made(duration) | Lease::LeftToTheAgent(duration)) = lease;
        let mut names = Vec::new();
        for cluster in documents.iter_mut() {
            cluster["spec"]["leaseDurationSeconds"] = json!(duration);
            if let Some(spec) = cluster["spec"].as_object_mut() {
                spec.remove("taints");
            }
            cluster["status"]["conditions"] = conditions();
            names.push(cluster["metadata"]["name"].clone());
        }
        if let Lease::Made(_) = lease {
            documents.extend(names.iter().flat_map(home));
        }
    };
    let start = Instant::now();
    let mut told = |done: usize| {
        if done.is_multiple_of(many.div_ceil(PARTS)) || done == many {
            let seconds = start.elapsed().as_secs_f64();
            say(&format!(
                "{done} of {many} ManagedClusters made after {seconds:.0} s"
            ))?;
        }
        Ok(())
    };
    let fleet = Fleet {
        clusters: 0,
        managed: many,
        seed: 1,
    };
    let installed = scene.cluster.install_changed(fleet, &change, &mut told);
    installed.await.map(drop)
}

/// The namespace of a cluster, and a lease in it.
fn home(name: &Value) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE_NAME, "namespace": name},
            "spec": {"holderIdentity": LEASE_NAME, "renewTime": micro(now())},
        }),
    ]
}

/// The conditions of a cluster with which nothing is wrong.
pub(super) fn conditions() -> Value {
    let all = [
        "HubAcceptedManagedCluster",
        "ManagedClusterConditionAvailable",
        "ManagedClusterConditionClockSynced",
    ];
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Measured", "message": "measured", "lastTransitionTime": "2026-11-21T08:00:00Z"});
    all.map(condition).into_iter().collect()
}

/// Tells how far it is.
pub(super) fn say(what: &str) -> Result<()> {
    Ok(writeln!(io::stderr(), "    ({what})")?)
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or_default()
}

/// A time as a lease has it.
pub(super) fn micro(seconds: i64) -> String {
    format_rfc3339(seconds).replace('Z', ".000000Z")
}
