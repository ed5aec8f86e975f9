//! Which writes changed nothing, so that they do not count.

use crate::object::Object;
use crate::plan::{Step, StepOutcome, WriteFailure};
use transom_api::KnownReason;

/// Whether a step of a plan certainly changed nothing; `done` is how it ended, `None` if it was not tried. Of a step
/// that failed, a part may be in place.
pub fn is_without_effect(step: &Step, done: Option<&StepOutcome>) -> bool {
    let Some(done) = done else {
        return true;
    };
    let fails_without = match &done.result {
        Ok(()) => true,
        Err(failure) => is_unwritten(failure),
    };
    let is_unchanged = |written| is_unchanged(written, done.left.as_deref());
    fails_without && done.written(step).is_none_or(is_unchanged)
}

/// Whether the request that failed certainly changed nothing.
fn is_unwritten(failure: &WriteFailure) -> bool {
    use KnownReason as R;
    matches!(
        failure.reason,
        R::WriteConflict
            | R::WriteForbidden
            | R::WriteInvalid
            | R::AdmissionRefused
            | R::QuotaExceeded
            | R::TargetNamespaceMissing
            | R::KindMissing
            | R::NotLeading
            | R::ReadOnly
    )
}

/// Whether a successful write left the version of its object as it was read: it wrote the same content in another form
/// than the server keeps. After a start the agent does not know the server's form yet.
fn is_unchanged(step: &Step, left: Option<&Object>) -> bool {
    let read = match step {
        Step::Update { desired, .. } => &desired.version,
        Step::Patch { version, .. } => version,
        Step::Create { .. } | Step::Delete { .. } => return false,
    };
    !read.is_empty() && left.is_some_and(|left| left.version == *read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{object, target};
    use serde_json::json;

    fn at(version: &str) -> Object {
        let mut object = object(target("demo"), json!({}));
        version.clone_into(&mut object.version);
        object
    }

    #[test]
    fn a_write_that_was_refused_changed_nothing_unless_a_part_of_it_was_written() {
        use KnownReason as R;
        let patch = Step::Patch {
            reference: target("demo"),
            version: "7".to_owned(),
            fields: Vec::new(),
        };
        assert!(is_without_effect(&patch, None), "it was not tried");
        let failure = |reason| WriteFailure {
            reason,
            message: String::new(),
        };
        let in_part = |reason, left: Option<&str>| {
            StepOutcome::in_part(&patch, failure(reason), patch.clone(), left.map(at))
        };
        for reason in [
            R::WriteForbidden,
            R::WriteInvalid,
            R::WriteConflict,
            R::AdmissionRefused,
            R::NotLeading,
        ] {
            let whole = StepOutcome::failed(&patch, failure(reason));
            assert!(is_without_effect(&patch, Some(&whole)), "{reason:?}");
            for (left, is_without) in [(Some("8"), false), (None, false), (Some("7"), true)] {
                let done = in_part(reason, left);
                assert_eq!(
                    is_without_effect(&patch, Some(&done)),
                    is_without,
                    "{reason:?}"
                );
            }
        }
        // Whether the request that failed took effect is not known.
        let unknown = StepOutcome::failed(&patch, failure(R::ServerUnavailable));
        assert!(!is_without_effect(&patch, Some(&unknown)));
        let unknown = in_part(R::ServerUnavailable, Some("7"));
        assert!(!is_without_effect(&patch, Some(&unknown)));
    }

    #[test]
    fn a_write_after_which_the_version_is_the_same_changed_nothing() {
        let update = |version: &str| Step::Update {
            desired: at(version),
            changed: Vec::new(),
        };
        let patch = |version: &str| Step::Patch {
            reference: target("demo"),
            version: version.to_owned(),
            fields: Vec::new(),
        };
        for step in [update("7"), patch("7")] {
            assert!(is_unchanged(&step, Some(&at("7"))), "{step:?}");
            assert!(!is_unchanged(&step, Some(&at("8"))), "{step:?}");
            assert!(!is_unchanged(&step, None), "{step:?}");
        }
        // Where a cluster has no versions, nothing is known.
        for step in [update(""), patch("")] {
            assert!(!is_unchanged(&step, Some(&at(""))), "{step:?}");
        }
        let created = Step::Create { desired: at("7") };
        let deleted = Step::Delete {
            reference: target("demo"),
            version: "7".to_owned(),
            uid: String::new(),
            why: String::new(),
        };
        for step in [created, deleted] {
            assert!(!is_unchanged(&step, Some(&at("7"))), "{step:?}");
        }
    }
}
