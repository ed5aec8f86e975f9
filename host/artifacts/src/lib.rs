//! Where component bytes come from: the binary itself or a file, with the digest that is checked.
//! Never compiles or trusts what it brings.

mod builtin;
pub mod folder;
mod location;

pub use builtin::names as builtin_names;
pub use location::{Artifact, Base, FetchError, Location};
