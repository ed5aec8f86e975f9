//! The fields of a map while it is read: duplicate keys, merges, and what they cost.

use crate::document::cost::{ENTRY, MAP, TEXT};
use crate::document::error::DocumentFault;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The fields of a map so far.
#[derive(Default)]
pub(super) struct MapFields {
    pub(super) map: Map<String, Value>,
    /// Keys that came from a merge and that the map itself has not set yet.
    merged: BTreeSet<String>,
}

impl MapFields {
    /// Bytes of memory for one more key; none for a merge key, which [`Self::price_of`] counts.
    pub(super) fn price(&self, key: Option<&str>) -> usize {
        let node = if self.map.is_empty() { MAP } else { ENTRY };
        key.map_or(0, |key| node + TEXT + key.len())
    }

    /// Bytes of memory for merging a value: its entries, and their names in `merged`.
    pub(super) fn price_of(merged: &Value) -> usize {
        let of = |map: &Value| {
            map.as_object()
                .map_or(0, |map| MAP + map.len() * 2 * (ENTRY + TEXT))
        };
        merged
            .as_array()
            .map_or_else(|| of(merged), |maps| maps.iter().map(of).sum())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key) && !self.merged.contains(key)
    }

    pub(super) fn put(&mut self, key: String, value: Value) -> Option<DocumentFault> {
        let merged = self.merged.remove(&key);
        (self.map.insert(key, value).is_some() && !merged).then_some(DocumentFault::DuplicateKey)
    }

    /// Merges as client-go does: a later key wins, whether it is set or merged; in a list of maps the first map wins.
    pub(super) fn merge(&mut self, value: Value) -> Option<DocumentFault> {
        let maps = match value {
            Value::Array(items) => items,
            one => vec![one],
        };
        for map in maps.into_iter().rev() {
            let Value::Object(map) = map else {
                return Some(DocumentFault::MergeKey);
            };
            for (key, value) in map {
                if !self.map.contains_key(&key) {
                    self.merged.insert(key.clone());
                }
                self.map.insert(key, value);
            }
        }
        None
    }
}
