//! What the limits of a policy withhold, and what lets it go on.

use crate::policy::Limited;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of withheld primaries in a status.
pub const MAX_WITHHELD: usize = 10;

/// What the limits of a policy withhold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitsStatus {
    /// When the interval began.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// When it ends, unless something is withheld then.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// What was changed in this interval, and what is withheld.
    pub changes: Vec<ChangesStatus>,
    /// Number of primaries for which something is withheld.
    pub withheld: u32,
    /// The first of these primaries, with their namespace if they have one.
    pub primaries: Vec<String>,
    /// The digest to approve (`transom approve`) to let as many more pass in this interval as are withheld now.
    pub approve: String,
}

impl LimitsStatus {
    /// The limits that withhold something, for people: `elementsAdded 10 of 10, objectsPruned 5 of 5`.
    pub fn reached(&self) -> String {
        let reached = self.changes.iter().filter(|one| one.withheld > 0);
        let texts =
            reached.map(|one| format!("{} {} of {}", one.limit.as_str(), one.done, one.most));
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// What was changed in an interval, of one kind of change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangesStatus {
    /// The field of `spec.limits`.
    pub limit: Limited,
    /// Number of primaries for which this was changed.
    pub done: u32,
    /// Number of primaries for which this may be changed.
    pub most: u32,
    /// Number of primaries for which this is withheld.
    pub withheld: u32,
}
