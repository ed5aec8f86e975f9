//! What the conformance tests share: fixtures as components, and arguments to put to them.
//! Never a test itself.

pub mod arguments;
pub mod canary;
pub mod fixture;
