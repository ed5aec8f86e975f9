//! Decides what an observed primary means for a policy: ask its trigger guest, reconcile at once, or ignore it.
//! Compares only declared fields, uid, deletion and pause.

use crate::contract::{Change, Primary};
use crate::digest::Digest;
use crate::object::Object;
use crate::projection::{self, Declared};
use crate::work::Cause;
use std::collections::{BTreeMap, BTreeSet};
use transom_api::labels;

/// The state of a primary that a policy's trigger guest (or, without one, the host) saw last: *before*. In memory
/// only.
#[derive(Clone, Debug, PartialEq)]
pub struct LastSeen {
    primary: Primary,
    fingerprints: BTreeMap<String, Digest>,
    paused: bool,
}

impl LastSeen {
    /// The record of an object as it is now. After the agent's own write to the primary, the record of the written
    /// object is the new *before*: the reconcile that wrote it has seen it.
    pub fn of(object: &Object, declared: &Declared) -> Self {
        Self {
            primary: declared.primary(object),
            fingerprints: declared.fingerprints(object),
            paused: object.paused(),
        }
    }
}

/// What an observed primary means.
#[derive(Clone, Debug, PartialEq)]
pub enum PredicateResult {
    /// Ask the trigger guest about this change. Whatever it answers, `last_seen` is the new *before*; on `Run` it is
    /// replaced in the step that enqueues.
    Ask {
        /// The change from the state seen last to the state now.
        change: Box<Change>,
        /// The new *before*.
        last_seen: LastSeen,
    },
    /// Reconcile without asking.
    Enqueue {
        /// Why.
        cause: Cause,
        /// The new *before*, replaced in the step that enqueues.
        last_seen: LastSeen,
    },
    /// No declared field differs.
    Ignore,
}

/// Whether a policy has a trigger guest to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// The trigger guest.
    Guest,
    /// There is none: every difference counts.
    AnyChange,
}

/// Decides what an observed primary means. `declared` is what the trigger guest declared of the primary's kind, or
/// the decide guest where there is no trigger guest. No `before`, or one with another uid, means that it appeared.
pub fn observe(
    predicate: Predicate,
    declared: &Declared,
    before: Option<&LastSeen>,
    object: &Object,
) -> PredicateResult {
    let last_seen = LastSeen::of(object, declared);
    let Some(before) = before.filter(|before| before.primary.uid == last_seen.primary.uid) else {
        return PredicateResult::Enqueue {
            cause: Cause::Added,
            last_seen,
        };
    };
    // A pause is a matter of user and host: no guest can hide its end.
    if before.paused != last_seen.paused {
        return PredicateResult::Enqueue {
            cause: Cause::Changed(vec![pause()]),
            last_seen,
        };
    }
    let changed = differing(declared, before, &last_seen);
    match (changed.is_empty(), predicate) {
        (true, _) => PredicateResult::Ignore,
        // No guest can judge a field of another shape; the reconcile reports what is wrong with it.
        _ if declared.misfit(object).is_some() => PredicateResult::Enqueue {
            cause: Cause::Undecided,
            last_seen,
        },
        (false, Predicate::AnyChange) => PredicateResult::Enqueue {
            cause: Cause::Changed(changed),
            last_seen,
        },
        (false, Predicate::Guest) => {
            let change = Change {
                before: before.primary.clone(),
                after: last_seen.primary.clone(),
                changed,
            };
            PredicateResult::Ask {
                change: Box::new(change),
                last_seen,
            }
        }
    }
}

/// The path of the pause annotation.
fn pause() -> String {
    format!("metadata.annotations[\"{}\"]", labels::PAUSED)
}

