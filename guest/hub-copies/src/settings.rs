//! The settings of the guest `hub-copies`.

use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::naming::check_places;

/// What is copied, and where.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The connection of the hub; that of the HostedCluster when absent.
    pub hub: Option<String>,
    /// The ManagedCluster of the cluster that hosts the control planes; the name of the agent's cluster when absent.
    pub hosting_cluster: Option<String>,
    /// Whether the admin kubeconfig is copied.
    pub admin_kubeconfig: bool,
    /// Whether the password of kubeadmin is copied.
    pub kubeadmin_password: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hub: None,
            hosting_cluster: None,
            admin_kubeconfig: true,
            kubeadmin_password: true,
        }
    }
}

impl Settings {
    /// Refuses names that no connection and no ManagedCluster can have, and a guest without work.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let (hub, hosting) = (self.hub.as_deref(), self.hosting_cluster.as_deref());
        let mut problems = check_places(hub, hosting);
        if !self.admin_kubeconfig && !self.kubeadmin_password {
            let why = "false like adminKubeconfig, so nothing would be copied";
            problems.push(Problem::in_settings("kubeadminPassword", why));
        }
        problems
    }
}
