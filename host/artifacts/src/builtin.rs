//! The components that are part of the binary.

/// Name and bytes of each component, as `build.rs` found them.
static BUILTIN: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// The bytes of a builtin component.
pub(crate) fn bytes(name: &str) -> Option<&'static [u8]> {
    BUILTIN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, bytes)| *bytes)
}

/// The names of the builtin components of this binary; empty when it was built without them.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}
