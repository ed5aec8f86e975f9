//! Decides what an observed subject means for a policy: ask its trigger guest, evaluate at once, or nothing.
//! Never reads a field that was not declared, never fails, never asks a guest itself.

use crate::contract::{Change, Subject};
use crate::digest::Digest;
use crate::object::Object;
use crate::projection::{self, Declared};
use crate::work::Why;
use std::collections::{BTreeMap, BTreeSet};

/// What a policy's trigger guest (or, without one, the host) judged last of one subject: *before*. In memory only.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    subject: Subject,
    marks: BTreeMap<String, Digest>,
}

impl Judged {
    /// The record of an object as it is now. After an own write to the subject, the record of the written object
    /// is the new *before*: the evaluation that wrote it has judged it.
    pub fn of(object: &Object, declared: &Declared) -> Self {
        Self { subject: declared.subject(object), marks: declared.marks(object) }
    }
}

/// What an observed subject means.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Put this change to the trigger guest. Whatever it answers, `judged` is the new *before*; on `Run` it is
    /// replaced in the step that enqueues.
    Ask {
        /// From what was judged last to what is there now.
        change: Box<Change>,
        /// The new *before*.
        judged: Judged,
    },
    /// Evaluate without asking.
    Enqueue {
        /// Why.
        why: Why,
        /// The new *before*, replaced in the step that enqueues.
        judged: Judged,
    },
    /// Nothing that was declared differs.
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

/// Decides what an observed subject means. `declared` is what the trigger guest declared of the subject's kind,
/// or the decide guest where there is no trigger guest. No `before`, or another uid, means: appeared.
pub fn observe(judge: Judge, declared: &Declared, before: Option<&Judged>, object: &Object) -> Move {
    let judged = Judged::of(object, declared);
    let Some(before) = before.filter(|before| before.subject.uid == judged.subject.uid) else {
        return Move::Enqueue { why: Why::Appeared, judged };
    };
    let changed = differing(declared, before, &judged);
    match (changed.is_empty(), judge) {
        (true, _) => Move::Ignore,
        (false, Judge::Nobody) => Move::Enqueue { why: Why::Changed(changed), judged },
        (false, Judge::Guest) => {
            let change = Change { before: before.subject.clone(), after: judged.subject.clone(), changed };
            Move::Ask { change: Box::new(change), judged }
        }
    }
}

/// The declared paths that differ, sorted; the start of a deletion always counts.
fn differing(declared: &Declared, before: &Judged, after: &Judged) -> Vec<String> {
    let mut paths: BTreeSet<String> =
        projection::changed(&before.subject.fields, &after.subject.fields, &declared.fields).into_iter().collect();
    let marked = before.marks.keys().chain(after.marks.keys());
    paths.extend(marked.filter(|path| before.marks.get(*path) != after.marks.get(*path)).cloned());
    if before.subject.deleting != after.subject.deleting {
        paths.insert("metadata.deletionTimestamp".to_owned());
    }
    paths.into_iter().collect()
}
