//! Decides what an observed primary means for a policy: ask its trigger guest, reconcile at once, or ignore it.
//! Compares only declared fields, fields that the policy writes, uid, deletion and pause.

use crate::contract::{Change, Primary};
use crate::digest::Digest;
use crate::object::Object;
use crate::plan::finalizer;
use crate::projection::path::Path;
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
    written: BTreeMap<String, Digest>,
    paused: bool,
}

impl LastSeen {
    /// The record of an object as it is now. After the agent's own write to the primary, the record of the written
    /// object is the new *before*: the reconcile that wrote it has seen it.
    pub fn of(object: &Object, predicate: Predicate<'_>) -> Self {
        let Predicate { declared, .. } = predicate;
        let mut written = projection::fingerprints(predicate.written, object);
        if let Some(name) = predicate.finalizer {
            let is_on = Digest::of(&finalizer::is_on(object, name).into());
            written.insert(finalizer::FIELD.to_owned(), is_on);
        }
        Self {
            primary: declared.primary(object),
            fingerprints: declared.fingerprints(object),
            written,
            paused: object.paused(),
        }
    }
}

/// What an observed primary means. Evaluated when a worker takes the request, so that several updates count as one.
#[derive(Clone, Debug, PartialEq)]
pub enum PredicateResult {
    /// Ask the trigger guest about this change. Whatever it answers, `last_seen` is the new *before*; a reconcile
    /// replaces it with what it saw.
    Ask {
        /// The change from the state seen last to the state now.
        change: Box<Change>,
        /// The new *before*.
        last_seen: LastSeen,
    },
    /// Reconcile without asking.
    Reconcile {
        /// Why.
        cause: Cause,
        /// The new *before*; the reconcile replaces it with what it saw.
        last_seen: LastSeen,
    },
    /// No declared field differs.
    Ignore,
}

/// What counts as a change of a primary under a policy.
#[derive(Clone, Copy, Debug)]
pub struct Predicate<'a> {
    /// Who evaluates a change of a declared field.
    pub evaluator: Evaluator,
    /// What the trigger guest declared of the primary's kind, or the decide guest where there is no trigger guest.
    pub declared: &'a Declared,
    /// The fields of the primary that the policy writes. A change of them always counts: someone else may have undone
    /// what the policy wrote.
    pub written: &'a [Path],
    /// The finalizer of the policy, if it has one: the primary is not gone before the policy has cleaned up, so no
    /// guest can ignore that it is being deleted.
    pub finalizer: Option<&'a str>,
}

/// Whether a policy has a trigger guest to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// The trigger guest.
    Guest,
    /// There is none: every difference counts.
    AnyChange,
}

/// Decides what an observed primary means. No `before`, or one with another uid, means that it appeared.
pub fn observe(
    predicate: Predicate<'_>,
    before: Option<&LastSeen>,
    object: &Object,
) -> PredicateResult {
    let last_seen = LastSeen::of(object, predicate);
    let enqueue = |cause, last_seen| PredicateResult::Reconcile { cause, last_seen };
    let Some(before) = before.filter(|before| before.primary.uid == last_seen.primary.uid) else {
        return enqueue(Cause::Added, last_seen);
    };
    // A pause is a matter of user and host: no guest can hide its end.
    if before.paused != last_seen.paused {
        return enqueue(Cause::Changed(vec![pause()]), last_seen);
    }
    let undone = unequal(&before.written, &last_seen.written);
    if !undone.is_empty() {
        return enqueue(Cause::Changed(undone), last_seen);
    }
    let changed = differing(predicate.declared, before, &last_seen);
    if changed.is_empty() {
        return PredicateResult::Ignore;
    }
    if predicate.finalizer.is_some() && last_seen.primary.deleting {
        return enqueue(Cause::Changed(changed), last_seen);
    }
    // No guest can judge a field of another shape; the reconcile reports what is wrong with it.
    if predicate.declared.misfit(object).is_some() {
        return enqueue(Cause::Undecided, last_seen);
    }
    if predicate.evaluator == Evaluator::AnyChange {
        return enqueue(Cause::Changed(changed), last_seen);
    }
    let change = Box::new(Change {
        before: before.primary.clone(),
        after: last_seen.primary.clone(),
        changed,
    });
    PredicateResult::Ask { change, last_seen }
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
    paths.extend(unequal(&before.fingerprints, &after.fingerprints));
    if before.primary.deleting != after.primary.deleting {
        paths.insert("metadata.deletionTimestamp".to_owned());
    }
    paths.into_iter().collect()
}

