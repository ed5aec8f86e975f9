//! The words of a file that cannot be parsed: what it may define is named in it. Does no I/O.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use transom_core::reference::ObjectRef;

/// Hashes of the words of a file; none of a file whose bytes are not known. A copy shares them.
#[derive(Clone, Debug, Default)]
pub(super) struct Words(Arc<HashSet<u64>>);

impl Words {
    /// The words of a file; `key` is that of the directory. A key and a value without the space between them are one
    /// word: the value counts as well.
    pub(super) fn of(bytes: &[u8], key: &RandomState) -> Self {
        let words = split(bytes).flat_map(|word| [Some(word), value(word)]);
        let words = words.flatten().map(|word| key.hash_one(word));
        Self(Arc::new(words.collect()))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the file names the kind, or its List, and the name and the namespace of an object. An escape such as
    /// `\u0061` in a name is not undone.
    pub(super) fn name(&self, object: &ObjectRef, key: &RandomState) -> bool {
        let has = |text: &str| {
            let mut words = split(text.as_bytes());
            words.all(|word| self.0.contains(&key.hash_one(word)))
        };
        let list = || [object.kind.as_str(), "List"].concat();
        has(&object.name)
            && object.namespace.as_deref().is_none_or(has)
            && (has(&object.kind) || has(&list()))
    }
}

/// The value behind a key that names an object, where the space between them is missing.
fn value(word: &[u8]) -> Option<&[u8]> {
    let keys: [&[u8]; 3] = [b"kind:", b"name:", b"namespace:"];
    keys.iter().find_map(|key| word.strip_prefix(*key))
}

/// The words of a text: letters, digits and what names contain, without the colon after a key.
fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:".contains(byte);
    let words = bytes.split(move |byte| !is_inner(byte));
    let words = words.map(|mut word| {
        while let Some(rest) = word.strip_suffix(b":") {
            word = rest;
        }
        word
    });
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_parsed_may_hold_what_it_names() {
        let key = RandomState::new();
        let role = |name: &str| {
            ObjectRef::local("rbac.authorization.k8s.io/v1", "ClusterRole", None, name)
        };
        for (text, name, holds) in [
            (
                "kind: ClusterRole\nmetadata:\n  name: a:b:c-1\n---\n{bad",
                "a:b:c-1",
                true,
            ),
            (
                "kind: ClusterRole\nmetadata: {name: c-1}\n---\n{bad",
                "c-1",
                true,
            ),
            (
                r#"{"kind":"ClusterRole","metadata":{"name":"c-1"},"#,
                "c-1",
                true,
            ),
            ("kind: 'ClusterRole'\nname: \"c-1\"", "c-1", true),
            (
                "kind: ClusterRoleList\nitems:\n- metadata: {name: c-1}\n  {",
                "c-1",
                true,
            ),
            (
                "kind: ClusterRole\nmetadata: {name: a role of mine}",
                "a role of mine",
                true,
            ),
            ("kind: ClusterRole\nc-1: {}", "c-1", true),
            ("kind: ClusterRole\nmetadata: {name: c-10}", "c-1", false),
            ("kind: ClusterRole\nmetadata: {name: a:c-1}", "c-1", false),
            ("kind: Role\nmetadata: {name: c-1}", "c-1", false),
        ] {
            let words = Words::of(text.as_bytes(), &key);
            assert_eq!(words.name(&role(name), &key), holds, "{text}");
        }
        assert!(!Words::default().name(&role("c-1"), &key));
    }

    #[test]
    fn a_missing_space_or_an_odd_one_hides_no_name() {
        let key = RandomState::new();
        for text in [
            "kind:ClusterRole\nmetadata:\n  name:c-1",
            "kind: ClusterRole\nmetadata: {name: \u{a0}c-1}",
            "kind: ClusterRole\nmetadata: {name: \u{201c}c-1\u{201d}}",
        ] {
            let role = ObjectRef::local("rbac.authorization.k8s.io/v1", "ClusterRole", None, "c-1");
            assert!(Words::of(text.as_bytes(), &key).name(&role, &key), "{text}");
        }
    }

    #[test]
    fn it_holds_nothing_of_a_namespace_that_it_does_not_name() {
        let key = RandomState::new();
        let secret = |namespace| ObjectRef::local("v1", "Secret", Some(namespace), "s");
        let words = Words::of(b"kind: Secret\nmetadata: {name: s, namespace: n-1", &key);
        assert!(words.name(&secret("n-1"), &key) && !words.name(&secret("n-2"), &key));
    }
}
