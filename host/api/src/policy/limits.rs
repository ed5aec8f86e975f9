//! How much a policy may change in an interval: `spec.limits`. The defaults stop an accident, such as a hub that loses
//! sight of most of its clusters, and let a first install pass: what is created is not limited.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many primaries a policy may change in an interval, by what is changed. What goes beyond is withheld until it is
/// approved, or no longer wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitsSpec {
    /// Seconds of an interval. It begins with the first change that counts, and goes on while anything is withheld.
    #[serde(default = "default_interval_seconds")]
    pub interval_seconds: u32,
    /// Primaries for which elements or fields are set in objects that others made, such as taints of a ManagedCluster.
    #[serde(default = "usual")]
    pub elements_added: LimitSpec,
    /// Primaries for which elements are removed from objects that others made.
    #[serde(default = "usual")]
    pub elements_removed: LimitSpec,
    /// Primaries for which an object that the policy made, such as a Secret, gets other content.
    #[serde(default = "usual")]
    pub objects_changed: LimitSpec,
    /// Primaries for which an object that the policy made is deleted.
    #[serde(default = "strict")]
    pub objects_pruned: LimitSpec,
}

/// The larger of a number and a share of the policy's primaries. 100 percent is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitSpec {
    /// Number of primaries.
    #[serde(default)]
    pub count: u32,
    /// Percentage of the policy's primaries.
    #[serde(default)]
    pub percent: u32,
}

crate::words! {
    // The word of each is the name of its field in `spec.limits`.
    /// What a limit counts.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
    )]
    #[serde(rename_all = "camelCase")]
    pub enum Limited {
        /// Elements or fields set in objects that others made.
        ElementsAdded = "elementsAdded",
        /// Elements removed from objects that others made.
        ElementsRemoved = "elementsRemoved",
        /// Objects that the policy made, with other content.
        ObjectsChanged = "objectsChanged",
        /// Objects that the policy made, deleted.
        ObjectsPruned = "objectsPruned",
    }
}

impl LimitSpec {
    /// How many of so many primaries it allows.
    pub fn share(self, primaries: u32) -> u32 {
        let share = u64::from(primaries) * u64::from(self.percent) / 100;
        self.count.max(u32::try_from(share).unwrap_or(u32::MAX))
    }
}

impl LimitsSpec {
    /// The longest interval, in seconds: a day.
    pub const MAX_INTERVAL_SECONDS: u32 = 86_400;

    /// The limit of something.
    pub fn of(&self, what: Limited) -> LimitSpec {
        match what {
            Limited::ElementsAdded => self.elements_added,
            Limited::ElementsRemoved => self.elements_removed,
            Limited::ObjectsChanged => self.objects_changed,
            Limited::ObjectsPruned => self.objects_pruned,
        }
    }
}

impl Default for LimitsSpec {
    fn default() -> Self {
        Self {
            interval_seconds: default_interval_seconds(),
            elements_added: usual(),
            elements_removed: usual(),
            objects_changed: usual(),
            objects_pruned: strict(),
        }
    }
}

/// Ten minutes.
fn default_interval_seconds() -> u32 {
    600
}

fn usual() -> LimitSpec {
    LimitSpec {
        count: 10,
        percent: 30,
    }
}

fn strict() -> LimitSpec {
    LimitSpec {
        count: 5,
        percent: 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_limited_explicitly_has_the_default() {
        let parse = |value| serde_json::from_value::<LimitsSpec>(value).unwrap();
        assert_eq!(parse(json!({})), LimitsSpec::default());
        let one = parse(json!({"elementsAdded": {"percent": 100}}));
        let off = LimitSpec {
            count: 0,
            percent: 100,
        };
        assert_eq!((one.elements_added, one.elements_removed), (off, usual()));
        assert_eq!(one.objects_pruned, strict());
    }
}
