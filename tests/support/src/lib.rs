//! What tests and tools share: a generated fleet of manifests, its identities, and waiting for a state.
//! Never used by what ships.

pub mod fleet;
pub mod identity;
pub mod numbers;
mod template;
pub mod wait;
