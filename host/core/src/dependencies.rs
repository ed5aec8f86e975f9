//! Which reconciles read, wait for or write an object, even one that does not exist; and which stamped objects each
//! policy and primary has.

use crate::object::Object;
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

/// The index from objects to the keys whose last reconcile depended on them. A plain value that the caller keeps.
#[derive(Clone, Debug, Default)]
pub struct DependencyIndex {
    readers: HashMap<Arc<ObjectRef>, BTreeSet<Key>>,
    reads: HashMap<Key, BTreeSet<Arc<ObjectRef>>>,
}

impl DependencyIndex {
    /// Adds what a key is about to read, so that a change before its reconcile ends is not missed.
    pub fn add(&mut self, key: &Key, objects: impl IntoIterator<Item = ObjectRef>) {
        for object in objects {
            if self
                .reads
                .get(key)
                .is_some_and(|reads| reads.contains(&object))
            {
                continue;
            }
            let object = self
                .readers
                .get_key_value(&object)
                .map_or_else(|| Arc::new(object), |(known, _)| Arc::clone(known));
            self.readers
                .entry(Arc::clone(&object))
                .or_default()
                .insert(key.clone());
            self.reads.entry(key.clone()).or_default().insert(object);
        }
    }

    /// Replaces what a key depends on: everything that any round read or waited for, and the target. The primary does
    /// not belong here: its changes go through the trigger.
    pub fn set<'a>(
        &mut self,
        key: &Key,
        objects: impl ExactSizeIterator<Item = &'a ObjectRef> + Clone,
    ) {
        let same = |reads: &BTreeSet<Arc<ObjectRef>>| {
            reads.len() == objects.len() && objects.clone().all(|object| reads.contains(object))
        };
        if !self.reads.get(key).is_some_and(same) {
            self.remove(key);
            self.add(key, objects.cloned());
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &Key) {
        for object in self.reads.remove(key).unwrap_or_default() {
            unlink(&mut self.readers, &object, key);
        }
    }

    /// The keys that depend on an object, in order.
    pub fn concerned(&self, object: &ObjectRef) -> impl Iterator<Item = &Key> {
        self.readers.get(object).into_iter().flatten()
    }

    /// What a key depends on, in order.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.reads
            .get(key)
            .into_iter()
            .flatten()
            .map(|object| &**object)
    }
}

/// Removes a value from a set, and a set without values.
fn unlink<K: Eq + Hash, V: Ord>(sets: &mut HashMap<K, BTreeSet<V>>, of: &K, value: &V) {
    if let Some(values) = sets.get_mut(of) {
        values.remove(value);
        if values.is_empty() {
            sets.remove(of);
        }
    }
}

/// The index of own outputs: stamped objects, each with the one key that it was made for. A plain value that the
/// caller keeps.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    index: DependencyIndex,
    /// The keys that have an output.
    keys: BTreeSet<Key>,
}

impl Outputs {
    /// Records an object as it is now, stamped or not.
    pub fn observe(&mut self, object: &Object) {
        let stamp = Stamp::read(object);
        self.record(&object.reference, stamp.map(|stamp| stamp.key()));
    }

    /// Records whom an object was made for; of another one nothing is kept.
    pub fn record(&mut self, object: &ObjectRef, owner: Option<Key>) {
        if owner.is_some() && self.owner(object) == owner.as_ref() {
            return;
        }
        self.gone(object);
        if let Some(owner) = owner {
            self.index.add(&owner, [object.clone()]);
            self.keys.insert(owner);
        }
    }

    /// Records that an object is gone.
    pub fn gone(&mut self, object: &ObjectRef) {
        if let Some((object, keys)) = self.index.readers.remove_entry(object) {
            for key in keys {
                unlink(&mut self.index.reads, &key, &object);
                if !self.index.reads.contains_key(&key) {
                    self.keys.remove(&key);
                }
            }
        }
    }

    /// The outputs for a key, in order, whatever uid the primary had then.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.index.of(key)
    }

    /// The key that an object was made for.
    pub fn owner(&self, object: &ObjectRef) -> Option<&Key> {
        self.index.concerned(object).next()
    }

    /// The keys that have an output, in order, from a place on; those without a primary go to prune.
    pub fn keys(&self, from: Bound<Key>) -> impl Iterator<Item = &Key> {
        self.keys.range((from, Bound::Unbounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, object, stamp, target};
    use serde_json::json;

    fn key(name: &str) -> Key {
        Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, name))
    }

    fn secret(name: &str) -> ObjectRef {
        ObjectRef::local("v1", "Secret", Some("n"), name)
    }

    #[test]
    fn tracks_objects_about_to_be_read_and_objects_read() {
        let mut dependencies = DependencyIndex::default();
        dependencies.set(&key("a"), [secret("one")].iter());
        dependencies.add(&key("a"), [secret("one"), secret("two")]);
        assert_eq!(
            dependencies.concerned(&secret("two")).collect::<Vec<_>>(),
            [&key("a")]
        );
        assert_eq!(dependencies.of(&key("a")).count(), 2);
        dependencies.set(&key("a"), [secret("two")].iter());
        assert_eq!(dependencies.concerned(&secret("one")).count(), 0);
    }

    #[test]
    fn the_last_reconcile_replaces_earlier_ones() {
        let mut dependencies = DependencyIndex::default();
        dependencies.set(&key("a"), [secret("one"), secret("two")].iter());
        dependencies.set(&key("b"), [secret("two")].iter());
        assert_eq!(
            dependencies.concerned(&secret("two")).collect::<Vec<_>>(),
            [&key("a"), &key("b")]
        );
        dependencies.set(&key("a"), [secret("one")].iter());
        assert_eq!(
            dependencies.concerned(&secret("two")).collect::<Vec<_>>(),
            [&key("b")]
        );
        assert_eq!(
            dependencies.of(&key("a")).collect::<Vec<_>>(),
            [&secret("one")]
        );
        dependencies.remove(&key("a"));
        dependencies.remove(&key("b"));
        assert!(dependencies.readers.is_empty() && dependencies.reads.is_empty());
    }

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
            outputs.of(&sample::key("demo")).collect::<Vec<_>>(),
            [&target("one"), &target("two")]
        );
        outputs.observe(&stamped("one", "other"));
        outputs.observe(&object(target("two"), json!({})));
        let keys = |outputs: &Outputs| outputs.keys(Bound::Unbounded).cloned().collect::<Vec<_>>();
        assert_eq!(keys(&outputs), [sample::key("other")]);
        outputs.gone(&target("one"));
        assert!(keys(&outputs).is_empty());
        assert!(outputs.index.readers.is_empty() && outputs.index.reads.is_empty());
    }
}
