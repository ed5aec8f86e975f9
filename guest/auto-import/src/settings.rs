//! The settings of the guest `auto-import`.

use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::naming::{Naming, check_places};

/// Where and under which names clusters are imported.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The connection of the hub; that of the HostedCluster when absent.
    pub hub: Option<String>,
    /// The ManagedCluster of the cluster that hosts the control planes; the name of the agent's cluster when absent.
    pub hosting_cluster: Option<String>,
    /// The name of the managed cluster, as for the guest `kubeconfig`.
    pub naming: Naming,
    /// Which add-ons a KlusterletAddonConfig asks for; none is made when absent.
    pub addons: Option<Addons>,
}

/// Which add-ons a KlusterletAddonConfig asks for.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Addons {
    /// `spec.applicationManager`.
    pub application_manager: bool,
    /// `spec.certPolicyController`.
    pub cert_policy_controller: bool,
    /// `spec.policyController`.
    pub policy_controller: bool,
    /// `spec.searchCollector`.
    pub search_collector: bool,
}

impl Default for Addons {
    fn default() -> Self {
        Self {
            application_manager: true,
            cert_policy_controller: true,
            policy_controller: true,
            search_collector: true,
        }
    }
}

impl Settings {
    /// Refuses names that no connection and no ManagedCluster can have.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let (hub, hosting) = (self.hub.as_deref(), self.hosting_cluster.as_deref());
        let mut problems = check_places(hub, hosting);
        problems.extend(self.naming.check("naming"));
        problems
    }
}
