//! Where component bytes come from: the binary itself or a file. Checks their digest; does not compile them.

pub mod folder;
mod location;

pub use location::{Artifact, Base, FetchError, Location, builtin_names};
