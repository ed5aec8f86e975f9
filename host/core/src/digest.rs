//! Digests of JSON values that do not depend on the order of keys. No digest of credential bytes leaves the host.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// What the text of a digest begins with.
const PREFIX: &str = "sha256:";

/// How many bytes most digested values give at most: one allocation, and it does not grow.
const MOSTLY: usize = 2048;

/// SHA-256 of something, shown as `sha256:<hex>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digest of bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Digest of a value; equal values have equal digests, whatever the order of their keys.
    pub fn of(value: &Value) -> Self {
        let mut bytes = Vec::with_capacity(MOSTLY);
        feed(&mut bytes, value);
        Self::of_bytes(&bytes)
    }

    /// Its 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.to_string().split_off(PREFIX.len())
    }

    /// Its first eight bytes.
    pub(crate) fn head(&self) -> u64 {
        self.0
            .first_chunk()
            .map_or(0, |head| u64::from_be_bytes(*head))
    }

    /// Digest of a value that is put together from parts, without a copy of them; the same as that of the whole value.
    pub(crate) fn of_parts(part: &DigestPart<'_>) -> Self {
        let mut bytes = Vec::with_capacity(MOSTLY);
        part.feed(&mut bytes);
        Self::of_bytes(&bytes)
    }

    /// Digest of several values; an absent one counts as null.
    pub fn of_all<'a>(values: impl IntoIterator<Item = Option<&'a Value>>) -> Self {
        let mut bytes = Vec::with_capacity(MOSTLY);
        values
            .into_iter()
            .for_each(|value| feed(&mut bytes, value.unwrap_or(&Value::Null)));
        Self::of_bytes(&bytes)
    }

    /// Digest of some entries of a map.
    pub(crate) fn of_entries<'a>(
        entries: impl Iterator<Item = (&'a String, &'a Value)> + Clone,
    ) -> Self {
        let mut bytes = Vec::with_capacity(MOSTLY);
        feed_map(&mut bytes, entries);
        Self::of_bytes(&bytes)
    }

    /// Digest of a text, a flag and named digests.
    pub(crate) fn of_named(text: &str, is_so: bool, named: &BTreeMap<String, Self>) -> Self {
        let mut bytes = Vec::with_capacity(MOSTLY);
        feed_text(&mut bytes, b's', text);
        bytes.push(if is_so { b't' } else { b'f' });
        for (name, digest) in named {
            feed_text(&mut bytes, b'k', name);
            bytes.extend_from_slice(&digest.0);
        }
        Self::of_bytes(&bytes)
    }

    /// Digest of the fields of an object, without the named metadata and annotations.
    pub(crate) fn of_fields(
        fields: &Map<String, Value>,
        without: &[&str],
        without_annotations: &[&str],
    ) -> Self {
        let metadata = fields.get("metadata").and_then(Value::as_object);
        let annotations = metadata.and_then(|metadata| metadata.get("annotations")?.as_object());
        let mut bytes = Vec::with_capacity(MOSTLY);
        let mut feed = |map: Option<&Map<String, Value>>, without: &[&str], apart: Option<&str>| {
            let is_left = |key: &str| without.contains(&key) || apart == Some(key);
            let entries = map.into_iter().flatten();
            feed_map(&mut bytes, entries.filter(|(key, _)| !is_left(key)));
        };
        feed(Some(fields), &[], metadata.map(|_| "metadata"));
        feed(metadata, without, annotations.map(|_| "annotations"));
        feed(annotations, without_annotations, None);
        Self::of_bytes(&bytes)
    }
}

