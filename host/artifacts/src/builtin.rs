//! The components in the binary itself, and their digests.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use transom_core::digest::Digest;

/// Name and bytes of each component, as `build.rs` found them.
static BUILTIN: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// The digests of all of them: many policies share one, and a start loads each policy.
static DIGESTS: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
    let digest = |bytes: &[u8]| Digest::of_bytes(bytes).to_string();
    let all = BUILTIN.iter();
    all.map(|(name, bytes)| (*name, digest(bytes))).collect()
});

/// The bytes of a builtin component.
pub(crate) fn bytes(name: &str) -> Option<&'static [u8]> {
    BUILTIN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, bytes)| *bytes)
}

/// The digest of a builtin component.
pub(crate) fn digest(name: &str) -> Option<String> {
    DIGESTS.get(name).cloned()
}

/// The names of the builtin components of this binary; empty when it was built without them.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
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
