//! What a trial found for one primary, and how two passes contradict each other.

use crate::controller::account::Account;
use crate::controller::memory::LastResult;
use transom_core::failure::Class;
use transom_core::report::End;

/// How many changes are named of one that writes.
const NAMED: usize = 3;

/// What a trial found for one primary.
pub(super) struct TriedPrimary {
    pub(super) account: Account,
    pub(super) result: LastResult,
}

impl TriedPrimary {
    pub(super) fn writes(&self) -> bool {
        !self.account.writes.changes.is_empty()
    }

    /// Whether the primary is gone: no guest is asked, so it is not reconciled twice.
    pub(super) fn is_gone(&self) -> bool {
        self.result.end == End::Gone
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
            different_writes(self, other)
        } else {
            "what it decides differs, what would be written does not".to_owned()
        })
    }

    /// Whether a guest was asked: not about a primary that is gone, not where something could not be read, and not
    /// while other primaries are not located.
    fn is_answer(&self) -> bool {
        let unlocated = self.result.end == End::Ended(Class::Unlocated);
        !self.account.inputs.is_empty() && !is_unreachable(&self.result) && !unlocated
    }

    /// Whether both are the same answer to the same question.
    fn answers_like(&self, other: &Self) -> bool {
        let (one, two) = (&self.account, &other.account);
        (&one.decision, &one.writes) == (&two.decision, &two.writes)
            && !self.result.differs(&other.result)
    }
}

/// How a reconcile ended.
fn outcome(result: &LastResult) -> String {
    format!("{} ({})", result.state.as_str(), result.reason.as_str())
}

/// The writes that only one of two reconciles has.
fn different_writes(one: &TriedPrimary, other: &TriedPrimary) -> String {
    let only = |one: &TriedPrimary, other: &TriedPrimary| {
        let known = &other.account.writes.changes;
        let changes = one.account.writes.changes.iter();
        let mut only = changes.filter(|change| !known.contains(change));
        let named: Vec<_> = only
            .by_ref()
            .take(NAMED)
            .map(|change| change.effect.to_string())
            .collect();
        let more = if only.next().is_some() { ", …" } else { "" };
        (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
    };
    let not = || "not".to_owned();
    match (only(one, other), only(other, one)) {
        (None, None) => "it would write other content".to_owned(),
        (None, Some(other)) => format!("it would not write {other}, then it would"),
        (Some(one), other) => format!("it would write {one}, then {}", other.unwrap_or_else(not)),
    }
}

/// Whether something could not be read.
pub(super) fn is_unreachable(last: &LastResult) -> bool {
    last.end == End::Ended(Class::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::super::unstable::contradictions;
    use super::*;
    use crate::controller::account::ReadObject;
    use std::collections::BTreeMap;
    use transom_api::KnownReason;
    use transom_core::digest::Digest;
    use transom_core::plan::effect::{Effect, EffectVerb};
    use transom_core::plan::fleet::PlannedChange;
    use transom_core::reference::ObjectRef;
    use transom_core::work::Key;

    fn tried(inputs: &[ReadObject], class: Class, reason: KnownReason) -> TriedPrimary {
        TriedPrimary {
            account: Account {
                inputs: inputs.to_vec(),
                ..Account::default()
            },
            result: LastResult::sample(End::Ended(class), reason, 0),
        }
    }

    fn read() -> ReadObject {
        ReadObject {
            role: "primary".to_owned(),
            object: ObjectRef::local("v1", "Thing", None, "a"),
            version: Some("1".to_owned()),
            deleting: false,
        }
    }

    fn applied(verbs: &[EffectVerb], content: &str, decision: i32) -> TriedPrimary {
        let mut tried = TriedPrimary {
            account: Account {
                inputs: vec![read()],
                ..Account::default()
            },
            result: LastResult::sample(End::InSync, KnownReason::InSync, 0),
        };
        let change = |verb: &EffectVerb| PlannedChange {
            effect: Effect {
                kind: "Thing".to_owned(),
                path: String::new(),
                element: String::new(),
                verb: *verb,
            },
            fields: Vec::new(),
        };
        tried.account.writes.changes = verbs.iter().map(change).collect();
        tried.account.writes.digest = Some(Digest::of_bytes(content.as_bytes()));
        tried.account.decision = Some(decision.into());
        tried
    }

    #[test]
    fn how_two_answers_differ_is_told() {
        use EffectVerb::{Created, Deleted, Updated};
        let how = |one: &[EffectVerb], other: &[EffectVerb]| {
            let told = applied(one, "a", 1).contradiction(&applied(other, "b", 1));
            told.unwrap()
        };
        assert_eq!(
            how(&[Created], &[]),
            "it would write Thing created, then not"
        );
        assert_eq!(
            how(&[], &[Created]),
            "it would not write Thing created, then it would"
        );
        assert_eq!(
            how(&[Created, Updated], &[Updated, Deleted]),
            "it would write Thing created, then Thing deleted"
        );
        assert_eq!(how(&[Created], &[Created]), "it would write other content");
        assert_eq!(
            applied(&[], "a", 1).contradiction(&applied(&[], "a", 2)),
            Some("what it decides differs, what would be written does not".to_owned())
        );
        assert_eq!(
            applied(&[Created], "a", 1).contradiction(&applied(&[Created], "a", 1)),
            None
        );
    }

    #[test]
    fn only_answers_of_a_guest_contradict_each_other() {
        let primary = [read()];
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
        let unlocated = tried(&primary, Class::Unlocated, KnownReason::OwnershipPending);
        assert_eq!(unlocated.contradiction(&waits(&primary)), None);
    }

    #[test]
    fn a_guest_contradicts_itself_where_both_passes_have_an_answer_and_no_fault() {
        let key = |name: &str| {
            let object = ObjectRef::local("v1", "Thing", None, name);
            Key::new(&"policy".into(), &object)
        };
        let one = |result: [TriedPrimary; 3]| -> BTreeMap<Key, TriedPrimary> {
            ["a", "b", "c"].map(key).into_iter().zip(result).collect()
        };
        let trapped = || {
            let mut tried = applied(&[], "a", 1);
            let end = End::Ended(Class::Invalid);
            tried.result = LastResult::sample(end, KnownReason::GuestTrapped, 0);
            tried
        };
        let answer = |decision| applied(&[], "a", decision);
        let first = one([answer(1), answer(1), answer(1)]);
        let mut second = one([answer(2), trapped(), answer(1)]);
        let found = contradictions(&first, &second);
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [key("a")]);
        second.remove(&key("a"));
        assert!(contradictions(&first, &second).is_empty());
    }
}
