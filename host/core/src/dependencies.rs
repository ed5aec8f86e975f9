//! Which reconciles read, wait for or write an object, even one that does not exist; and which stamped objects each
//! policy and primary has.

use crate::object::Object;
use crate::reference::ObjectRef;
use crate::stamp::{SourceRef, Stamp};
use crate::work::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    pub fn add<'a>(&mut self, key: &Key, objects: impl IntoIterator<Item = &'a ObjectRef>) {
        for object in objects {
            let reads = self.reads.get(key);
            if reads.is_some_and(|reads| reads.contains(object)) {
                continue;
            }
            let known = self.readers.get_key_value(object);
            let object =
                known.map_or_else(|| Arc::new(object.clone()), |(known, _)| Arc::clone(known));
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
            self.add(key, objects);
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &Key) {
        for object in self.reads.remove(key).unwrap_or_default() {
            unlink(&mut self.readers, &object, key);
        }
    }

    /// The keys that depend on anything.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.reads.keys()
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
    /// The uids of clusters with primaries, by connection, as far as they are needed and known.
    uids: BTreeMap<String, Arc<str>>,
    /// The outputs whose stamp names a cluster while the uid of the cluster is not known, with that stamp's source.
    unproven: BTreeMap<ObjectRef, SourceRef>,
}

impl Outputs {
    /// Records an object as it is now, stamped or not.
    pub fn observe(&mut self, object: &Object) {
        self.stamped(&object.reference, Stamp::read(object));
    }

    /// Records the stamp of an object as it is now.
    pub fn stamped(&mut self, object: &ObjectRef, stamp: Option<Stamp>) {
        self.unproven.remove(object);
        let ours = stamp.filter(|stamp| !self.is_of_another_cluster(object, &stamp.source));
        self.record(object, ours.as_ref().map(Stamp::key));
        if let Some(Stamp { source, .. }) = ours
            && !source.cluster_uid.is_empty()
            && !self.uids.contains_key(&source.reference.cluster)
        {
            self.unproven.insert(object.clone(), source);
        }
    }

    /// Whether an agent of another cluster certainly made an object.
    fn is_of_another_cluster(&self, object: &ObjectRef, source: &SourceRef) -> bool {
        let cluster = &source.reference.cluster;
        let uid = match object.cluster == *cluster {
            true => Some(""),
            false => self.uids.get(cluster).map(|uid| &**uid),
        };
        !source.cluster_uid.is_empty() && uid.is_some_and(|uid| uid != source.cluster_uid)
    }

    /// The uid of a cluster, if it is known.
    pub fn uid(&self, cluster: &str) -> Option<Arc<str>> {
        self.uids.get(cluster).cloned()
    }

    /// Records the uid of a cluster, and forgets what agents of other clusters made.
    pub fn know(&mut self, cluster: &str, uid: &Arc<str>) {
        self.uids.insert(cluster.to_owned(), Arc::clone(uid));
        let of_cluster =
            |_: &ObjectRef, source: &mut SourceRef| source.reference.cluster == cluster;
        let proven: Vec<_> = self.unproven.extract_if(.., of_cluster).collect();
        for (object, source) in proven {
            if self.is_of_another_cluster(&object, &source) {
                self.gone(&object);
            }
        }
    }

    /// Copies the known uids of clusters, and the outputs that wait for unknown ones.
    pub fn copy_uids(&mut self, of: &Self) {
        self.uids.clone_from(&of.uids);
        self.unproven.clone_from(&of.unproven);
    }

    /// Records the key that an object was made for; `None` forgets the object.
    pub fn record(&mut self, object: &ObjectRef, owner: Option<Key>) {
        if owner.is_some() && self.owner(object) == owner.as_ref() {
            return;
        }
        self.gone(object);
        if let Some(owner) = owner {
            self.index.add(&owner, [object]);
            self.keys.insert(owner);
        }
    }

    /// Records that an object is gone.
    pub fn gone(&mut self, object: &ObjectRef) {
        self.unproven.remove(object);
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
        dependencies.add(&key("a"), &[secret("one"), secret("two")]);
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
    fn what_an_agent_of_another_cluster_made_is_no_output() {
        let made = |uid: &str| {
            let mut there = target("demo");
            there.cluster = "hub".to_owned();
            let (mut body, mut stamp) = (json!({}), stamp("demo", "u"));
            stamp.source.cluster_uid = uid.to_owned();
            stamp.on(&there).put(&mut body);
            object(there, body)
        };
        let mut outputs = Outputs::default();
        let is_output = |outputs: &Outputs| outputs.of(&sample::key("demo")).count() == 1;
        outputs.observe(&made("other"));
        assert!(
            is_output(&outputs),
            "the uid of this cluster is not known yet"
        );
        outputs.know("local", &"here".into());
        assert!(!is_output(&outputs));
        outputs.observe(&made("other"));
        assert!(!is_output(&outputs));
        outputs.observe(&made("here"));
        assert!(is_output(&outputs));
        outputs.observe(&made("other"));
        assert!(!is_output(&outputs), "it was taken over");
        let mut outputs = Outputs::default();
        outputs.observe(&made("here"));
        outputs.know("local", &"here".into());
        assert!(is_output(&outputs));
        // What it said before it was written anew counts no more.
        let mut outputs = Outputs::default();
        outputs.observe(&made("other"));
        outputs.observe(&made(""));
        outputs.know("local", &"here".into());
        assert!(is_output(&outputs));
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
