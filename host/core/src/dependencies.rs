//! Which reconciles read, wait for or write an object, even one that does not exist.

use crate::reference::ObjectRef;
use crate::work::Key;
use std::collections::{BTreeSet, HashMap};
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
            if let Some(keys) = self.readers.get_mut(&object) {
                keys.remove(key);
                if keys.is_empty() {
                    self.readers.remove(&object);
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
