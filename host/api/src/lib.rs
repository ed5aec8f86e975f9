//! The vocabulary that Kubernetes sees: policy, conditions, reasons, labels.
//! Data only: never a client, never an async runtime, never a decision.

pub mod crd;
pub mod labels;
pub mod policy;
pub mod reason;
pub mod status;

pub use reason::{Reason, State, KnownReason};

/// Group of the agent's kinds.
pub const GROUP: &str = "transom.dev";
/// The kind of a policy.
pub const KIND: &str = "FleetPolicy";
/// Group and version of the agent's kinds.
pub const API_VERSION: &str = "transom.dev/v1alpha1";
