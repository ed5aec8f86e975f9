//! The rules of this workspace that a program can hold, as functions from values to findings.
//! Never changes a file; `tests/workspace.rs` applies each rule to the real tree.

pub mod code;
pub mod dependencies;
pub mod exceptions;
pub mod finding;
pub mod first_line;
pub mod forbidden;
pub mod frozen;
pub mod manifests;
pub mod names;
pub mod packages;
pub mod pages;
pub mod public_items;
pub mod size;
pub mod top_level;
pub mod tree;
