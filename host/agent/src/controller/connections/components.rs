//! The objects that hold components: which ones policies name, and which of them changed.

use super::Connections;
use crate::policies::components::{Versions, version};
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use transom_core::object::Object;
use transom_core::reference::ObjectRef;

/// What is known of the objects that hold components.
#[derive(Default)]
pub(super) struct Objects {
    wanted: BTreeSet<ObjectRef>,
    changed: Versions,
}

impl Connections {
    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the objects that hold components; true when they are others than before.
    pub(crate) fn follow_components(&self, wanted: BTreeSet<ObjectRef>) -> bool {
        let mut objects = self.objects();
        let before = std::mem::replace(&mut objects.wanted, wanted);
        before != objects.wanted
    }

    /// The objects that hold components.
    pub(super) fn components(&self) -> BTreeSet<ObjectRef> {
        self.objects().wanted.clone()
    }

    /// Records what an object is now; `None` when it is gone.
    pub(crate) fn component_changed(&self, reference: &ObjectRef, now: Option<&Object>) {
        let mut objects = self.objects();
        if objects.wanted.contains(reference) {
            objects.changed.insert(reference.clone(), now.map(version));
        }
    }

    /// The objects that hold components and changed since the last call.
    pub(crate) fn changed_components(&self) -> Versions {
        std::mem::take(&mut self.objects().changed)
    }
}
