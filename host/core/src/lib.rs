//! The decisions of the agent as pure functions over values. They do no I/O and read no clock: everything they need
//! is an argument.

// `.clippy.toml` lists what would make an answer depend on more than the arguments.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]
#![cfg_attr(test, expect(clippy::too_many_lines, reason = "long tests"))]

// A file of the tests names this crate by its name, also from inside it.
#[cfg(test)]
extern crate self as transom_core;

pub mod backoff;
pub mod cases;
pub mod catalogue;
pub mod contract;
pub mod dependencies;
pub mod digest;
pub mod document;
pub mod failure;
pub mod fingerprint;
pub mod inputs;
pub mod kubeconfig;
pub mod latest;
pub mod lease;
pub mod limits;
pub mod managed_cluster;
mod managed_keys;
pub mod metrics;
pub mod object;
pub mod observation;
pub mod own_records;
pub mod ownership;
pub mod pattern;
pub mod plan;
pub mod policy;
pub mod projection;
pub mod redact;
pub mod reference;
pub mod report;
pub mod requirements;
pub mod rights;
pub mod rollout;
#[cfg(test)]
mod sample;
pub mod share;
pub mod stamp;
pub mod summary;
pub mod time;
pub mod trigger;
pub mod warnings;
pub mod watches;
pub mod work;
pub mod world;
