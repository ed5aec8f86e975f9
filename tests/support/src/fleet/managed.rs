//! A ManagedCluster in one of the states of its Available condition, some with taints of a user or of an earlier state.

use super::{File, environment, hosted, minute, region};
use crate::numbers::Numbers;
use crate::template::fill;

const OBJECT: &str = include_str!("../templates/managed-cluster.yaml");

pub(super) fn file(index: usize, clusters: usize, numbers: &mut Numbers) -> File {
    let name = if index < clusters {
        hosted::managed_name(index)
    } else {
        format!("edge-{index:05}")
    };
    let values = [
        ("name", name.as_str()),
        (
            "clusterset",
            if index.is_multiple_of(4) {
                "default"
            } else {
                "fleet"
            },
        ),
        ("region", region(index)),
        ("environment", environment(index)),
        ("patch", &(index % 12).to_string()),
        ("version", &(200_000 + index).to_string()),
        ("created", &minute(index)),
        ("cluster_id", &numbers.uuid()),
        ("uid", &numbers.uuid()),
        ("taints", taints(index)),
        ("available", &available(index)),
    ];
    File {
        path: format!("managed/{name}.yaml"),
        text: fill(OBJECT, &values),
        objects: 1,
    }
}

/// Seven of ten are available; one is not, one has not reported, and one has just joined.
fn available(index: usize) -> String {
    let (status, reason, message) = match index % 10 {
        7 => (
            "False",
            "ManagedClusterKubeAPIServerUnavailable",
            "The kube-apiserver is not ok, status code: 503",
        ),
        8 => (
            "Unknown",
            "ManagedClusterLeaseUpdateStopped",
            "Registration agent stopped updating its lease.",
        ),
        9 => return String::new(),
        _ => (
            "True",
            "ManagedClusterAvailable",
            "Managed cluster is available",
        ),
    };
    let time = minute(index + 31);
    format!(
        "\n  - lastTransitionTime: \"{time}\"\n    message: \"{message}\"\n    reason: {reason}\n    status: \"{status}\"\n    type: ManagedClusterConditionAvailable"
    )
}

/// A user's own taint that must stay, or an outdated one that must go.
fn taints(index: usize) -> &'static str {
    match index % 10 {
        4 | 7 => {
            "\n  taints:\n  - effect: NoSelect\n    key: maintenance.example.com/window\n    timeAdded: \"2026-02-01T04:00:00Z\"\n    value: sunday"
        }
        2 => {
            "\n  taints:\n  - effect: NoSelect\n    key: cluster.open-cluster-management.io/unreachable\n    timeAdded: \"2026-02-01T03:00:00Z\""
        }
        _ => "",
    }
}
