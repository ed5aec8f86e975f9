//! What a trial found for one primary, and whether two passes contradict each other.

use crate::controller::account::Account;
use crate::controller::memory::LastResult;
use transom_core::failure::Class;
use transom_core::report::End;

/// What a trial found for one primary.
#[derive(PartialEq)]
pub(super) struct Tried {
    pub(super) account: Account,
    pub(super) result: LastResult,
}

impl Tried {
    pub(super) fn writes(&self) -> bool {
        !self.account.writes.changes.is_empty()
    }

    /// Whether both are answers to the same question, and not the same. An object that changed between two passes is
    /// another question.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        self.is_answer()
            && other.is_answer()
            && self.account.inputs == other.account.inputs
            && !self.answers_like(other)
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

/// Whether something could not be read.
pub(super) fn is_unreachable(last: &LastResult) -> bool {
    last.end == End::Ended(Class::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::account::Read;
    use transom_api::KnownReason;
    use transom_core::reference::ObjectRef;

    fn tried(inputs: &[Read], class: Class, reason: KnownReason) -> Tried {
        Tried {
            account: Account {
                inputs: inputs.to_vec(),
                ..Account::default()
            },
            result: LastResult::sample(End::Ended(class), reason, 0),
        }
    }

    #[test]
    fn only_answers_of_a_guest_contradict_each_other() {
        let primary = [Read {
            role: "primary".to_owned(),
            object: ObjectRef::local("v1", "Thing", None, "a"),
            version: Some("1".to_owned()),
            deleting: false,
        }];
        let waits = |inputs| tried(inputs, Class::Waiting, KnownReason::StillNeeded);
        let held = |inputs| tried(inputs, Class::Held, KnownReason::SourceDeleted);
        let unread = |inputs| tried(inputs, Class::Unreachable, KnownReason::ReadFailed);
        assert!(waits(&primary).contradicts(&held(&primary)));
        assert!(!waits(&primary).contradicts(&waits(&primary)));
        // Of a primary that is gone no guest was asked.
        assert!(!waits(&[]).contradicts(&held(&[])));
        assert!(!waits(&primary).contradicts(&unread(&primary)));
        assert!(!unread(&primary).contradicts(&waits(&primary)));
    }
}
