//! The fields of a map while it is read: what stands twice, and what a merge key brings. Never decides what they say.

use super::cost::{ENTRY, MAP, TEXT};
use super::error::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The fields of a map so far.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) map: Map<String, Value>,
    /// Those that a merge gave and the map itself has not said yet.
    merged: BTreeSet<String>,
}

impl Fields {
    /// Bytes of memory for one more key; what a merge brings is paid for by itself.
    pub(super) fn price(&self, key: Option<&str>) -> usize {
        let node = if self.map.is_empty() { MAP } else { ENTRY };
        key.map_or(0, |key| node + TEXT + key.len())
    }

    /// Bytes of memory for merging this, as entries and as names of what was merged.
    pub(super) fn price_of(merged: &Value) -> usize {
        let of = |map: &Value| map.as_object().map_or(0, |map| MAP + map.len() * 2 * (ENTRY + TEXT));
        merged.as_array().map_or_else(|| of(merged), |maps| maps.iter().map(of).sum())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key) && !self.merged.contains(key)
    }

    pub(super) fn put(&mut self, key: String, value: Value) -> Option<Fault> {
        let merged = self.merged.remove(&key);
        (self.map.insert(key, value).is_some() && !merged).then_some(Fault::DuplicateKey)
    }

    /// As client-go does, what comes later counts, whether it is said or merged; in a list of maps the first one counts.
    pub(super) fn merge(&mut self, value: Value) -> Option<Fault> {
        let maps = match value {
            Value::Array(items) => items,
            one => vec![one],
        };
        for map in maps.into_iter().rev() {
            let Value::Object(map) = map else { return Some(Fault::MergeKey) };
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
