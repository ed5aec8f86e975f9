//! Where component bytes come from: the binary itself, a file or ConfigMaps. Checks their digest; does not compile them.

pub mod folder;
mod gathered;
mod location;
mod sources;

pub use gathered::{Contents, Gathered, Unread};
pub use location::{Artifact, Base, FetchError, Location, MAX_BYTES, builtin_names};
pub use sources::Sources;
