//! The settings of the guest `detach`.

use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::naming::{Naming, check_places};

/// The most seconds that a setting may have: a week.
const WEEK: u32 = 7 * 86_400;

/// Which clusters are detached, and what is done about a Klusterlet that does not go.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The connection of the hub; that of the HostedCluster when absent.
    pub hub: Option<String>,
    /// The ManagedCluster of the cluster that hosts the control planes; the name of the agent's cluster when absent.
    pub hosting_cluster: Option<String>,
    /// The name of the managed cluster, as for the guest `kubeconfig`.
    pub naming: Naming,
    /// Whether a HostedCluster that has a ManagedCluster stays until it is detached; the policy grants the finalizer.
    pub finalizer: bool,
    /// After how many seconds a Klusterlet that is being deleted counts as stuck.
    pub stuck_after_seconds: u32,
    /// Whether the finalizers that the policy grants are taken off a Klusterlet that is stuck.
    pub take_finalizers: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hub: None,
            hosting_cluster: None,
            naming: Naming::default(),
            finalizer: true,
            stuck_after_seconds: 600,
            take_finalizers: false,
        }
    }
}

impl Settings {
    /// Refuses names that no connection and no ManagedCluster can have, and times out of range.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let (hub, hosting) = (self.hub.as_deref(), self.hosting_cluster.as_deref());
        let mut problems = check_places(hub, hosting);
        if !(1..=WEEK).contains(&self.stuck_after_seconds) {
            let why = "is not from 1 to 604800";
            problems.push(Problem::in_settings("stuckAfterSeconds", why));
        }
        problems.extend(self.naming.check("naming"));
        problems
    }
}
