//! A cluster behind the Kubernetes API: watched into a cache, written one step at a time.
//! Never decides what should be written; never holds more of an object than the policies declared.

mod connect;
mod resources;

pub use connect::{ConnectError, KubernetesOptions};
