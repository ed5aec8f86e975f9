//! How a new revision of a policy becomes active.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fewest and the most revisions that are kept.
pub const HISTORY: (u32, u32) = (2, 50);

/// How a new revision of a policy becomes active. A change of a component, its settings, a grant, ownership or the
/// budget is a new revision; other fields count at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutSpec {
    /// When the candidate becomes active.
    #[serde(default)]
    pub mode: ModeSpec,
    /// How many revisions are kept for a rollback, 2 to 50.
    #[serde(default = "default_history")]
    pub history: u32,
}

fn default_history() -> u32 {
    10
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            mode: ModeSpec::default(),
            history: default_history(),
        }
    }
}

/// When a candidate becomes active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModeSpec {
    /// As soon as it has passed all gates. The first revision of a policy is active at once.
    #[default]
    Automatic,
    /// After it has passed all gates and its plan was approved; the first revision as well.
    Preview,
    /// Never: it is compared with the objects again and again. Nothing is written, also not by the revision that was active.
    Shadow,
}
