//! How large a set of objects may be that a guest asks for at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How large a set may be. A larger one is refused (`TooManyInputs`), and never cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EverySpec {
    /// How many objects it may have.
    pub objects: u32,
    /// How many bytes their names and declared fields may have together. The arguments of one call have a limit, too:
    /// `argumentBytes` of the budget.
    pub bytes: u32,
}

impl EverySpec {
    /// The most objects that a policy can allow.
    pub const MAX_OBJECTS: u32 = 100_000;
    /// The most bytes.
    pub const MAX_BYTES: u32 = 64 << 20;
}

impl Default for EverySpec {
    fn default() -> Self {
        Self {
            objects: 1_000,
            bytes: 1 << 20,
        }
    }
}
