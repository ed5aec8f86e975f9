//! The binary `transom` at work on real folders, for the tests beside this crate and `cargo xtask soak`.
//! Never looks into the agent: what it does is judged by its exit codes, its output and the files that it leaves.

pub mod agent;
pub mod bound;
pub mod canary;
pub mod crash;
pub mod fuzz;
pub mod http;
pub mod program;
pub mod prometheus;
pub mod secret;
pub mod stage;
pub mod swap;
pub mod tree;
