//! Shared by the conformance tests: fixtures as components, and arguments for them.

pub mod arguments;
pub mod canary;
pub mod fixture;
