//! Where component bytes come from: the binary itself, a file, ConfigMaps or a registry. Checks their digest; does not
//! compile them.

mod builtin;

mod fetch;
pub mod folder;
mod gathered;
mod location;
pub mod registry;
pub mod signature;
mod sources;

pub use builtin::{builtin_digest, builtin_digests, builtin_names};
pub use fetch::{Artifact, FetchError};
pub use gathered::{Contents, GatheredComponents, HeldComponent, Pulled, Unread};
pub use location::{Base, Location, MAX_BYTES};
pub use sources::Sources;
