//! Field patches whose files are to be written or removed, because of what users did to their objects.

use super::DirectoryStore;
use crate::directory::patch::Patch;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_core::reference::ObjectRef;

impl DirectoryStore {
    /// Has the patch of an object follow what users have now.
    pub(super) fn follow(&mut self, reference: &Arc<ObjectRef>) {
        let Some(slot) = self.slots.get_mut(reference) else {
            return;
        };
        // An object that is as it was needs no look at its content.
        if slot.patch.is_some() && slot.effective().seen(&self.key) != slot.seen && slot.rebase() {
            self.rebased.insert(Arc::clone(reference));
        }
        if slot.users.is_empty() && slot.patch.is_some() {
            self.orphans.insert(Arc::clone(reference));
        } else {
            self.orphans.remove(reference);
        }
    }

    /// Objects whose field patch is not the one in its file.
    pub(in crate::directory) fn outdated(&self) -> BTreeSet<Arc<ObjectRef>> {
        let orphans = self.orphans.iter().filter(|one| self.is_orphan(one));
        orphans.chain(&self.rebased).cloned().collect()
    }

    /// The patch that belongs into the file of an object; `None` if the one there is right.
    pub(in crate::directory) fn outdated_by(&self, reference: &ObjectRef) -> Option<Patch> {
        if self.is_orphan(reference) {
            return Some(Patch::default());
        }
        self.rebased.get(reference)?;
        let patch = self.slot(reference).and_then(|slot| slot.patch.as_deref());
        Some(patch.cloned().unwrap_or_default())
    }

    /// Whether an object is gone that still has a patch. None counts as gone while anything is unreadable, because it
    /// may be there.
    fn is_orphan(&self, reference: &ObjectRef) -> bool {
        self.problems.is_empty() && self.orphans.contains(reference)
    }
}
