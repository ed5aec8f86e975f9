//! What a case of a policy expects, compared with what came of it.

use crate::command::case::CaseReference;
use crate::command::cases::{self, compare, update};
use crate::command::session::Session;
use crate::controller::memory::HistoryEntry;
use crate::controller::queue::Queued;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::Path;
use transom_core::document;
use transom_core::policy::manifest;
use transom_core::reference::ObjectRef;
use transom_core::work::{Cause, Key};

/// What a case expects.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CaseExpectation {
    /// Every object that is created or changed, whole; with a change, those of the change.
    objects: Vec<Value>,
    /// The same for objects of which only the named fields count.
    partial_objects: Vec<Value>,
    /// Every object that is removed.
    removed: Vec<CaseReference>,
    /// The state of every primary.
    states: Vec<StateOf>,
    /// The primaries that the change causes to be reconciled.
    woken: Option<Vec<Woken>>,
    /// Whether the change leads to a reconcile.
    reconciled: Option<bool>,
    /// The reasons that the trigger guest gives to run.
    reasons: Option<Vec<String>>,
}

/// The state of one primary.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct StateOf {
    /// Under which policy; without it, under each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    primary: CaseReference,
    state: String,
    reason: String,
}

impl StateOf {
    fn is_of(&self, key: &Key) -> bool {
        let mut policy = self.policy.iter();
        policy.all(|policy| **policy == *key.policy) && self.primary.names(&key.primary)
    }
}

/// A primary that is reconciled, and its causes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Woken {
    primary: CaseReference,
    causes: Vec<String>,
}

impl CaseExpectation {
    /// What the file of a case expects.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(case: &Path) -> anyhow::Result<Self> {
        let name = "expected.yaml";
        let failed = || format!("failed to read `{}`", case.join(name).display());
        let bytes = cases::read(case, name, update::LIMITS.bytes)?;
        match document::parse_one(&bytes, update::LIMITS).with_context(failed)? {
            // An empty file, which `--update` is to fill.
            Value::Null => Ok(Self::default()),
            value @ Value::Object(_) => manifest::typed("", value).with_context(failed),
            _ => anyhow::bail!("{}: it is not a mapping", failed()),
        }
    }
}

/// The result of a case beside what is expected.
pub(super) struct Comparison {
    pub(super) expected: CaseExpectation,
    pub(super) differences: Vec<String>,
    /// The parts of the result that are not as expected.
    pub(super) came: Map<String, Value>,
}

impl Comparison {
    /// Compares the objects that were written and removed.
    pub(super) fn objects(&mut self, session: &Session) {
        let written: Vec<ObjectRef> = session.take_written().into_keys().collect();
        let (mut found, mut removed) = (Vec::new(), Vec::new());
        for (object, read) in written.iter().zip(session.directory.read(&written)) {
            match read.ok().flatten() {
                Some(object) => found.push(object.body),
                None => removed.push(object),
            }
        }
        let (whole, partial) = (&self.expected.objects, &self.expected.partial_objects);
        let differences = compare::objects(whole, partial, &found);
        if !differences.is_empty() {
            let (new_whole, new_partial) = update::objects(whole, partial, &found);
            if new_whole != *whole {
                self.came.insert("objects".to_owned(), json!(new_whole));
            }
            if new_partial != *partial {
                self.came
                    .insert("partialObjects".to_owned(), json!(new_partial));
            }
        }
        self.differences.extend(differences);
        let wanted = self.expected.removed.iter().cloned();
        let (mut all, missing): (Vec<_>, Vec<_>) =
            wanted.partition(|wanted| removed.iter().any(|object| wanted.names(object)));
        removed.retain(|object| !all.iter().any(|wanted| wanted.names(object)));
        for object in &removed {
            let difference = format!("{object}: expected it to be kept, it was removed");
            self.differences.push(difference);
        }
        for wanted in &missing {
            let difference = format!("{wanted}: expected it to be removed, it was not");
            self.differences.push(difference);
        }
        if !(removed.is_empty() && missing.is_empty()) {
            all.extend(removed.into_iter().map(CaseReference::of));
            self.came.insert("removed".to_owned(), json!(all));
        }
    }

