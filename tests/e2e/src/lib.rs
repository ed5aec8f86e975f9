//! The binary `transom` running on real folders, for the tests beside this crate and `cargo xtask soak`. Treats the
//! agent as a black box: checks its exit codes, its output and its files.

pub mod agent;
pub mod asking;
pub mod bound;
pub mod browser;
pub mod canary;
pub mod crash;
pub mod fixture;
pub mod forged;
pub mod fuzz;
pub mod http;
pub mod load;
pub mod program;
pub mod prometheus;
pub mod secret;
pub mod size;
pub mod stage;
pub mod swap;
pub mod tree;
