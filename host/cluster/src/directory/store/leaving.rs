//! Objects of users that no file has any more. They stay for a while, because a program that moves files may remove all
//! of them before it writes the first one again.

use super::DirectoryStore;
use crate::directory::change::DirectoryNews;
use crate::directory::slot::{SlotState, UserObject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use transom_core::reference::ObjectRef;

impl DirectoryStore {
    /// Keeps the last sources of objects that have no other source: from now on they are leaving.
    pub(super) fn keep(&mut self, taken: BTreeMap<Arc<ObjectRef>, Vec<UserObject>>, now: Instant) {
        for (reference, sources) in taken {
            let slot = self.slots.get_mut(&reference);
            let slot = slot.filter(|slot| slot.users.is_empty());
            if let Some(slot) = slot.filter(|slot| slot.seen != SlotState::Absent) {
                slot.users = sources;
                self.leaving.insert(reference, now);
            }
        }
    }

    /// Removes what was kept of an object, because a file has it again.
    pub(super) fn found_again(&mut self, reference: &ObjectRef) {
        if self.leaving.remove(reference).is_some()
            && let Some(slot) = self.slots.get_mut(reference)
        {
            slot.users.clear();
        }
    }

    /// The objects that have been leaving since a time that counts.
    pub(in crate::directory) fn leaving(
        &self,
        counts: impl Fn(Instant) -> bool,
    ) -> BTreeSet<Arc<ObjectRef>> {
        let counting = self.leaving.iter().filter(|(_, since)| counts(**since));
        counting.map(|(object, _)| Arc::clone(object)).collect()
    }

    /// Since when the first of them has been leaving.
    pub(in crate::directory) fn leaving_since(&self) -> Option<Instant> {
        self.leaving.values().min().copied()
    }

    /// Removes those of the given objects that are still leaving.
    pub(in crate::directory) fn let_go(
        &mut self,
        objects: &BTreeSet<Arc<ObjectRef>>,
    ) -> Vec<DirectoryNews> {
        let mut gone = objects.clone();
        gone.retain(|object| self.leaving.contains_key(object));
        gone.iter().for_each(|object| self.found_again(object));
        self.settle(gone)
    }
}
