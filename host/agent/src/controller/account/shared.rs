//! What would be written to objects that all primaries share. The others see it as if it were there: in a run that
//! writes, they find it and have nothing to write there themselves.

use std::collections::HashMap;
use std::sync::Mutex;
use transom_core::object::Object;
use transom_core::plan::{Step, effect};
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;
use transom_core::stamp::Stamp;
use transom_core::work::Key;

/// The last such step to each object, with the key that plans it.
#[derive(Default)]
pub(crate) struct SharedWrites(Mutex<HashMap<ObjectRef, (Key, Step)>>);

impl SharedWrites {
    /// Shows a step to others; whether that is news.
    pub(crate) fn show(&self, key: &Key, step: &Step) -> bool {
        let shown = (key.clone(), step.clone());
        let before = self.0.locked().insert(step.target().clone(), shown.clone());
        before != Some(shown)
    }

    /// Shows the steps of a key to such targets no longer.
    pub(crate) fn hide(&self, key: &Key, hides: impl Fn(&ObjectRef) -> bool) {
        let shown = &mut *self.0.locked();
        shown.retain(|target, (writer, _)| writer != key || !hides(target));
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.0.locked().clear();
    }

    /// Forgets the steps of a policy, which has another revision now.
    pub(crate) fn forget(&self, policy: &str) {
        let shown = &mut *self.0.locked();
        shown.retain(|_, (writer, _)| *writer.policy != *policy);
    }

    /// The stamp that the step of a key would leave: it keeps the object, as after a write.
    pub(crate) fn stamp(&self, key: &Key, target: &ObjectRef) -> Option<Stamp> {
        match self.0.locked().get(target) {
            Some((writer, Step::Create { desired } | Step::Update { desired, .. }))
                if writer == key =>
            {
                Stamp::read(desired)
            }
            _ => None,
        }
    }

    /// An object as a key sees it. Who writes it sees what is there, and so plans the same step again.
    pub(crate) fn over(
        &self,
        key: &Key,
        reference: &ObjectRef,
        there: Option<Object>,
    ) -> Option<Object> {
        match self.0.locked().get(reference) {
            Some((writer, step)) if writer != key => effect::after(step, there),
            _ => there,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn others_see_what_would_be_written_and_its_writer_sees_what_is_there() {
        let key = |name| Key::new(&"p".into(), &ObjectRef::local("v1", "Thing", None, name));
        let [writer, other] = ["writer", "other"].map(key);
        let role = |rules: &str| Object {
            reference: ObjectRef::local("r/v1", "ClusterRole", None, "shared"),
            version: String::new(),
            body: json!({"rules": rules}),
        };
        let make = |rules| Step::Create {
            desired: role(rules),
        };
        let shared = SharedWrites::default();
        let seen = |shared: &SharedWrites| {
            [&writer, &other].map(|key| shared.over(key, &role("").reference, None))
        };
        assert!(shared.show(&writer, &make("a")));
        assert!(!shared.show(&writer, &make("a")), "said before");
        assert_eq!(seen(&shared), [None, Some(role("a"))]);
        assert!(shared.show(&writer, &make("b")));
        assert_eq!(seen(&shared), [None, Some(role("b"))]);
        shared.hide(&other, |_| true);
        assert_eq!(seen(&shared), [None, Some(role("b"))], "it is another's");
        shared.hide(&writer, |target| target.name == "another");
        assert_eq!(seen(&shared), [None, Some(role("b"))], "to another target");
        shared.hide(&writer, |target| *target == role("").reference);
        assert_eq!(seen(&shared), [None, None]);
        shared.show(&other, &make("a"));
        shared.forget("q");
        assert_eq!(seen(&shared), [Some(role("a")), None]);
        shared.forget("p");
        assert_eq!(seen(&shared), [None, None]);
    }
}
