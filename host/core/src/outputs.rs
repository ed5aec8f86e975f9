//! The index of stamped objects, by policy and primary.

use crate::object::Object;
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::collections::{BTreeSet, HashMap};

/// The index of own outputs. A plain value that the caller keeps.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    by_key: HashMap<Key, BTreeSet<ObjectRef>>,
    owner: HashMap<ObjectRef, Key>,
}

impl Outputs {
    /// Records an object as it is now, stamped or not.
    pub fn observe(&mut self, object: &Object) {
        self.gone(&object.reference);
        if let Some(stamp) = Stamp::read(object) {
            let key = stamp.key();
            self.by_key
                .entry(key.clone())
                .or_default()
                .insert(object.reference.clone());
            self.owner.insert(object.reference.clone(), key);
        }
    }

    /// Records that an object is gone.
    pub fn gone(&mut self, object: &ObjectRef) {
        let Some(key) = self.owner.remove(object) else {
            return;
        };
        if let Some(objects) = self.by_key.get_mut(&key) {
            objects.remove(object);
            if objects.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// The outputs for a key, in order, whatever uid the primary had then.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.by_key.get(key).into_iter().flatten()
    }

    /// The key that an object was made for.
    pub fn owner(&self, object: &ObjectRef) -> Option<&Key> {
        self.owner.get(object)
    }

    /// Every key that has an output; those without a primary go to prune.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{key, object, stamp, target};
    use serde_json::json;

    #[test]
    fn finds_managed_objects_by_their_source() {
        let stamped = |cluster: &str, source: &str| {
            let mut body = json!({});
            stamp(source, "u").put(&mut body);
            object(target(cluster), body)
        };
        let mut outputs = Outputs::default();
        outputs.observe(&stamped("one", "demo"));
        outputs.observe(&stamped("two", "demo"));
        outputs.observe(&object(target("three"), json!({})));
        assert_eq!(
            outputs.of(&key("demo")).collect::<Vec<_>>(),
            [&target("one"), &target("two")]
        );
        outputs.observe(&stamped("one", "other"));
        outputs.observe(&object(target("two"), json!({})));
        assert_eq!(outputs.keys().collect::<Vec<_>>(), [&key("other")]);
        outputs.gone(&target("one"));
        assert!(outputs.by_key.is_empty() && outputs.owner.is_empty());
    }
}
