//! The objects that hold components: which ones policies name, and which of them may have changed.

use super::Connections;
use crate::policies::components::PartVersions;
use futures::FutureExt as _;
use std::collections::BTreeSet;
use transom_cluster::Patience;
use transom_core::failure::Class;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::share::lock::MutexExt as _;
use transom_core::watches;

/// The objects that hold components.
#[derive(Default)]
pub(super) struct Followed {
    wanted: BTreeSet<ObjectRef>,
    /// Those whose state is to be compared with what was loaded.
    dirty: BTreeSet<ObjectRef>,
}

impl Connections {
    /// Sets the objects that hold components; `watch` watches them. What is followed from now on is compared, too: it
    /// may have changed before.
    pub(crate) fn follow_components(&self, wanted: BTreeSet<ObjectRef>, watch: impl FnOnce()) {
        let new: Vec<_> = {
            let mut followed = self.followed.locked();
            let before = std::mem::replace(&mut followed.wanted, wanted);
            if before == followed.wanted {
                return;
            }
            let Followed { wanted, dirty } = &mut *followed;
            dirty.retain(|object| wanted.contains(object));
            wanted.difference(&before).cloned().collect()
        };
        watch();
        self.followed.locked().dirty.extend(new);
    }

    /// The objects that hold components.
    pub(super) fn components(&self) -> BTreeSet<ObjectRef> {
        self.followed.locked().wanted.clone()
    }

    /// Records that an object may have changed.
    pub(crate) fn component_changed(&self, reference: &ObjectRef) {
        let mut followed = self.followed.locked();
        if followed.wanted.contains(reference) {
            followed.dirty.insert(reference.clone());
        }
    }

    /// Records that all of them may have changed on a connection, which is followed from now on.
    pub(crate) fn mark_components_changed(&self, name: &str) {
        let mut followed = self.followed.locked();
        let here = |object: &&ObjectRef| object.cluster == name;
        let all: Vec<_> = followed.wanted.iter().filter(here).cloned().collect();
        followed.dirty.extend(all);
    }

    /// What is in the objects that may have changed since the last call. Waits for nothing: what is still being listed
    /// comes later.
    pub(crate) fn changed_components(&self) -> PartVersions {
        let mut versions = PartVersions::new();
        let Some(cluster) = self.by_name.get(LOCAL) else {
            return versions;
        };
        if self.followed.locked().dirty.is_empty()
            || cluster.synced(Patience::Short).now_or_never().is_none()
        {
            return versions;
        }
        let dirty = std::mem::take(&mut self.followed.locked().dirty);
        for reference in dirty {
            let Some(read) = cluster.read(&reference).now_or_never() else {
                self.component_changed(&reference);
                continue;
            };
            let version = match read {
                Ok(object) => object.map(|object| watches::content(&object)),
                // It may be as it was; the watch reports when it can be read again.
                Err(failure) if Class::of(failure.reason) == Class::Unreachable => continue,
                Err(_) => None,
            };
            versions.insert(reference, version);
        }
        versions
    }
}
