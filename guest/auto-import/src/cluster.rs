//! The content of a ManagedCluster: what a hosted cluster is imported with, and what others may change afterwards.

use serde::Deserialize;
use std::collections::BTreeMap;
use transom_guest::kinds::{
    HOSTED_CLUSTER, MANAGED_CLUSTER, ManagedCluster, ManagedClusterSpec, Metadata, SOURCE_PATH,
};
use transom_guest::naming::{ANNOTATION_PATH, IMPORTED, IMPORTED_PATH};
use transom_guest::objects::Desired;
use transom_guest::{ObjectRef, Primary, Read, make};

/// What is read of both kinds, that of the primary first.
pub(crate) const READS: [Read; 2] = [
    HOSTED_CLUSTER.read(&["metadata.labels", ANNOTATION_PATH, IMPORTED_PATH]),
    MANAGED_CLUSTER.read(&[
        "metadata.labels",
        SOURCE_PATH,
        "spec.hubAcceptsClient",
        "spec.leaseDurationSeconds",
    ]),
];
/// The label of an object that a policy made.
const MADE: &str = "transom.dev/policy";
/// The annotation that says that the agents of a cluster run on another one, and the one that names it.
const DEPLOY_MODE: &str = "import.open-cluster-management.io/klusterlet-deploy-mode";
const HOSTING_CLUSTER: &str = "import.open-cluster-management.io/hosting-cluster-name";
/// The hub finds out by itself.
const AUTO_DETECT: &str = "auto-detect";
/// Labels with these domains, or domains below them, belong to systems: they decide about rights, sets and nodes, and
/// whoever labels a HostedCluster does not decide about these. By those of the last three a system knows its objects:
/// it would remove a ManagedCluster that nobody gave it, or leave it out of a backup.
const SYSTEMS: [&str; 7] = [
    "open-cluster-management.io",
    "kubernetes.io",
    "k8s.io",
    "transom.dev",
    "argoproj.io",
    "fluxcd.io",
    "velero.io",
];
/// Labels without a domain that the hub sets from what it finds out, or that make a cluster the hub's own.
const SYSTEM_LABELS: [&str; 4] = [
    "clusterID",
    "local-cluster",
    "openshiftVersion",
    "openshiftVersion-major",
];

/// What is read of the HostedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Hosted {
    metadata: Metadata,
}

impl Hosted {
    /// The managed cluster as which it was imported. An empty note is none, as for the guest that detaches.
    pub(crate) fn imported_as(&self) -> Option<&str> {
        let note = self.metadata.annotations.get(IMPORTED);
        note.map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// Whether a policy made a ManagedCluster or adopted it, and not for another HostedCluster.
pub(crate) fn is_made_for(cluster: &ManagedCluster, primary: &Primary) -> bool {
    let metadata = &cluster.metadata;
    metadata.labels.contains_key(MADE) && metadata.is_made_for(primary) != Some(false)
}

/// The ManagedCluster. Of one that is there already, what people and the hub change stays: acceptance,
/// lease, and the labels that are found out later.
pub(crate) fn wanted(
    cluster: &ObjectRef,
    hosting_cluster: &str,
    hosted: &Hosted,
    there: Option<&ManagedCluster>,
) -> Desired {
    let new = ManagedClusterSpec {
        hub_accepts_client: Some(true),
        lease_duration_seconds: Some(60),
    };
    let spec = there.map_or(&new, |there| &there.spec);
    make::ManagedCluster::of(cluster)
        .labels(labels(&cluster.name, hosted, there))
        .annotation(DEPLOY_MODE, "Hosted")
        .annotation(HOSTING_CLUSTER, hosting_cluster)
        .annotation("open-cluster-management/created-via", "hypershift")
        .accepts(spec.hub_accepts_client)
        .lease_seconds(spec.lease_duration_seconds)
        .whole()
}

/// The labels of the HostedCluster that are not those of systems, and the three that every managed cluster has.
fn labels(name: &str, hosted: &Hosted, there: Option<&ManagedCluster>) -> BTreeMap<String, String> {
    let copied = hosted.metadata.labels.iter();
    let copied = copied.filter(|(key, _)| !is_of_system(key));
    let mut labels: BTreeMap<_, _> = copied
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for key in ["cloud", "vendor"] {
        let found = match there {
            Some(there) => there.metadata.labels.get(key).cloned(),
            None => Some(AUTO_DETECT.to_owned()),
        };
        if let Some(found) = found {
            labels.entry(key.to_owned()).or_insert(found);
        }
    }
    labels.insert("name".to_owned(), name.to_owned());
    labels
}

fn is_of_system(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return SYSTEM_LABELS.contains(&key);
    };
    SYSTEMS.iter().any(|system| {
        let above = domain.strip_suffix(system);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::is_of_system;

    #[test]
    fn labels_of_systems_are_known_by_their_domain() {
        for key in [
            "cluster.open-cluster-management.io/clusterset",
            "open-cluster-management.io/x",
            "app.kubernetes.io/managed-by",
            "topology.k8s.io/zone",
            "transom.dev/policy",
            "argocd.argoproj.io/instance",
            "kustomize.toolkit.fluxcd.io/name",
            "velero.io/exclude-from-backup",
            "local-cluster",
        ] {
            assert!(is_of_system(key), "{key}");
        }
        for key in [
            "env",
            "example.com/local-cluster",
            "example.com/env",
            "notk8s.io/x",
            "k8s.io",
            "k8s.io.example.com/x",
        ] {
            assert!(!is_of_system(key), "{key}");
        }
    }
}
