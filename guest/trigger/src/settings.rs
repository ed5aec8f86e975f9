//! The settings of the guest `trigger`. Never says what they lead to.

use serde::Deserialize;
use transom_guest::Problem;

/// What makes a HostedCluster ready, and which changes count.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The reason that the condition Available must have beside the status True; any, when absent.
    pub available_reason: Option<String>,
    /// Whether a HostedCluster that `spec.pausedUntil` pauses for HyperShift is not ready either.
    pub honour_paused_until: bool,
    /// Which changes call for a reconcile.
    pub on: Changes,
}

/// Each change that calls for a reconcile; all of them by default.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Changes {
    /// It becomes ready, or it was and is not any more.
    pub availability: bool,
    /// Any annotation is added, changed or removed.
    pub annotations: bool,
    /// `status.kubeconfig` is set, unset or names another secret.
    pub kubeconfig: bool,
    /// The same of `status.kubeadminPassword`.
    pub kubeadmin_password: bool,
    /// `status.version.history` differs, be it that it is there for the first time.
    pub version_history: bool,
    /// Its deletion starts.
    pub deletion: bool,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            availability: true,
            annotations: true,
            kubeconfig: true,
            kubeadmin_password: true,
            version_history: true,
            deletion: true,
        }
    }
}

impl Settings {
    /// An empty reason can never be met.
    pub(crate) fn check(&self) -> Vec<Problem> {
        match self.available_reason.as_deref() {
            Some("") => vec![Problem::in_settings("availableReason", "empty; leave it out to accept any reason")],
            _ => Vec::new(),
        }
    }
}
