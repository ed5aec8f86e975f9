//! Where component bytes come from: the binary itself or a file. Checks their digest; does not compile them.

mod builtin;
pub mod folder;
mod location;

pub use builtin::names as builtin_names;
pub use location::{Artifact, Base, FetchError, Location};
