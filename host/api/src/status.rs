//! What a policy has come to, as its status shows it. Data only: made by `core::summary`, never a credential.

use crate::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most primaries that a status names.
pub const MAX_TOP_FAILURES: usize = 10;
/// The most reasons of waiting and the most watches that a status lists.
pub const MAX_LISTED: usize = 32;
/// The most bytes of a message in a status.
pub const MAX_MESSAGE: usize = 512;

/// What a policy has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Generation of the policy that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The revision that is at work; absent when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionStatus>,
    /// How many primaries are in each state.
    #[serde(default)]
    pub counts: Counts,
    /// Why primaries are held or wait, the most frequent reason first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingStatus>,
    /// The primaries to look at first: failed ones, then those that wait for longer than expected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top_failures: Vec<PrimaryStatus>,
    /// Watches that cannot be followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch_errors: Vec<WatchStatus>,
    /// `Ready`, which sums up `Loaded`, `Watched` and `Healthy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl PolicyStatus {
    /// Whether it says the same at another time: a status that differs only in times is not written.
    pub fn same_but_times(&self, other: &Self) -> bool {
        self.timeless() == other.timeless()
    }

    fn timeless(&self) -> Self {
        let mut status = self.clone();
        status.waiting.iter_mut().for_each(|waiting| waiting.since.clear());
        status.top_failures.iter_mut().for_each(|primary| primary.since.clear());
        status.conditions.iter_mut().for_each(|condition| condition.last_transition_time.clear());
        status
    }
}

/// The components of the revision that is at work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Generation of the policy that is at work; older than the observed one when a newer one was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Digest of the component that decides what.
    pub decide: String,
    /// Digest of the component that decides when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

/// How many primaries are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All of them.
    pub total: u32,
    /// What is there is what should be there.
    pub applied: u32,
    /// Left as they are on purpose.
    pub held: u32,
    /// Something is not there yet.
    pub waiting: u32,
    /// Something must be mended.
    pub failed: u32,
}

/// Primaries that are held or wait for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// Held or Waiting.
    pub state: State,
    /// Why, in one word.
    pub reason: String,
    /// How many primaries.
    pub count: u32,
    /// Since when the first of them waits.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// How long this takes when nothing is wrong; absent when it may take any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<u32>,
    /// How many wait for longer than that.
    #[serde(default)]
    pub overdue: u32,
}

/// One primary and why it is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryStatus {
    /// Namespace; absent for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Why, in one word.
    pub reason: String,
    /// What is wrong with what.
    pub message: String,
    /// Since when it is in this state for this reason.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

/// A watch that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchStatus {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Why, in one word.
    pub reason: String,
    /// What is wrong.
    pub message: String,
}

/// A condition in the shape of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its name.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Generation of the policy that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// Since when the status is what it is.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

/// Which conditions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// All of the others hold.
    Ready,
    /// The newest revision is at work.
    Loaded,
    /// Everything that the policy needs can be watched.
    Watched,
    /// No primary failed.
    Healthy,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows yet.
    Unknown,
}
