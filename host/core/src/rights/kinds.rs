//! Plural names and scopes of kinds, as RBAC needs them, without asking a cluster.

/// A kind in the terms of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Plural name: `secrets`.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// The kinds of each group: those whose objects are in namespaces, and the others.
const KNOWN: &[(&str, &[&str], &[&str])] = &[
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "Pod",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
        &["Namespace", "Node", "PersistentVolume"],
    ),
    (
        "addon.open-cluster-management.io",
        &["ManagedClusterAddOn"],
        &["ClusterManagementAddOn"],
    ),
    ("apps", &["Deployment"], &[]),
    ("certificates.k8s.io", &[], &["CertificateSigningRequest"]),
    (
        "cluster.open-cluster-management.io",
        &[],
        &["ManagedCluster", "ManagedClusterSet"],
    ),
    ("config.openshift.io", &[], &["Ingress"]),
    ("coordination.k8s.io", &["Lease"], &[]),
    (
        "hypershift.openshift.io",
        &["HostedCluster", "HostedControlPlane", "NodePool"],
        &[],
    ),
    ("networking.k8s.io", &["Ingress"], &[]),
    (
        "operator.open-cluster-management.io",
        &[],
        &["ClusterManager", "Klusterlet"],
    ),
    (
        "rbac.authorization.k8s.io",
        &["Role", "RoleBinding"],
        &["ClusterRole", "ClusterRoleBinding"],
    ),
    (
        "work.open-cluster-management.io",
        &["ManifestWork"],
        &["AppliedManifestWork"],
    ),
];

/// A kind whose plural and scope are known without asking a cluster.
pub fn known(group: &str, kind: &str) -> Option<Kind> {
    let (_, namespaced, others) = KNOWN.iter().find(|(name, ..)| *name == group)?;
    let namespaced = namespaced.contains(&kind);
    (namespaced || others.contains(&kind)).then(|| Kind {
        namespaced,
        ..guess(kind)
    })
}

/// The most likely plural of a kind: `policies`, `classes`, `widgets`, and `endpoints`, which is one. Its scope is
/// unknown and counts as namespaced.
pub fn guess(kind: &str) -> Kind {
    let lower = kind.to_ascii_lowercase();
    let plural = match lower.strip_suffix('y') {
        _ if lower == "endpoints" => lower,
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
    fn the_plurals_of_known_kinds_are_those_of_the_api_server() {
        let plurals = KNOWN.iter().flat_map(|(group, namespaced, others)| {
            let kinds = namespaced.iter().chain(*others);
            kinds.map(|kind| known(group, kind).unwrap().plural)
        });
        let mut plurals: Vec<String> = plurals.collect();
        plurals.sort();
        let expected = "appliedmanifestworks certificatesigningrequests clustermanagementaddons clustermanagers clusterrolebindings \
                        clusterroles configmaps deployments \
                        endpoints hostedclusters hostedcontrolplanes ingresses ingresses \
                        klusterlets leases managedclusteraddons managedclusters managedclustersets manifestworks \
                        namespaces nodepools nodes persistentvolumes pods rolebindings roles \
                        secrets serviceaccounts services";
        assert_eq!(plurals.join(" "), expected);
    }

    #[test]
    fn knows_or_guesses_plurals_of_kinds() {
        let kind = |plural: &str, namespaced| {
            Some(Kind {
                plural: plural.to_owned(),
                namespaced,
            })
        };
        assert_eq!(known("", "Secret"), kind("secrets", true));
        assert_eq!(known("", "Endpoints"), kind("endpoints", true));
        assert_eq!(
            known("config.openshift.io", "Ingress"),
            kind("ingresses", false)
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
    }
}
