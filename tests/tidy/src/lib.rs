//! The rules of this workspace that a program can check, as functions from values to findings. Changes no files;
//! `tests/workspace.rs` applies each rule to the real tree.

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
