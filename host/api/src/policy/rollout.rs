//! How a new revision of a policy becomes active.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fewest and the most revisions that are kept.
pub const HISTORY: (u32, u32) = (2, 50);

/// How a new revision of a policy becomes active. A change of a component, its settings, the primaries, a grant,
/// ownership, the budget or `replaces` is a new revision; a change of other fields alone counts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutSpec {
    /// When the candidate becomes active.
    #[serde(default)]
    pub mode: ModeSpec,
    /// How many revisions are kept for a rollback, 2 to 50; fewer when more than 1 MiB of manifests would be kept.
    #[serde(default = "default_history")]
    pub history: u32,
    /// When the agent rolls back a revision that has become active.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub rollback: RollbackSpec,
}

/// When the agent rolls back a revision that has become active: while it is watched, at least the larger of `count` and
/// `percent` more primaries fail than before, by a fault of its guest or because its plan differs from the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RollbackSpec {
    /// Seconds for which the new revision is watched, from a minute to a day. A change applies to revisions that become
    /// active after it.
    #[serde(default = "default_window")]
    pub window_seconds: u32,
    /// Number of primaries, at least 1.
    #[serde(default = "default_level")]
    pub count: u32,
    /// Percentage of the policy's primaries.
    #[serde(default = "default_level")]
    pub percent: u32,
}

impl RollbackSpec {
    /// The shortest and the longest time for which a revision is watched, in seconds.
    pub const WINDOW: (u32, u32) = (60, 86_400);
}

impl Default for RollbackSpec {
    fn default() -> Self {
        Self {
            window_seconds: default_window(),
            count: default_level(),
            percent: default_level(),
        }
    }
}

/// Ten minutes.
fn default_window() -> u32 {
    600
}

fn default_level() -> u32 {
    1
}

/// Omits the default, so that an older agent, which does not know the field, can read the revision.
fn is_usual(rollback: &RollbackSpec) -> bool {
    *rollback == RollbackSpec::default()
}

fn default_history() -> u32 {
    10
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            mode: ModeSpec::default(),
            history: default_history(),
            rollback: RollbackSpec::default(),
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
    /// Never: it is compared with the objects again and again. Nothing is written, also not by the revision that was
    /// active.
    Shadow,
}
