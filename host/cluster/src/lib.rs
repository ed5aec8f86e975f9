//! Where objects live: watch, gather, apply, publish.
//! Never decides what should be written; never runs a guest.

pub mod directory;
pub mod kubernetes;
mod read;

pub use read::ReadFailure;
