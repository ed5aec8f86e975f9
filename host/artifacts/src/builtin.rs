//! The components in the binary itself, and their digests.

/// Name, digest and bytes of each component, as `build.rs` found them.
static BUILTIN: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// Digest and bytes of a builtin component.
pub(crate) fn find(name: &str) -> Option<(&'static str, &'static [u8])> {
    let found = BUILTIN.iter().find(|(known, ..)| *known == name);
    found.map(|(_, digest, bytes)| (*digest, *bytes))
}

/// The digest of a builtin component.
pub fn builtin_digest(name: &str) -> Option<&'static str> {
    find(name).map(|(digest, _)| digest)
}

/// The digests of all builtin components.
pub fn builtin_digests() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(_, digest, _)| *digest)
}

/// The names of the builtin components of this binary; empty when it was built without them.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, ..)| *name)
}

/// The builtin components of this binary, or how to build them in.
pub(crate) fn all() -> String {
    let names: Vec<String> = builtin_names().map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "this binary has no builtin components; run `cargo xtask guests` and build again"
            .to_owned(),
        false => format!("the builtin components are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::digest::Digest;

    #[test]
    fn digests_are_those_of_the_bytes() {
        for (name, digest, bytes) in BUILTIN {
            assert_eq!(Digest::of_bytes(bytes).to_string(), *digest, "{name}");
        }
    }
}
