//! Which writes changed nothing, so that they do not count.

use crate::object::Object;
use crate::plan::{Step, WriteFailure};
use transom_api::KnownReason;

/// Whether a failed write certainly changed nothing.
pub fn is_unwritten(failure: &WriteFailure) -> bool {
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
pub fn is_unchanged(step: &Step, left: Option<&Object>) -> bool {
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
