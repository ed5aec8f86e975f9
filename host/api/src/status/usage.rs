//! How much of its budget a policy uses: `status.usage`.

use crate::policy::Budgeted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From this share on, in percent, use alone is reason enough to write a status.
const NEAR: u32 = 50;

/// How much of one budget the calls of the active revision used, in percent. Each share is rounded up to one of
/// 0, 1, 2, 5, 10, 20, 50 or 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    /// The budget, as `spec.budget` names it.
    pub budget: Budgeted,
    /// What half of the calls did not exceed.
    pub p50: u32,
    /// What 99 of 100 calls did not exceed.
    pub p99: u32,
    /// What no call exceeded.
    pub max: u32,
}

impl UsageStatus {
    /// The same without shares that are far from the budget, or nothing.
    pub(super) fn near(self) -> Option<Self> {
        let near = |share: u32| if share < NEAR { 0 } else { share };
        (self.max >= NEAR).then_some(Self {
            p50: near(self.p50),
            p99: near(self.p99),
            ..self
        })
    }
}
