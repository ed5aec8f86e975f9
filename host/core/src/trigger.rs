//! Decides what an observed primary means for a policy: ask its trigger guest, reconcile at once, or ignore it.
//! Compares only declared fields, uid, deletion and pause.

use crate::contract::{Change, Primary};
use crate::digest::Digest;
use crate::object::Object;
use crate::projection::{self, Declared};
use crate::work::Cause;
use std::collections::{BTreeMap, BTreeSet};
use transom_api::labels;

/// The state of a primary that a policy's trigger guest (or, without one, the host) judged last: *before*. In memory
/// only.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    primary: Primary,
    marks: BTreeMap<String, Digest>,
    paused: bool,
}

impl Judged {
    /// The record of an object as it is now. After the agent's own write to the primary, the record of the written
    /// object is the new *before*: the reconcile that wrote it has judged it.
    pub fn of(object: &Object, declared: &Declared) -> Self {
        Self { primary: declared.primary(object), marks: declared.marks(object), paused: object.paused() }
    }
}

/// What an observed primary means.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Ask the trigger guest about this change. Whatever it answers, `judged` is the new *before*; on `Run` it is
    /// replaced in the step that enqueues.
    Ask {
        /// The change from the state judged last to the state now.
        change: Box<Change>,
        /// The new *before*.
        judged: Judged,
    },
    /// Reconcile without asking.
    Enqueue {
        /// Why.
        cause: Cause,
        /// The new *before*, replaced in the step that enqueues.
        judged: Judged,
    },
    /// No declared field differs.
    Ignore,
}

/// Whether a policy has a trigger guest to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The trigger guest.
    Guest,
    /// There is none: every difference counts.
    Nobody,
}

/// Decides what an observed primary means. `declared` is what the trigger guest declared of the primary's kind, or
/// the decide guest where there is no trigger guest. No `before`, or one with another uid, means that it appeared.
pub fn observe(judge: Judge, declared: &Declared, before: Option<&Judged>, object: &Object) -> Move {
    let judged = Judged::of(object, declared);
    let Some(before) = before.filter(|before| before.primary.uid == judged.primary.uid) else {
        return Move::Enqueue { cause: Cause::Added, judged };
    };
    // A pause is a matter of user and host: no guest can hide its end.
    if before.paused != judged.paused {
        return Move::Enqueue { cause: Cause::Changed(vec![pause()]), judged };
    }
    let changed = differing(declared, before, &judged);
    match (changed.is_empty(), judge) {
        (true, _) => Move::Ignore,
        // No guest can judge a field of another shape; the reconcile reports what is wrong with it.
        _ if declared.misfit(object).is_some() => Move::Enqueue { cause: Cause::Undecided, judged },
        (false, Judge::Nobody) => Move::Enqueue { cause: Cause::Changed(changed), judged },
        (false, Judge::Guest) => {
            let change = Change { before: before.primary.clone(), after: judged.primary.clone(), changed };
            Move::Ask { change: Box::new(change), judged }
        }
    }
}

/// The path of the pause annotation.
fn pause() -> String {
    format!("metadata.annotations[\"{}\"]", labels::PAUSED)
}

