//! Which controllers of others a policy replaces, so that its status tells while one of them still runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A controller that does what the policy does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplacesSpec {
    /// Name of the Lease by which its replicas elect their leader, in any namespace. The controller runs while somebody
    /// holds and renews it.
    pub lease: String,
}
