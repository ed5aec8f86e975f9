//! Plural names and scopes of kinds, as RBAC needs them, without asking a cluster.

/// A kind in the terms of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Plural name: `secrets`.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// Group, kind, plural, and whether it is namespaced.
const KNOWN: &[(&str, &str, &str, bool)] = &[
    ("", "ConfigMap", "configmaps", true),
    ("", "Endpoints", "endpoints", true),
    ("", "Namespace", "namespaces", false),
    ("", "Node", "nodes", false),
    ("", "PersistentVolume", "persistentvolumes", false),
    ("", "Pod", "pods", true),
    ("", "Secret", "secrets", true),
    ("", "Service", "services", true),
    ("", "ServiceAccount", "serviceaccounts", true),
    (
        "addon.open-cluster-management.io",
        "ClusterManagementAddOn",
        "clustermanagementaddons",
        false,
    ),
    (
        "addon.open-cluster-management.io",
        "ManagedClusterAddOn",
        "managedclusteraddons",
        true,
    ),
    ("apps", "Deployment", "deployments", true),
    (
        "cluster.open-cluster-management.io",
        "ManagedCluster",
        "managedclusters",
        false,
    ),
    (
        "cluster.open-cluster-management.io",
        "ManagedClusterSet",
        "managedclustersets",
        false,
    ),
    ("config.openshift.io", "Ingress", "ingresses", false),
    (
        "hypershift.openshift.io",
        "HostedCluster",
        "hostedclusters",
        true,
    ),
    (
        "hypershift.openshift.io",
        "HostedControlPlane",
        "hostedcontrolplanes",
        true,
    ),
    ("hypershift.openshift.io", "NodePool", "nodepools", true),
    ("networking.k8s.io", "Ingress", "ingresses", true),
    (
        "operator.open-cluster-management.io",
        "ClusterManager",
        "clustermanagers",
        false,
    ),
    (
        "operator.open-cluster-management.io",
        "Klusterlet",
        "klusterlets",
        false,
    ),
    (
        "work.open-cluster-management.io",
        "AppliedManifestWork",
        "appliedmanifestworks",
        false,
    ),
    (
        "work.open-cluster-management.io",
        "ManifestWork",
        "manifestworks",
        true,
    ),
];

/// A kind whose plural and scope are known without asking a cluster.
pub fn known(group: &str, kind: &str) -> Option<Kind> {
    let found = KNOWN
        .iter()
        .find(|(in_group, name, ..)| *in_group == group && *name == kind);
    found.map(|(_, _, plural, namespaced)| Kind {
        plural: (*plural).to_owned(),
        namespaced: *namespaced,
    })
}

/// The most likely plural of a kind: `policies`, `classes`, `widgets`. Its scope is unknown and counts as namespaced.
pub fn guess(kind: &str) -> Kind {
    let lower = kind.to_ascii_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if lower.ends_with(['s', 'x', 'z']) || lower.ends_with("ch") || lower.ends_with("sh") => {
            format!("{lower}es")
        }
        _ => format!("{lower}s"),
    };
    Kind {
        plural,
        namespaced: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_or_guesses_plurals_of_kinds() {
        assert_eq!(
            known("", "Secret"),
            Some(Kind {
                plural: "secrets".to_owned(),
                namespaced: true
            })
        );
        assert_eq!(known("", "HostedCluster"), None);
        for (kind, plural) in [
            ("Widget", "widgets"),
            ("FleetPolicy", "fleetpolicies"),
            ("Gateway", "gateways"),
            ("StorageClass", "storageclasses"),
            ("Box", "boxes"),
        ] {
            assert_eq!(guess(kind).plural, plural);
        }
        let guessed = KNOWN
            .iter()
            .filter(|(_, kind, plural, _)| guess(kind).plural == *plural)
            .count();
        assert_eq!(
            guessed,
            KNOWN.len() - 1,
            "the guess is right but for Endpoints"
        );
    }
}
