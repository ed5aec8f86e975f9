//! What a trial found for one primary, and how two passes contradict each other.

use crate::controller::account::Account;
use crate::controller::memory::LastResult;
use transom_core::failure::Class;
use transom_core::report::End;

/// How many changes are named of one that writes.
const NAMED: usize = 3;

/// What a trial found for one primary.
#[derive(PartialEq)]
pub(super) struct TriedPrimary {
    pub(super) account: Account,
    pub(super) result: LastResult,
}

impl TriedPrimary {
    pub(super) fn writes(&self) -> bool {
        !self.account.writes.changes.is_empty()
    }

    /// How two answers to the same question differ; `None` when they do not, or are none. An object that changed
    /// between two passes is another question.
    pub(super) fn contradiction(&self, other: &Self) -> Option<String> {
        let same_question = self.account.inputs == other.account.inputs;
        if !same_question || !self.is_answer() || !other.is_answer() || self.answers_like(other) {
            return None;
        }
        let (one, two) = (&self.result, &other.result);
        Some(if one.differs(two) {
            format!("{}, then {}", outcome(one), outcome(two))
        } else if self.account.writes != other.account.writes {
            format!("{}, then {}", written(self), written(other))
        } else {
            "what it decides differs, what would be written does not".to_owned()
        })
    }

    /// Whether a guest was asked: not about a primary that is gone, and not where something could not be read.
    fn is_answer(&self) -> bool {
        !self.account.inputs.is_empty() && !is_unreachable(&self.result)
    }

    /// Whether both are the same answer to the same question.
    pub(super) fn answers_like(&self, other: &Self) -> bool {
        let (one, two) = (&self.account, &other.account);
        (&one.decision, &one.writes) == (&two.decision, &two.writes)
            && !self.result.differs(&other.result)
    }
}

/// How a reconcile ended.
fn outcome(result: &LastResult) -> String {
    format!("{} ({})", result.state.as_str(), result.reason.as_str())
}

/// What a reconcile would write; of equal words the content differs.
fn written(tried: &TriedPrimary) -> String {
    let changes = tried.account.writes.changes.iter().take(NAMED);
    let changes: Vec<_> = changes.map(ToString::to_string).collect();
    match changes.is_empty() {
        true => "it would write nothing".to_owned(),
        false => format!("it would write {}", changes.join(", ")),
    }
}

/// Whether something could not be read.
pub(super) fn is_unreachable(last: &LastResult) -> bool {
    last.end == End::Ended(Class::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::account::ReadObject;
    use transom_api::KnownReason;
    use transom_core::reference::ObjectRef;

    fn tried(inputs: &[ReadObject], class: Class, reason: KnownReason) -> TriedPrimary {
        TriedPrimary {
            account: Account {
                inputs: inputs.to_vec(),
                ..Account::default()
            },
            result: LastResult::sample(End::Ended(class), reason, 0),
        }
    }

    #[test]
    fn only_answers_of_a_guest_contradict_each_other() {
        let primary = [ReadObject {
            role: "primary".to_owned(),
            object: ObjectRef::local("v1", "Thing", None, "a"),
            version: Some("1".to_owned()),
            deleting: false,
        }];
        let waits = |inputs| tried(inputs, Class::Waiting, KnownReason::StillNeeded);
        let held = |inputs| tried(inputs, Class::Held, KnownReason::SourceDeleted);
        let unread = |inputs| tried(inputs, Class::Unreachable, KnownReason::ReadFailed);
        let how = waits(&primary).contradiction(&held(&primary));
        assert_eq!(
            how.unwrap(),
            "Waiting (StillNeeded), then Held (SourceDeleted)"
        );
        assert_eq!(waits(&primary).contradiction(&waits(&primary)), None);
        // Of a primary that is gone no guest was asked.
        assert_eq!(waits(&[]).contradiction(&held(&[])), None);
        assert_eq!(waits(&primary).contradiction(&unread(&primary)), None);
        assert_eq!(unread(&primary).contradiction(&waits(&primary)), None);
    }
}
