//! The two kinds of cluster: one behind a Kubernetes API server, and one that is a directory of manifests.
//! Both watch, read and write objects and publish status. The core decides what to write.

mod cluster;
pub mod directory;
pub mod kubernetes;
pub mod parallel;
mod read;
mod review;

pub use cluster::{AccessVerdict, Cluster, KeptStatuses, Patience, ReadResult, apply};
pub use read::ReadFailure;