/// The declared paths that differ, sorted; the start of a deletion always counts.
fn differing(declared: &Declared, before: &Judged, after: &Judged) -> Vec<String> {
    let mut paths: BTreeSet<String> =
        projection::changed(&before.primary.fields, &after.primary.fields, &declared.fields).into_iter().collect();
    let marked = before.marks.keys().chain(after.marks.keys());
    paths.extend(marked.filter(|path| before.marks.get(*path) != after.marks.get(*path)).cloned());
    if before.primary.deleting != after.primary.deleting {
        paths.insert("metadata.deletionTimestamp".to_owned());
    }
    paths.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{HOSTED, guest, hosted, object};
    use serde_json::{Value, json};

    fn declared() -> Declared {
        let guest = guest(&["status.conditions[Available]", "status.version"], &["metadata.annotations"]);
        guest.declared(HOSTED.0, HOSTED.1).clone()
    }

    fn primary() -> Value {
        json!({
            "metadata": {"uid": "u1", "annotations": {"note": "private"}, "labels": {"a": "b"}},
            "status": {"conditions": [{"type": "Available", "status": "True"}]},
        })
    }

    fn judged(body: &Value) -> Judged {
        Judged::of(&object(hosted("demo"), body.clone()), &declared())
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut body = primary();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[name] = value;
        body
    }

    fn moved(judge: Judge, body: Value) -> Move {
        observe(judge, &declared(), Some(&judged(&primary())), &object(hosted("demo"), body))
    }

    #[test]
    fn first_sight_and_a_new_uid_are_not_asked() {
        let first = observe(Judge::Guest, &declared(), None, &object(hosted("demo"), primary()));
        assert_eq!(first, Move::Enqueue { cause: Cause::Added, judged: judged(&primary()) });
        let anew = with("/metadata/uid", json!("u2"));
        assert_eq!(moved(Judge::Guest, anew.clone()), Move::Enqueue { cause: Cause::Added, judged: judged(&anew) });
    }

    #[test]
    fn what_was_not_declared_is_ignored() {
        for body in [primary(), with("/metadata/labels/a", json!("c")), with("/metadata/resourceVersion", json!("9"))] {
            assert_eq!(moved(Judge::Guest, body.clone()), Move::Ignore);
            assert_eq!(moved(Judge::Nobody, body), Move::Ignore);
        }
    }

    #[test]
    fn a_declared_difference_is_put_to_the_guest_without_hidden_values() {
        let after = with("/metadata/annotations/note", json!("also private"));
        let Move::Ask { change, judged: next } = moved(Judge::Guest, after.clone()) else { panic!("not asked") };
        assert_eq!(change.changed, ["metadata.annotations.note"]);
        assert_eq!(change.before.fields, change.after.fields);
        assert!(!format!("{change:?}").contains("private"));
        assert_eq!(next, judged(&after));
    }

    #[test]
    fn without_a_guest_every_declared_difference_counts() {
        for (pointer, value, path) in [
            ("/status/conditions/0/status", json!("False"), "status.conditions[Available].status"),
            ("/status/version", json!({"history": []}), "status.version.history"),
            ("/metadata/deletionTimestamp", json!("2026-11-21T08:15:30Z"), "metadata.deletionTimestamp"),
        ] {
            let after = with(pointer, value);
            let cause = Cause::Changed(vec![path.to_owned()]);
            assert_eq!(moved(Judge::Nobody, after.clone()), Move::Enqueue { cause, judged: judged(&after) }, "{pointer}");
        }
    }

    #[test]
    fn another_shape_is_reconciled_without_asking() {
        let after = with("/status", json!("odd"));
        assert_eq!(moved(Judge::Guest, after.clone()), Move::Enqueue { cause: Cause::Undecided, judged: judged(&after) });
    }

    #[test]
    fn no_guest_is_asked_about_a_pause() {
        let body = |value: &str| with("/metadata/annotations", json!({"note": "private", "transom.dev/paused": value}));
        let nothing = Declared::default();
        for (before, after, counts) in [
            (primary(), body("true"), true),
            (body("true"), primary(), true),
            (body("true"), body("false"), true),
            (body("true"), body("until tomorrow"), false),
            (primary(), body("false"), false),
        ] {
            for (declared, judge) in [(&declared(), Judge::Guest), (&nothing, Judge::Guest), (&nothing, Judge::Nobody)]
            {
                let [before, after] = [&before, &after].map(|body| object(hosted("demo"), body.clone()));
                let moved = observe(judge, declared, Some(&Judged::of(&before, declared)), &after);
                let cause = Cause::Changed(vec!["metadata.annotations[\"transom.dev/paused\"]".to_owned()]);
                let expected = Move::Enqueue { cause, judged: Judged::of(&after, declared) };
                assert_eq!(moved == expected, counts, "{after:?} {moved:?}");
            }
        }
    }

    #[test]
    fn an_own_write_does_not_come_back() {
        let written = object(hosted("demo"), with("/status/version", json!({"history": []})));
        let before = Judged::of(&written, &declared());
        assert_eq!(observe(Judge::Nobody, &declared(), Some(&before), &written), Move::Ignore);
    }
}
