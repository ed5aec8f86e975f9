//! Compares the objects that may be written with what the guest was shown of them: its answer rests on that.

use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::contract::decide::Form;
use transom_core::failure::Failure;
use transom_core::inputs::Found;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;

/// An object as the guest was shown it.
pub(super) fn shown<'a>(found: &'a [Found], object: &ObjectRef) -> Option<&'a Arc<Object>> {
    let shown = found.iter().filter(|found| found.need.form == Form::Object);
    let mut shown = shown.filter_map(|found| found.object.as_ref());
    shown.find(|shown| shown.reference == *object)
}

/// The failure for a target that was deleted after the guest was shown it: an answer that takes it for there would make
/// it again.
pub(super) fn gone_since(object: &ObjectRef) -> Failure {
    let message = format!("{object} was deleted after the guest was shown it");
    Failure::known(KnownReason::WriteConflict, message).about([object.clone()])
}

/// An object that may be written, at the version at which the guest was shown it: where it changed since, the answer
/// rests on what it said before, so a write of it is a conflict, and the guest is asked again. Returns whether it
/// changed.
pub(super) fn as_shown(found: &[Found], existing: &mut Option<Arc<Object>>) -> bool {
    let Some(there) = existing else { return false };
    let shown = shown(found, &there.reference);
    let other = shown.filter(|shown| shown.version != there.version);
    if let Some(shown) = other {
        Arc::make_mut(there).version.clone_from(&shown.version);
    }
    other.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_core::contract::decide::{Absence, Need, Wake};

    fn object(version: &str) -> Arc<Object> {
        Arc::new(Object {
            reference: ObjectRef::local("v1", "Thing", None, "one"),
            version: version.to_owned(),
            body: json!({"metadata": {"resourceVersion": version}}),
        })
    }

    fn shown(form: Form, object: Arc<Object>) -> [Found; 1] {
        let need = Need {
            role: "a".to_owned(),
            reference: object.reference.clone(),
            form,
            absence: Absence::Fine,
            wake: Wake::Change,
        };
        [Found {
            need,
            object: Some(object),
            value: None,
            observed: None,
        }]
    }

    #[test]
    fn only_what_a_guest_was_shown_can_go_after_that() {
        let one = object("1");
        let is_shown =
            |form| super::shown(&shown(form, Arc::clone(&one)), &one.reference).is_some();
        assert!(is_shown(Form::Object) && !is_shown(Form::Presence));
    }

    #[test]
    fn what_changed_since_a_guest_was_shown_it_is_written_at_the_version_that_was_shown() {
        let version = |found: &[Found]| {
            let mut there = Some(object("2"));
            let moved = as_shown(found, &mut there);
            let version = there.map(|there| there.version.clone());
            assert_eq!(moved, version.as_deref() != Some("2"));
            version
        };
        assert_eq!(
            version(&shown(Form::Object, object("1"))).as_deref(),
            Some("1")
        );
        assert_eq!(
            version(&shown(Form::Object, object("2"))).as_deref(),
            Some("2")
        );
        // It was told of its presence only, which did not change.
        assert_eq!(
            version(&shown(Form::Presence, object("1"))).as_deref(),
            Some("2")
        );
        assert_eq!(version(&[]).as_deref(), Some("2"));
    }
}