/// The paths whose fingerprints differ, sorted.
fn unequal(before: &BTreeMap<String, Digest>, after: &BTreeMap<String, Digest>) -> Vec<String> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let unequal = paths.into_iter();
    let unequal = unequal.filter(|path| before.get(*path) != after.get(*path));
    unequal.cloned().collect()
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

    /// What counts where the policy writes no field of the primary.
    fn predicate(evaluator: Evaluator, declared: &Declared) -> Predicate<'_> {
        Predicate {
            evaluator,
            declared,
            written: &[],
            finalizer: None,
        }
    }

    fn last_seen(body: &Value) -> LastSeen {
        let declared = declared();
        LastSeen::of(
            &object(hosted("demo"), body.clone()),
            predicate(Evaluator::Guest, &declared),
        )
    }

    fn enqueued(cause: Cause, body: &Value) -> PredicateResult {
        PredicateResult::Reconcile {
            cause,
            last_seen: last_seen(body),
        }
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut body = primary();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[name] = value;
        body
    }

    fn moved(evaluator: Evaluator, body: Value) -> PredicateResult {
        observe(
            predicate(evaluator, &declared()),
            Some(&last_seen(&primary())),
            &object(hosted("demo"), body),
        )
    }

    #[test]
    fn asks_no_guest_at_first_sight_or_after_a_new_uid() {
        let first = observe(
            predicate(Evaluator::Guest, &declared()),
            None,
            &object(hosted("demo"), primary()),
        );
        assert_eq!(first, enqueued(Cause::Added, &primary()));
        let anew = with("/metadata/uid", json!("u2"));
        assert_eq!(
            moved(Evaluator::Guest, anew.clone()),
            enqueued(Cause::Added, &anew)
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
                moved(Evaluator::Guest, body.clone()),
                PredicateResult::Ignore
            );
            assert_eq!(moved(Evaluator::AnyChange, body), PredicateResult::Ignore);
        }
    }

    #[test]
    fn asks_the_guest_about_declared_differences_without_hidden_values() {
        let after = with("/metadata/annotations/note", json!("also private"));
        let PredicateResult::Ask {
            change,
            last_seen: next,
        } = moved(Evaluator::Guest, after.clone())
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
                moved(Evaluator::AnyChange, after.clone()),
                enqueued(cause, &after),
                "{pointer}"
            );
        }
    }

    #[test]
    fn a_wrong_shape_is_reconciled_without_asking() {
        let after = with("/status", json!("odd"));
        assert_eq!(
            moved(Evaluator::Guest, after.clone()),
            enqueued(Cause::Undecided, &after)
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
            for (declared, evaluator) in [
                (&declared(), Evaluator::Guest),
                (&nothing, Evaluator::Guest),
                (&nothing, Evaluator::AnyChange),
            ] {
                let [before, after] =
                    [&before, &after].map(|body| object(hosted("demo"), body.clone()));
                let counted = predicate(evaluator, declared);
                let moved = observe(counted, Some(&LastSeen::of(&before, counted)), &after);
                let cause = Cause::Changed(vec![
                    "metadata.annotations[\"transom.dev/paused\"]".to_owned(),
                ]);
                let expected = PredicateResult::Reconcile {
                    cause,
                    last_seen: LastSeen::of(&after, counted),
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
        let declared = declared();
        let counted = predicate(Evaluator::AnyChange, &declared);
        let before = LastSeen::of(&written, counted);
        assert_eq!(
            observe(counted, Some(&before), &written),
            PredicateResult::Ignore
        );
    }

    #[test]
    fn with_a_finalizer_its_loss_and_a_deletion_count_without_asking() {
        let nothing = Declared::default();
        let predicate = |finalizer| Predicate {
            finalizer,
            ..predicate(Evaluator::Guest, &nothing)
        };
        let kept = with("/metadata/finalizers", json!(["a/b", "c/d"]));
        let mut deleted = kept.clone();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
        let at = |body: &Value| object(hosted("demo"), body.clone());
        let observed = |finalizer, body: &Value| {
            let before = LastSeen::of(&at(&kept), predicate(finalizer));
            match observe(predicate(finalizer), Some(&before), &at(body)) {
                PredicateResult::Reconcile { cause, .. } => Some(Some(cause)),
                PredicateResult::Ask { .. } => Some(None),
                PredicateResult::Ignore => None,
            }
        };
        let changed = |path: &str| Some(Some(Cause::Changed(vec![path.to_owned()])));
        let lost = |name| with("/metadata/finalizers", json!([name]));
        assert_eq!(
            observed(Some("c/d"), &lost("a/b")),
            changed("metadata.finalizers")
        );
        assert_eq!(observed(Some("c/d"), &lost("c/d")), None, "that of others");
        assert_eq!(observed(None, &lost("a/b")), None);
        assert_eq!(
            observed(Some("c/d"), &deleted),
            changed("metadata.deletionTimestamp")
        );
        assert_eq!(observed(None, &deleted), Some(None), "the guest is asked");
    }

    #[test]
    fn a_change_of_what_the_policy_writes_counts_whoever_declares_it() {
        let nothing = Declared::default();
        let written = [Path::parse("metadata.labels[\"a\"]").unwrap()];
        let body = |label: &str| object(hosted("demo"), with("/metadata/labels/a", json!(label)));
        for evaluator in [Evaluator::Guest, Evaluator::AnyChange] {
            let predicate = Predicate {
                evaluator,
                declared: &nothing,
                written: &written,
                finalizer: None,
            };
            let before = LastSeen::of(&body("ours"), predicate);
            let same = observe(predicate, Some(&before), &body("ours"));
            assert_eq!(same, PredicateResult::Ignore);
            let undone = observe(predicate, Some(&before), &body("theirs"));
            let expected = PredicateResult::Reconcile {
                cause: Cause::Changed(vec!["metadata.labels.a".to_owned()]),
                last_seen: LastSeen::of(&body("theirs"), predicate),
            };
            assert_eq!(undone, expected);
        }
    }
}
