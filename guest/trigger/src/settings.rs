//! The settings of the guest `trigger`.

use serde::Deserialize;
use transom_guest::Problem;

/// When a HostedCluster is ready, and which changes call for a reconcile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The reason that the condition Available must have, besides the status True; any reason when absent.
    pub available_reason: Option<String>,
    /// Whether a HostedCluster that `spec.pausedUntil` pauses for HyperShift counts as not ready.
    pub honour_paused_until: bool,
    /// Which changes call for a reconcile.
    pub on: Changes,
}

/// The changes that call for a reconcile; all of them by default, except those of labels.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Changes {
    /// It becomes available, or is no longer available.
    pub availability: bool,
    /// Any annotation is added, changed or removed.
    pub annotations: bool,
    /// Any label is added, changed or removed; off by default.
    pub labels: bool,
    /// `status.kubeconfig` is set, unset or names another secret.
    pub kubeconfig: bool,
    /// `status.kubeadminPassword` is set, unset or names another secret.
    pub kubeadmin_password: bool,
    /// `status.version.history` differs, or is present for the first time.
    pub version_history: bool,
    /// Its deletion starts.
    pub deletion: bool,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            availability: true,
            annotations: true,
            labels: false,
            kubeconfig: true,
            kubeadmin_password: true,
            version_history: true,
            deletion: true,
        }
    }
}

impl Settings {
    /// Refuses an empty reason, which no condition can have.
    pub(crate) fn check(&self) -> Vec<Problem> {
        match self.available_reason.as_deref() {
            Some("") => vec![Problem::in_settings(
                "availableReason",
                "empty; leave it out to accept any reason",
            )],
            _ => Vec::new(),
        }
    }
}
