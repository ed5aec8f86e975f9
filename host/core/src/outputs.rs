//! The objects that bear a stamp, by policy and source. Never says whether one is still desired.

use crate::object::Object;
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use crate::work::Key;
use std::collections::{BTreeMap, BTreeSet};

/// The index of own outputs. A value: kept by whoever observes.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    by_key: BTreeMap<Key, BTreeSet<ObjectRef>>,
    owner: BTreeMap<ObjectRef, Key>,
}

impl Outputs {
    /// Takes note of an object as it is now, stamped or not.
    pub fn observe(&mut self, object: &Object) {
        self.gone(&object.reference);
        if let Some(stamp) = Stamp::read(object) {
            let key = stamp.key();
            self.by_key.entry(key.clone()).or_default().insert(object.reference.clone());
            self.owner.insert(object.reference.clone(), key);
        }
    }

    /// Takes note that an object is gone.
    pub fn gone(&mut self, object: &ObjectRef) {
        let Some(key) = self.owner.remove(object) else { return };
        if let Some(objects) = self.by_key.get_mut(&key) {
            objects.remove(object);
            if objects.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// What was made for a key, in order, whatever the uid of the subject was then.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.by_key.get(key).into_iter().flatten()
    }

    /// Every key that something was made for; those without a subject go to prune.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }
}
