//! The settings of the guest `cluster-access`.

use serde::Deserialize;

/// The settings. By default a denial takes away the renewal of certificates as well.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Whether the agent of a denied cluster may still renew its certificate.
    pub denied_may_renew: bool,
}
