//! Runs one case of a policy: given objects, perhaps a change, and then what is written, reported and woken. Works in
//! memory only.

use super::compare;
use super::update::{self, Came};
use crate::command::case::{self, AgentSpec, Given, Reference, settings};
use crate::command::session::Session;
use crate::controller::Clock;
use crate::controller::Controller;
use crate::controller::memory::Entry;
use crate::controller::queue::Queued;
use crate::policies::components::Components;
use crate::policies::load::Loaded;
use crate::policies::loading::Loading;
use crate::policies::{Found, Source};
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use transom_artifacts::Sources;
use transom_cluster::directory::{Directory, Limits};
use transom_core::contract::AgentFacts;
use transom_core::document;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::time::parse_rfc3339;
use transom_core::work::Cause;
use transom_engine::Engine;

/// The time of a case that names none.
const NOW: &str = "2026-11-21T08:00:00Z";

/// What a case expects.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    /// Every object that is created or changed, whole; with a change, those of the change.
    objects: Vec<Value>,
    /// The same for objects of which only the named fields count.
    partial_objects: Vec<Value>,
    /// Every object that is removed.
    removed: Vec<Reference>,
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
    primary: Reference,
    state: String,
    reason: String,
}

/// A primary that is reconciled, and its causes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Woken {
    primary: Reference,
    causes: Vec<String>,
}

/// One revision of each component, so that its code stays compiled from case to case.
pub(super) type Warm = BTreeMap<String, Arc<Loaded>>;

/// Returns the differences between the result and what is expected, and the parts of the result that differ.
///
/// # Errors
/// When a file of the case or the policy cannot be read.
pub(super) async fn run(
    engine: &Engine,
    folder: &Path,
    warm: &mut Warm,
) -> anyhow::Result<(Vec<String>, Came)> {
    let Given { objects, case } = Given::read(&folder.join("given.yaml"))?;
    let case = case.unwrap_or_default();
    let expected = expected(&folder.join("expected.yaml"))?;
    let mut policies = settings::policies_above(folder)?;
    for policy in &mut policies {
        settings::lay(policy, &case);
    }
    let source = Source::Given(Found {
        policies,
        ..Found::default()
    });
    let now = case.now.as_deref().unwrap_or(NOW);
    let now = parse_rfc3339(now)
        .with_context(|| format!("failed to read spec.now of the case: `{now}` is not a time"))?;
    let AgentSpec {
        cluster_name,
        self_managed_cluster,
    } = &case.agent;
    let name = cluster_name.as_deref().unwrap_or("local-cluster");
    let facts = AgentFacts::new(name, self_managed_cluster.as_deref());
    let directory = Directory::from_bytes(LOCAL, "given.json", b"", Limits::default());
    case::put(&directory, &objects);
    let loading = Loading::start(
        engine.clone(),
        source,
        [LOCAL.to_owned()].into(),
        Components::new(&Sources::all()),
        false,
    );
    let mut session = Session::start(loading, directory, |connections| {
        Controller::new(connections, Clock::new(Some(now)), facts)
    })
    .await?;
    let loaded = session.active.loaded().into_iter();
    warm.extend(loaded.map(|loaded| (loaded.revision.decide.digest.to_string(), loaded)));
    if let Some((name, refusal)) = session.active.refusals().into_iter().next() {
        let (reason, message) = (refusal.reason.as_str(), refusal.message);
        bail!("policy {name} is refused: {reason}: {message}");
    }
    let then = folder.join("then.yaml");
    if then.is_file() || !case.gone.is_empty() {
        session.take_written();
        session.controller.memory.lock().journal = Some(Vec::new());
        if then.is_file() {
            case::put(&session.directory, &Given::read(&then)?.objects);
        }
        for gone in &case.gone {
            gone.remove(&session.directory);
        }
        session.follow().await;
    }
    let mut comparison = Comparison {
        expected,
        differences: Vec::new(),
        came: Map::new(),
    };
    comparison.objects(&session);
    comparison.states(&session);
    let journal = session.controller.memory.lock().journal.take();
    if let Some(journal) = journal {
        comparison.journal(&journal);
    }
    Ok((comparison.differences, Came::Parts(comparison.came)))
}

fn expected(path: &Path) -> anyhow::Result<Expected> {
    let failed = || format!("failed to read `{}`", path.display());
    let bytes = fs::read(path).with_context(failed)?;
    match document::parse_one(&bytes, update::LIMITS).with_context(failed)? {
        // An empty file, which `--update` is to fill.
        Value::Null => Ok(Expected::default()),
        value => serde_json::from_value(value).with_context(failed),
    }
}

/// The result of a case beside what is expected.
struct Comparison {
    expected: Expected,
    differences: Vec<String>,
    /// The parts of the result that are not as expected.
    came: Map<String, Value>,
}

impl Comparison {
    /// Compares the objects that were written and removed.
    fn objects(&mut self, session: &Session) {
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
            all.extend(removed.into_iter().map(Reference::of));
            self.came.insert("removed".to_owned(), json!(all));
        }
    }

    /// Compares the states of all primaries.
    fn states(&mut self, session: &Session) {
        let memory = session.controller.memory.lock();
        let mut differences = Vec::new();
        for wanted in &self.expected.states {
            let (primary, want) = (&wanted.primary, (&*wanted.state, &*wanted.reason));
            let mut results = memory.results.iter();
            let found = results.find(|(key, _)| primary.names(&key.primary));
            let got = found.map(|(_, last)| (last.state.as_str(), last.reason.as_str()));
            if got != Some(want) {
                let got = match found {
                    Some((_, last)) => {
                        format!("{} {}: {}", last.state.as_str(), last.reason, last.message)
                    }
                    None => "no state".to_owned(),
                };
                differences.push(format!(
                    "{primary}: expected {} {}, got {got}",
                    want.0, want.1
                ));
            }
        }
        let mut all = Vec::new();
        for (key, last) in &memory.results {
            let (state, reason) = (last.state.as_str().to_owned(), last.reason.to_string());
            let mut wanted = self.expected.states.iter();
            if !wanted.any(|wanted| wanted.primary.names(&key.primary)) {
                let difference =
                    format!("{}: expected no state, got {state} {reason}", key.primary);
                differences.push(difference);
            }
            all.push(StateOf {
                primary: Reference::of(&key.primary),
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
    fn journal(&mut self, journal: &[Entry]) {
        let Expected {
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
        for Woken { primary, causes } in woken.iter().flatten() {
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
        if let Some(woken) = woken {
            for entry in &ran {
                let primary = &entry.key.primary;
                if !woken.iter().any(|wanted| wanted.primary.names(primary)) {
                    let by: Vec<_> = entry.causes.iter().map(word).collect();
                    differences.push(format!("{primary}: expected not to be `woken`, got {by:?}"));
                }
            }
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

/// The primaries that were reconciled, each with its causes.
fn woken_by(ran: &[&Entry]) -> Vec<Woken> {
    let mut woken: Vec<Woken> = Vec::new();
    for entry in ran {
        let primary = Reference::of(&entry.key.primary);
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
fn triggered(entry: &Entry) -> &[String] {
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
