//! Releases a primary when the last of the policies that set its finalizer has cleaned up.

use crate::controller::workqueue::Workqueue;
use crate::controller::{Admitted, Controller};
use std::sync::Arc;
use transom_core::object::Object;
use transom_core::plan::Step;
use transom_core::policy::Policy;
use transom_core::work::Key;

impl Controller {
    /// The release of a primary, unless another policy that sets the same finalizer has not cleaned up yet: the last of
    /// them releases it.
    pub(super) fn releases(
        &self,
        admitted: &Admitted,
        primary: &Object,
        release: Option<Step>,
    ) -> Option<Step> {
        let key = &admitted.work.key;
        let others = self.with_finalizer_of(&admitted.loaded.revision.policy, primary);
        if others.is_empty() {
            return release;
        }
        let released = &mut self.memory.lock().released;
        match &release {
            Some(_) => released.insert(key.clone()),
            None => released.remove(key),
        };
        release.filter(|_| others.iter().all(|other| released.contains(other)))
    }

    /// The other policies that set the same finalizer on an object, as keys.
    pub(super) fn with_finalizer_of(&self, policy: &Policy, object: &Object) -> Vec<Key> {
        let queues = match policy.finalizer {
            Some(_) => self.queues(),
            None => Vec::new(),
        };
        let sets = |queue: &Arc<Workqueue>| {
            let loaded = queue.loaded();
            let other = &loaded.revision.policy;
            let is_same = other.name != policy.name && other.finalizer == policy.finalizer;
            (is_same && other.is_about(object)).then(|| Key::new(&other.name, &object.reference))
        };
        queues.iter().filter_map(sets).collect()
    }
}