/// The declared paths that differ, sorted; the start of a deletion always counts.
fn differing(declared: &Declared, before: &LastSeen, after: &LastSeen) -> Vec<String> {
    let mut paths: BTreeSet<String> = projection::changed(
        &before.primary.fields,
        &after.primary.fields,
        &declared.fields,
    )
    .into_iter()
    .collect();
    let marked = before.fingerprints.keys().chain(after.fingerprints.keys());
    paths.extend(
        marked
            .filter(|path| before.fingerprints.get(*path) != after.fingerprints.get(*path))
            .cloned(),
    );
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
        let guest = guest(
            &["status.conditions[Available]", "status.version"],
            &["metadata.annotations"],
        );
        guest.declared(HOSTED.0, HOSTED.1).clone()
    }

    fn primary() -> Value {
        json!({
            "metadata": {"uid": "u1", "annotations": {"note": "private"}, "labels": {"a": "b"}},
            "status": {"conditions": [{"type": "Available", "status": "True"}]},
        })
    }

    fn last_seen(body: &Value) -> LastSeen {
        LastSeen::of(&object(hosted("demo"), body.clone()), &declared())
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut body = primary();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[name] = value;
        body
    }

    fn moved(predicate: Predicate, body: Value) -> PredicateResult {
        observe(
            predicate,
            &declared(),
            Some(&last_seen(&primary())),
            &object(hosted("demo"), body),
        )
    }

    #[test]
    fn asks_no_guest_at_first_sight_or_after_a_new_uid() {
        let first = observe(
            Predicate::Guest,
            &declared(),
            None,
            &object(hosted("demo"), primary()),
        );
        assert_eq!(
            first,
            PredicateResult::Enqueue {
                cause: Cause::Added,
                last_seen: last_seen(&primary())
            }
        );
        let anew = with("/metadata/uid", json!("u2"));
        assert_eq!(
            moved(Predicate::Guest, anew.clone()),
            PredicateResult::Enqueue {
                cause: Cause::Added,
                last_seen: last_seen(&anew)
            }
        );
    }

    #[test]
    fn ignores_undeclared_fields() {
        for body in [
            primary(),
            with("/metadata/labels/a", json!("c")),
            with("/metadata/resourceVersion", json!("9")),
        ] {
            assert_eq!(
                moved(Predicate::Guest, body.clone()),
                PredicateResult::Ignore
            );
            assert_eq!(moved(Predicate::AnyChange, body), PredicateResult::Ignore);
        }
    }

    #[test]
    fn asks_the_guest_about_declared_differences_without_hidden_values() {
        let after = with("/metadata/annotations/note", json!("also private"));
        let PredicateResult::Ask {
            change,
            last_seen: next,
        } = moved(Predicate::Guest, after.clone())
        else {
            panic!("not asked")
        };
        assert_eq!(change.changed, ["metadata.annotations.note"]);
        assert_eq!(change.before.fields, change.after.fields);
        assert!(!format!("{change:?}").contains("private"));
        assert_eq!(next, last_seen(&after));
    }

    #[test]
    fn without_a_guest_every_declared_difference_triggers() {
        for (pointer, value, path) in [
            (
                "/status/conditions/0/status",
                json!("False"),
                "status.conditions[Available].status",
            ),
            (
                "/status/version",
                json!({"history": []}),
                "status.version.history",
            ),
            (
                "/metadata/deletionTimestamp",
                json!("2026-11-21T08:15:30Z"),
                "metadata.deletionTimestamp",
            ),
        ] {
            let after = with(pointer, value);
            let cause = Cause::Changed(vec![path.to_owned()]);
            assert_eq!(
                moved(Predicate::AnyChange, after.clone()),
                PredicateResult::Enqueue {
                    cause,
                    last_seen: last_seen(&after)
                },
                "{pointer}"
            );
        }
    }

    #[test]
    fn a_wrong_shape_is_reconciled_without_asking() {
        let after = with("/status", json!("odd"));
        assert_eq!(
            moved(Predicate::Guest, after.clone()),
            PredicateResult::Enqueue {
                cause: Cause::Undecided,
                last_seen: last_seen(&after)
            }
        );
    }

    #[test]
    fn asks_no_guest_about_a_pause() {
        let body = |value: &str| {
            with(
                "/metadata/annotations",
                json!({"note": "private", "transom.dev/paused": value}),
            )
        };
        let nothing = Declared::default();
        for (before, after, counts) in [
            (primary(), body("true"), true),
            (body("true"), primary(), true),
            (body("true"), body("false"), true),
            (body("true"), body("until tomorrow"), false),
            (primary(), body("false"), false),
        ] {
            for (declared, predicate) in [
                (&declared(), Predicate::Guest),
                (&nothing, Predicate::Guest),
                (&nothing, Predicate::AnyChange),
            ] {
                let [before, after] =
                    [&before, &after].map(|body| object(hosted("demo"), body.clone()));
                let moved = observe(
                    predicate,
                    declared,
                    Some(&LastSeen::of(&before, declared)),
                    &after,
                );
                let cause = Cause::Changed(vec![
                    "metadata.annotations[\"transom.dev/paused\"]".to_owned(),
                ]);
                let expected = PredicateResult::Enqueue {
                    cause,
                    last_seen: LastSeen::of(&after, declared),
                };
                assert_eq!(moved == expected, counts, "{after:?} {moved:?}");
            }
        }
    }

    #[test]
    fn own_writes_do_not_trigger() {
        let written = object(
            hosted("demo"),
            with("/status/version", json!({"history": []})),
        );
        let before = LastSeen::of(&written, &declared());
        assert_eq!(
            observe(Predicate::AnyChange, &declared(), Some(&before), &written),
            PredicateResult::Ignore
        );
    }
}
