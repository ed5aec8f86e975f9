//! Which objects there are.

use super::DirectoryStore;
use crate::directory::slot::{Slot, SlotState};
use std::sync::Arc;
use transom_core::reference::ObjectRef;

impl DirectoryStore {
    /// Every object that exists, including duplicates.
    pub(in crate::directory) fn references(&self) -> impl Iterator<Item = &Arc<ObjectRef>> {
        self.slots
            .iter()
            .filter(|(_, slot)| slot.seen != SlotState::Absent)
            .map(|(reference, _)| reference)
    }

    /// Every readable object of a kind.
    pub(in crate::directory) fn of_kind(
        &self,
        first: ObjectRef,
    ) -> impl Iterator<Item = &ObjectRef> {
        let readable = |slot: &Slot| matches!(slot.seen, SlotState::Value(_));
        self.slots_of_kind(first, readable)
    }

    /// Every object of a kind that the agent made, whatever users' files say of it.
    pub(in crate::directory) fn made_of_kind(
        &self,
        first: ObjectRef,
    ) -> impl Iterator<Item = &ObjectRef> {
        self.slots_of_kind(first, |slot| slot.made.is_some())
    }

    fn slots_of_kind(
        &self,
        first: ObjectRef,
        counts: impl Fn(&Slot) -> bool,
    ) -> impl Iterator<Item = &ObjectRef> {
        let kind = first.clone();
        self.slots
            .range(Arc::new(first)..)
            .take_while(move |(at, _)| {
                (&at.cluster, &at.api_version, &at.kind)
                    == (&kind.cluster, &kind.api_version, &kind.kind)
            })
            .filter(move |(_, slot)| counts(slot))
            .map(|(reference, _)| reference.as_ref())
    }

    /// The objects whose text contains a text, without the fields laid over them.
    pub(in crate::directory) fn holding(&self, text: &str) -> Vec<Arc<ObjectRef>> {
        self.slots
            .iter()
            .filter(|(_, slot)| slot.effective().holds(text))
            .map(|(reference, _)| Arc::clone(reference))
            .collect()
    }
}
