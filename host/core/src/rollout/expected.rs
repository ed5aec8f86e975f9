//! What a trial found for each primary, as digests: kept with the revision, and compared with what is planned once it
//! is active. Equal questions have equal plans; a question that is not among them says nothing.

use super::Probation;
use crate::contract::AgentFacts;
use crate::contract::decide::Input;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::inputs::Found;
use crate::object::Object;
use crate::plan::fleet::Writes;
use crate::plan::{Other, TargetState, Unplanned};
use crate::work::Key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// For how many primaries a plan is kept. With twelve bytes each it fits into the annotations of an object, which may
/// have 256 KiB together.
pub const MOST: usize = 10_000;
/// The size of one mark, in bytes: a question, and what is planned.
const MARK: usize = 12;

/// Everything that the plan of one primary rests on, but for the time.
#[derive(Clone, Copy, Debug)]
pub struct PlanQuestion<'a> {
    /// The primary under its policy.
    pub key: &'a Key,
    /// Facts about the agent.
    pub facts: &'a AgentFacts,
    /// The primary as it was read.
    pub primary: &'a Object,
    /// The inputs, by [`inputs`].
    pub inputs: Option<&'a Digest>,
    /// The objects that the policy may make, as they are.
    pub targets: &'a [TargetState],
    /// The objects that others made and that the policy may write, as they are.
    pub others: &'a [Other],
}

/// What was planned for one primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Stands for the question.
    pub asked: u64,
    /// Stands for what would be written.
    pub planned: u32,
}

/// Digest of the inputs as they were read, with all that a guest is told of them.
pub fn inputs(found: &[Found], inputs: &[Input]) -> Digest {
    let one = |(found, input): (&Found, &Input)| {
        let need = &found.need;
        json!([
            need.reference,
            need.form,
            read(found.object.as_deref()),
            input.role,
            input.value
        ])
    };
    Digest::of(&found.iter().zip(inputs).map(one).collect())
}

/// Identifies one state of an object by uid and version, not by content, which could be guessed from a digest. The
/// versions of a folder are valid for one run: after a restart nothing is compared there.
fn read(object: Option<&Object>) -> Value {
    object.map_or(Value::Null, |object| json!([object.uid(), object.version]))
}

impl PlanQuestion<'_> {
    /// The mark of what is planned for it.
    pub fn mark(&self, writes: &Writes) -> Mark {
        Mark {
            asked: self.asked(),
            planned: planned(writes),
        }
    }

    /// What stands for the question.
    pub fn asked(&self) -> u64 {
        let target = |one: &TargetState| {
            let withheld = one.withheld.as_ref().map(|failure| &failure.reason);
            let ownership = format!("{:?}{withheld:?}", one.ownership);
            json!([one.object, ownership, read(one.existing.as_deref())])
        };
        let other = |one: &Other| json!([one.object, read(one.existing.as_deref())]);
        let facts = self.facts;
        Digest::of(&json!([
            // Another agent may plan otherwise.
            env!("CARGO_PKG_VERSION"),
            (&*self.key.policy, &*self.key.primary),
            (&facts.cluster_name, facts.self_managed),
            read(Some(self.primary)),
            self.inputs.map(ToString::to_string),
            self.targets.iter().map(target).collect::<Vec<_>>(),
            self.others.iter().map(other).collect::<Vec<_>>(),
        ]))
        .head()
    }
}

/// Whether a plan follows from what was read and from the answer alone: everything has its steps, or the first object
/// without one has none for what it is itself.
pub fn is_determined(
    targets: &[TargetState],
    (waits, refused): (&Option<Failure>, &Option<Failure>),
    unplanned: &Unplanned,
) -> bool {
    let by_object = || {
        let withheld = targets.iter().any(|one| one.withheld.is_some());
        matches!(unplanned, Unplanned::Failed(..)) && !withheld
    };
    refused.is_none() && (waits.is_none() || by_object())
}

/// What stands for what would be written; 0 for nothing.
pub fn planned(writes: &Writes) -> u32 {
    let head = writes.digest.map_or(0, |digest| digest.head());
    u32::try_from(head >> 32).unwrap_or_default()
}

/// What a trial planned for the primaries that it would change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// When, in seconds since 1970: all of them were asked at this time.
    pub at_seconds: i64,
    marks: BTreeMap<u64, u32>,
}

impl Expected {
    /// That of a trial; of the primaries beyond [`MOST`] nothing is kept.
    pub fn of(at_seconds: i64, marks: impl Iterator<Item = Mark>) -> Self {
        let marks = marks.take(MOST).map(|mark| (mark.asked, mark.planned));
        Self {
            at_seconds,
            marks: marks.collect(),
        }
    }

    /// What was planned when this was asked; `None` when it was not asked, or nothing was to be written.
    pub fn planned(&self, asked: u64) -> Option<u32> {
        self.marks.get(&asked).copied()
    }

    /// As it is kept; `None` when there is nothing.
    pub(super) fn text(&self) -> Option<String> {
        let mark = |(asked, planned): (&u64, &u32)| {
            asked.to_be_bytes().into_iter().chain(planned.to_be_bytes())
        };
        let bytes: Vec<u8> = self.marks.iter().flat_map(mark).collect();
        let kept = || json!({"atSeconds": self.at_seconds, "marks": STANDARD.encode(bytes)});
        (!self.marks.is_empty()).then(|| kept().to_string())
    }

    /// What was kept; `None` if it was changed and cannot be read.
    pub(super) fn read(text: &str) -> Option<Self> {
        let kept: Value = serde_json::from_str(text).ok()?;
        let bytes = STANDARD.decode(kept.get("marks")?.as_str()?).ok()?;
        let (marks, rest) = bytes.as_chunks::<MARK>();
        let mark = |mark: &[u8; MARK]| {
            let (asked, planned) = mark.split_first_chunk()?;
            Some((
                u64::from_be_bytes(*asked),
                u32::from_be_bytes(*planned.first_chunk()?),
            ))
        };
        rest.is_empty().then_some(Self {
            at_seconds: kept.get("atSeconds")?.as_i64()?,
            marks: marks.iter().filter_map(mark).take(MOST).collect(),
        })
    }
}

/// What is compared while a new revision is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Expecting {
    /// What its trial planned.
    pub expected: Expected,
    /// For how long it is compared.
    pub probation: Probation,
}

#[cfg(test)]
mod tests;