/// A part of a value that is digested.
pub(crate) enum DigestPart<'a> {
    /// A value that is there.
    There(&'a Value),
    /// One that is made for the digest.
    Made(Value),
    /// A list.
    List(Vec<DigestPart<'a>>),
    /// A map; its keys are in order.
    Map(Vec<(&'static str, DigestPart<'a>)>),
}

impl DigestPart<'_> {
    fn feed(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::There(value) => feed(bytes, value),
            Self::Made(value) => feed(bytes, value),
            Self::List(items) => {
                feed_length(bytes, b'a', items.len());
                items.iter().for_each(|item| item.feed(bytes));
            }
            Self::Map(entries) => {
                debug_assert!(entries.is_sorted_by_key(|(key, _)| *key));
                feed_length(bytes, b'o', entries.len());
                for (key, item) in entries {
                    feed_text(bytes, b'k', key);
                    item.feed(bytes);
                }
            }
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [[0; 2]; 32];
        for (pair, byte) in digits.iter_mut().zip(self.0) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        let digits = std::str::from_utf8(digits.as_flattened()).map_err(|_| fmt::Error)?;
        f.write_str(PREFIX)?;
        f.write_str(digits)
    }
}

/// A hexadecimal digit.
fn digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + (value - 10),
    }
}

/// Whether a text has the form of a digest: `sha256:` and 64 hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(PREFIX)
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
}

/// Writes each value with its kind and length in front, so that different values never give the same bytes. All bytes
/// are hashed at once, since most pieces are shorter than a block of the hash.
fn feed(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(b'z'),
        Value::Bool(true) => bytes.push(b't'),
        Value::Bool(false) => bytes.push(b'f'),
        Value::Number(number) => feed_text(bytes, b'n', &number.to_string()),
        Value::String(text) => feed_text(bytes, b's', text),
        Value::Array(items) => {
            feed_length(bytes, b'a', items.len());
            items.iter().for_each(|item| feed(bytes, item));
        }
        Value::Object(map) => {
            feed_map(bytes, map.iter());
        }
    }
}

fn feed_map<'a>(
    bytes: &mut Vec<u8>,
    entries: impl Iterator<Item = (&'a String, &'a Value)> + Clone,
) {
    // The maps of serde_json are sorted, unless a crate turns that off for all.
    if !entries.clone().is_sorted_by_key(|(key, _)| key) {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        return feed_sorted(bytes, entries.into_iter());
    }
    feed_sorted(bytes, entries);
}

fn feed_sorted<'a>(
    bytes: &mut Vec<u8>,
    entries: impl Iterator<Item = (&'a String, &'a Value)> + Clone,
) {
    feed_length(bytes, b'o', entries.clone().count());
    for (key, item) in entries {
        feed_text(bytes, b'k', key);
        feed(bytes, item);
    }
}

fn feed_length(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
}

fn feed_text(bytes: &mut Vec<u8>, kind: u8, text: &str) {
    feed_length(bytes, kind, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_order_of_keys_does_not_count() {
        let same = [r#"{"a":1,"b":[true,null]}"#, r#"{"b":[true,null],"a":1}"#]
            .map(|text| Digest::of(&serde_json::from_str(text).unwrap()));
        assert_eq!(same[0], same[1]);
        let others = [
            json!({"a":"1","b":[true,null]}),
            json!({"a":1,"b":[null,true]}),
            json!({"a":1}),
            json!(null),
        ];
        for other in others {
            assert_ne!(Digest::of(&other), same[0], "{other}");
        }
        assert_ne!(
            Digest::of(&json!(["ab", "c"])),
            Digest::of(&json!(["a", "bc"]))
        );
        assert_ne!(
            Digest::of(&json!([["a"], "b"])),
            Digest::of(&json!([["a", "b"]]))
        );
    }

    #[test]
    fn parts_have_the_digest_of_the_whole() {
        let value = json!({"x": [1, "y"]});
        let parts = DigestPart::Map(vec![
            ("a", DigestPart::There(&value)),
            (
                "b",
                DigestPart::List(vec![DigestPart::Made(json!(2)), DigestPart::There(&value)]),
            ),
        ]);
        let whole = json!({"b": [2, value], "a": value});
        assert_eq!(Digest::of_parts(&parts), Digest::of(&whole));
    }

    #[test]
    fn is_displayed_in_hexadecimal() {
        let shown = Digest::of_bytes(b"").to_string();
        assert_eq!(
            shown,
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(format!("sha256:{}", Digest::of_bytes(b"").hex()), shown);
        assert!(is_digest(&shown) && !is_digest(&Digest::of_bytes(b"").hex()));
        assert!(!is_digest(&shown.to_uppercase()) && !is_digest(&format!("{shown}0")));
    }
}
