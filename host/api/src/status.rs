//! The status of a policy. `core::summary` computes it. It contains no credentials.

pub mod failing;
pub mod limits;
pub mod usage;

use crate::State;
pub use failing::FailingStatus;
pub use limits::{ChangesStatus, LimitsStatus, MAX_WITHHELD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use usage::UsageStatus;

/// Maximum number of primaries in a status.
pub const MAX_TOP_FAILURES: usize = 10;
/// Maximum number of reasons for waiting, and of watches, in a status.
pub const MAX_LISTED: usize = 32;
/// Maximum size of a message in a status, in bytes.
pub const MAX_MESSAGE: usize = 512;

/// The observed status of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Generation of the policy that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The active revision; absent when none is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionStatus>,
    /// The newest revision, while it is not active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// How many primaries are in each state.
    #[serde(default)]
    pub counts: PrimaryCounts,
    /// Why primaries are held or waiting, the most frequent reason first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingStatus>,
    /// The primaries to look at first: failed ones, then those that wait longer than expected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top_failures: Vec<PrimaryStatus>,
    /// Watches that do not work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch_errors: Vec<WatchStatus>,
    /// What `spec.limits` withholds; absent when it withholds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsStatus>,
    /// The primaries whose guest fails by its own fault; absent when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailingStatus>,
    /// How much of its budget the active revision uses; what it never used is not listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<UsageStatus>,
    /// `Ready` and its parts: `Loaded`, `Watched` and `Healthy`; `Verified`, when the policy demands signatures;
    /// `TagMoved`, while a tag of its components means something else than when it was pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl PolicyStatus {
    /// Whether both are equal except for times, and for use that is far from the budget: a status that differs only in
    /// these is not written.
    pub fn same_but_times(&self, other: &Self) -> bool {
        self.timeless() == other.timeless()
    }

    fn timeless(&self) -> Self {
        let mut status = self.clone();
        status
            .waiting
            .iter_mut()
            .for_each(|waiting| waiting.since.clear());
        let near = status.usage.into_iter().filter_map(UsageStatus::near);
        status.usage = near.collect();
        status
            .top_failures
            .iter_mut()
            .for_each(|primary| primary.since.clear());
        status
            .conditions
            .iter_mut()
            .for_each(|condition| condition.last_transition_time.clear());
        status
    }
}

/// The components of the active revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Short digest of the revision.
    #[serde(default)]
    pub id: String,
    /// Generation of the active policy; older than the observed one when a newer one was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Digest of the component that decides what to write.
    pub decide: String,
    /// Digest of the component that decides when to reconcile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

/// A revision that is not active yet: where it stands, and what it would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// Short digest of the revision; empty when it could not be loaded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Digest of the component that decides what to write; likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decide: String,
    /// Digest of the component that decides when to reconcile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// The gate that it has not passed.
    pub gate: String,
    /// Why, in one word.
    pub reason: String,
    /// Number of primaries that it was tried on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primaries: Option<u32>,
    /// Number of primaries for which it would change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<u32>,
    /// What it would change, the most frequent effect first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectStatus>,
    /// The digest that an approval has to name; absent when nothing is to be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<String>,
}

/// One effect of a candidate, and how often it would have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectStatus {
    /// Kind, path and element, and what happens to it: `ManagedCluster spec.taints example.com/x added`.
    pub effect: String,
    /// How often.
    pub count: u32,
}

/// How many primaries are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryCounts {
    /// All primaries.
    pub total: u32,
    /// Primaries whose objects match the desired state.
    pub applied: u32,
    /// Primaries that are left unchanged on purpose.
    pub held: u32,
    /// Primaries that need something that does not exist yet.
    pub waiting: u32,
    /// Primaries whose reconcile failed.
    pub failed: u32,
}

/// Primaries that are held or waiting for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// Held or Waiting.
    pub state: State,
    /// Why, in one word.
    pub reason: String,
    /// Number of primaries.
    pub count: u32,
    /// Since when the first of them has been waiting.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// How long this takes if nothing is wrong; absent if it can take any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<u32>,
    /// Number of primaries that wait longer than that.
    #[serde(default)]
    pub overdue: u32,
}

/// One primary, its state and the reason.
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
    /// What is wrong, in a sentence.
    pub message: String,
    /// Since when it has been in this state for this reason.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// Since when its guest fails by its own fault; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub failing_since: Option<String>,
    /// When its applied state becomes stale or is withdrawn, as `spec.onFailure` says; absent when it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expires: Option<String>,
}

/// A watch that does not work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchStatus {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent if all namespaces are watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Why, in one word.
    pub reason: String,
    /// What is wrong, in a sentence.
    pub message: String,
}

/// A standard Kubernetes condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Generation of the policy that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// When the status last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

/// The types of conditions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionType {
    /// `Loaded`, `Watched` and `Healthy` are true.
    Ready,
    /// The newest revision is active.
    Loaded,
    /// Everything that the policy needs is watched.
    Watched,
    /// No primary failed, and no limit is reached.
    Healthy,
    /// A tag now names another artifact in the registry than the pulled one; the active revision keeps the pulled one.
    /// Absent when no tag moved.
    TagMoved,
    /// The components of the active revision are signed as the policy demands. Absent when it demands nothing.
    Verified,
    /// The newest revision is on its way: it is loaded or tried, waits for an approval, or is read again. Absent
    /// otherwise.
    Reconciling,
    /// A controller that the policy replaces still runs. Absent when none does.
    Conflicting,
    /// The newest revision was refused, or the guest fails and `spec.onFailure.mode` is `Fail`: only a change helps.
    /// Absent otherwise.
    Stalled,
}

/// Status of a condition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionStatus {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// Not known yet.
    Unknown,
}
