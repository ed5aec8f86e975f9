//! Where component bytes come from: the binary itself, a file or ConfigMaps. Checks their digest; does not compile them.

pub mod folder;
mod location;
mod object;
mod sources;

pub use location::{Artifact, Base, FetchError, Location, builtin_names};
pub use object::{Objects, Unread, keep};
pub use sources::Sources;
