//! The rules of this workspace that no other tool checks, as functions from values to findings: one sentence for each
//! violation. Changes no files; `tests/workspace.rs` applies each rule to the real tree.

pub mod dependencies;
pub mod first_line;
pub mod frozen;
pub mod manifests;
pub mod names;
pub mod packages;
pub mod pages;
pub mod places;
pub mod size;
pub mod top_level;
pub mod tree;
