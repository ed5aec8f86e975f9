//! The primaries of a policy whose guest fails by its own fault, and when what was applied for them expires.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The primaries whose guest fails by its own fault. Their applied state has not been updated since the failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingStatus {
    /// Number of primaries.
    pub primaries: u32,
    /// Number of them that have failed for at least `spec.onFailure.staleAfterSeconds`.
    pub expired: u32,
    /// Since when the first of them fails.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// When the next of them expires; absent when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expires: Option<String>,
}
