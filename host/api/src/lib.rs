//! The API that Kubernetes users see: policy, conditions, labels, and one table of reasons with their classes.
//! Data types only: no client, no async runtime.

pub mod crd;
pub mod labels;
pub mod policy;
pub mod reason;
pub mod status;
mod words;

pub use reason::{KnownReason, Reason, State};

/// Group of the agent's kinds.
pub const GROUP: &str = "transom.dev";
/// The kind of a policy.
pub const KIND: &str = "FleetPolicy";
/// Group and version of the agent's kinds.
pub const API_VERSION: &str = "transom.dev/v1alpha1";
