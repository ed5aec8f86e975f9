//! Shared by tests and tools: a generated fleet of manifests, its identities, and waiting for a state. Not part of the
//! shipped agent.

pub mod fleet;
pub mod identity;
pub mod numbers;
pub mod wait;
