//! The rules of the roles, as Open Cluster Management has them: also in its order, so that its roles can be taken over.

use transom_guest::make::Rule;

const CLUSTERS: &str = "cluster.open-cluster-management.io";

/// One rule of a role.
fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Rule {
    Rule::new(&[group], resources, verbs)
}

/// The same for one ManagedCluster.
fn of_cluster(cluster: &str, resource: &str, verbs: &[&str]) -> Rule {
    rule(CLUSTERS, &[resource], verbs).named(&[cluster])
}

/// What an agent needs to renew its certificate: it makes a request, and gets the certificate from it.
fn renews() -> [Rule; 2] {
    let verbs = ["create", "get", "list", "watch"];
    [
        rule(
            "certificates.k8s.io",
            &["certificatesigningrequests"],
            &verbs,
        ),
        rule(
            "register.open-cluster-management.io",
            &["managedclusters/clientcertificates"],
            &["renew"],
        ),
    ]
}

/// What the agents of an accepted cluster may do on the whole hub.
pub(crate) fn of_accepted(cluster: &str) -> Vec<Rule> {
    let own = [
        of_cluster(
            cluster,
            "managedclusters",
            &["get", "list", "update", "watch"],
        ),
        of_cluster(cluster, "managedclusters/status", &["patch", "update"]),
    ];
    renews().into_iter().chain(own).collect()
}

/// The same for one that was denied.
pub(crate) fn of_denied(cluster: &str, may_renew: bool) -> Vec<Rule> {
    let reads = of_cluster(cluster, "managedclusters", &["get", "list", "watch"]);
    let renews = may_renew.then(renews).into_iter().flatten();
    renews.chain([reads]).collect()
}

/// What registration agents may do in the namespace of their cluster.
pub(crate) fn of_registration() -> Vec<Rule> {
    const ADDONS: &str = "addon.open-cluster-management.io";
    vec![
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "watch", "update"],
        ),
        rule(ADDONS, &["managedclusteraddons"], &["get", "list", "watch"]),
        rule(
            ADDONS,
            &["managedclusteraddons/status"],
            &["patch", "update"],
        ),
        rule("events.k8s.io", &["events"], &["create"]),
    ]
}

/// What work agents may do there.
pub(crate) fn of_work() -> Vec<Rule> {
    const WORKS: &str = "work.open-cluster-management.io";
    vec![
        Rule::new(
            &["", "events.k8s.io"],
            &["events"],
            &["create", "patch", "update"],
        ),
        rule(
            WORKS,
            &["manifestworks"],
            &["get", "list", "watch", "update", "patch"],
        ),
        rule(WORKS, &["manifestworks/status"], &["patch", "update"]),
    ]
}
