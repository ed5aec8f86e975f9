//! The decisions of the agent as pure functions over values. They do no I/O and read no clock: everything they need
//! is an argument.

pub mod backoff;
mod managed_keys;
pub mod catalogue;
pub mod ownership;
pub mod contract;
pub mod digest;
pub mod document;
pub mod failure;
pub mod inputs;
pub mod dependencies;
pub mod kubeconfig;
pub mod latest;
pub mod lease;
pub mod managed_cluster;
pub mod fingerprint;
pub mod metrics;
pub mod object;
pub mod observation;
pub mod outcome;
pub mod outputs;
pub mod pattern;
pub mod plan;
pub mod policy;
pub mod projection;
pub mod redact;
pub mod reference;
pub mod report;
pub mod requirements;
pub mod resync;
pub mod rights;
#[cfg(test)]
mod sample;
pub mod service;
pub mod share;
pub mod signal;
pub mod stamp;
pub mod summary;
pub mod time;
pub mod trigger;
pub mod warnings;
pub mod watches;
pub mod work;
