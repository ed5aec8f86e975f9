//! What a session in memory changed. Reads each object when it is shown, on several cores, since there may be many.

use super::Rendered;
use crate::command::session::Session;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::policy::ModeSpec;
use transom_cluster::directory::Directory;
use transom_cluster::parallel::on_each;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;

/// The objects that were written, before and after.
pub(super) struct RenderedChanges {
    /// The objects before the first write.
    pub(super) before: Directory,
    /// The agent that wrote them, and the objects now.
    pub(super) session: Session,
    /// The objects that were written, and the policies that wrote them.
    pub(super) written: BTreeMap<ObjectRef, BTreeSet<Arc<str>>>,
}

impl RenderedChanges {
    /// Shows every object that is not as before; the results have the order of the objects.
    pub(super) fn show<T: Send>(&self, show: impl Fn(Rendered) -> T + Sync) -> Vec<T> {
        let shown = on_each(self.written.iter(), |(reference, policies)| {
            self.change(reference, policies).map(&show)
        });
        shown.into_iter().flatten().collect()
    }

    /// Whether an object is not as before by a policy that writes: one in the mode `Shadow` does not.
    pub(super) fn would_be_written(&self) -> bool {
        let loaded = self.session.active.loaded();
        let policies = loaded.iter().map(|loaded| &loaded.revision.policy);
        let shadows = policies.filter(|policy| policy.spec.rollout.mode == ModeSpec::Shadow);
        let shadows: BTreeSet<_> = shadows.map(|policy| &policy.name).collect();
        self.written.iter().any(|(reference, policies)| {
            let writes = policies.iter().any(|policy| !shadows.contains(policy));
            writes && self.change(reference, policies).is_some()
        })
    }

    /// An object before and after; `None` when both are the same.
    fn change(&self, reference: &ObjectRef, policies: &BTreeSet<Arc<str>>) -> Option<Rendered> {
        let states = self.before.read_both(&self.session.directory, reference);
        let [before, after] = states.map(|state| state.ok().flatten());
        (body(before.as_ref()) != body(after.as_ref())).then(|| Rendered {
            reference: reference.clone(),
            policies: policies.iter().map(ToString::to_string).collect(),
            before,
            after,
        })
    }
}

fn body(object: Option<&Object>) -> Option<&Value> {
    object.map(|object| &object.body)
}