    /// Compares the states of all primaries.
    pub(super) fn states(&mut self, session: &Session) {
        let memory = session.controller.memory.lock();
        let results = &memory.results;
        let mut policies: Vec<_> = results.keys().map(|key| &key.policy).collect();
        policies.dedup();
        let policy = |key: &Key| (policies.len() > 1).then(|| key.policy.to_string());
        let mut differences = Vec::new();
        for wanted in &self.expected.states {
            let (primary, want) = (&wanted.primary, (&*wanted.state, &*wanted.reason));
            let mut found = results
                .iter()
                .filter(|(key, _)| wanted.is_of(key))
                .peekable();
            if found.peek().is_none() {
                let (state, reason) = want;
                differences.push(format!(
                    "{primary}: expected {state} {reason}, got no state"
                ));
            }
            let others =
                found.filter(|(_, last)| (last.state.as_str(), last.reason.as_str()) != want);
            for (key, last) in others {
                let under = policy(key).map(|policy| format!(" under {policy}"));
                let (under, (state, reason)) = (under.unwrap_or_default(), want);
                let got = format!("{} {}: {}", last.state.as_str(), last.reason, last.message);
                differences.push(format!(
                    "{primary}{under}: expected {state} {reason}, got {got}"
                ));
            }
        }
        let mut all = Vec::new();
        for (key, last) in results {
            let (state, reason) = (last.state.as_str().to_owned(), last.reason.to_string());
            let mut wanted = self.expected.states.iter();
            if !wanted.any(|wanted| wanted.is_of(key)) {
                let difference =
                    format!("{}: expected no state, got {state} {reason}", key.primary);
                differences.push(difference);
            }
            all.push(StateOf {
                policy: policy(key),
                primary: CaseReference::of(&key.primary),
                state,
                reason,
            });
        }
        if !differences.is_empty() {
            self.came.insert("states".to_owned(), json!(all));
        }
        self.differences.extend(differences);
    }

    /// Compares the reconciles that the change led to, as far as the case expects anything of them.
    pub(super) fn journal(&mut self, journal: &[HistoryEntry]) {
        let CaseExpectation {
            woken,
            reconciled,
            reasons,
            ..
        } = &self.expected;
        let mut differences = Vec::new();
        let ran = journal.iter().filter(|entry| entry.cause.is_some());
        let ran: Vec<_> = ran.collect();
        let was_reconciled = !ran.is_empty();
        if let Some(wanted) = reconciled.filter(|wanted| *wanted != was_reconciled) {
            differences.push(format!(
                "reconciled: expected {wanted}, got {was_reconciled}"
            ));
        }
        let given: Vec<&String> = ran.iter().flat_map(|entry| triggered(entry)).collect();
        if let Some(wanted) = reasons
            && !wanted.iter().eq(given.iter().copied())
        {
            differences.push(format!("reasons: expected {wanted:?}, got {given:?}"));
        }
        if let Some(woken) = woken {
            differences.extend(wrongly_woken(woken, &ran));
        }
        if !differences.is_empty() {
            let parts = [
                ("woken", woken.as_ref().map(|_| json!(woken_by(&ran)))),
                ("reconciled", reconciled.map(|_| json!(was_reconciled))),
                ("reasons", reasons.as_ref().map(|_| json!(given))),
            ];
            let parts = parts
                .into_iter()
                .filter_map(|(part, came)| Some((part.to_owned(), came?)));
            self.came.extend(parts);
        }
        self.differences.extend(differences);
    }
}

/// The primaries that were not reconciled by the causes that a case expects, or were and should not.
fn wrongly_woken(expected: &[Woken], ran: &[&HistoryEntry]) -> Vec<String> {
    let mut differences = Vec::new();
    for Woken { primary, causes } in expected {
        let of_primary = ran.iter().filter(|entry| primary.names(&entry.key.primary));
        let by: Vec<_> = of_primary
            .flat_map(|entry| {
                let cause = entry.cause.as_ref().map(Cause::as_str);
                entry.causes.iter().map(word).chain(cause)
            })
            .collect();
        if by.is_empty() || causes.iter().any(|cause| !by.contains(&cause.as_str())) {
            differences.push(format!(
                "{primary}: expected `woken` by {causes:?}, got {by:?}"
            ));
        }
    }
    for entry in ran {
        let primary = &entry.key.primary;
        if !expected.iter().any(|one| one.primary.names(primary)) {
            let by: Vec<_> = entry.causes.iter().map(word).collect();
            differences.push(format!("{primary}: expected not to be `woken`, got {by:?}"));
        }
    }
    differences
}

/// The primaries that were reconciled, each with its causes.
fn woken_by(ran: &[&HistoryEntry]) -> Vec<Woken> {
    let mut woken: Vec<Woken> = Vec::new();
    for entry in ran {
        let primary = CaseReference::of(&entry.key.primary);
        let by = entry.causes.iter().map(|by| word(by).to_owned());
        match woken.iter_mut().find(|known| known.primary == primary) {
            Some(known) => known.causes.extend(by),
            None => woken.push(Woken {
                primary,
                causes: by.collect(),
            }),
        }
    }
    woken.iter_mut().for_each(|known| known.causes.dedup());
    woken
}

/// The reasons that the trigger guest gave for a reconcile.
fn triggered(entry: &HistoryEntry) -> &[String] {
    match &entry.cause {
        Some(Cause::Triggered(reasons)) => reasons,
        _ => &[],
    }
}

/// The word of a cause in cases.
fn word(cause: &Queued) -> &'static str {
    match cause {
        Queued::Updated => "Changed",
        Queued::Reconcile(why) => why.as_str(),
    }
}
