//! Runs one case of a policy: given objects, perhaps a change, and then what is written, reported and woken. Works in
//! memory only.

use super::compare;
use super::update::{self, Came};
use crate::command::case::{self, Given, Reference, settings};
use crate::command::session::Session;
use crate::controller::Controller;
use crate::controller::clock::Clock;
use crate::controller::memory::Entry;
use crate::controller::queue::Queued;
use crate::policies::load::Loaded;
use crate::policies::loads::Loading;
use crate::policies::{Found, Source};
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use transom_cluster::directory::{Directory, Limits};
use transom_core::contract::AgentFacts;
use transom_core::document;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::time::parse_rfc3339;
use transom_core::work::Cause;
use transom_engine::Engine;

/// The time of a case that names none.
const NOW: &str = "2026-11-21T08:00:00Z";
/// Limits of one file of expectations.
const LIMITS: document::Limits = document::Limits {
    bytes: 16 << 20,
    nodes: 1_000_000,
    depth: 100,
};

/// What a case expects.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    /// Every object that is created or changed, whole; with a change, those of the change.
    #[serde(default)]
    objects: Vec<Value>,
    /// The same for objects of which only the named fields count.
    #[serde(default)]
    partial_objects: Vec<Value>,
    /// Every object that is removed.
    #[serde(default)]
    removed: Vec<Reference>,
    /// The state of every primary.
    #[serde(default)]
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
    policies
        .iter_mut()
        .for_each(|policy| settings::lay(policy, &case));
    let source = Source::Given(Found {
        policies,
        ..Found::default()
    });
    let now = case.now.as_deref().unwrap_or(NOW);
    let now = parse_rfc3339(now)
        .with_context(|| format!("failed to read spec.now of the case: `{now}` is not a time"))?;
    let name = case
        .agent
        .cluster_name
        .as_deref()
        .unwrap_or("local-cluster");
    let facts = AgentFacts::new(name, case.agent.self_managed_cluster.as_deref());
    let directory = Directory::from_bytes(LOCAL, "given.json", b"", Limits::default());
    case::put(&directory, &objects);
    let loading = Loading::start(engine.clone(), source, [LOCAL.to_owned()].into());
    let mut session = Session::start(loading, directory, |connections| {
        Controller::new(connections, Clock::new(Some(now)), facts)
    })
    .await?;
    warm.extend(
        session
            .active
            .loaded()
            .into_iter()
            .map(|loaded| (loaded.revision.decide.digest.to_string(), loaded)),
    );
    if let Some((name, refusal)) = session.active.refusals().into_iter().next() {
        bail!(
            "policy {name} is refused: {}: {}",
            refusal.reason.as_str(),
            refusal.message
        );
    }
    let then = folder.join("then.yaml");
    let changing = then.is_file() || !case.gone.is_empty();
    if changing {
        session.take_written();
        session.controller.memory.lock().journal = Some(Vec::new());
        if then.is_file() {
            case::put(&session.directory, &Given::read(&then)?.objects);
        }
        case.gone
            .iter()
            .for_each(|gone| gone.remove(&session.directory));
        session.follow().await;
    }
    let journal = changing.then(|| {
        session
            .controller
            .memory
            .lock()
            .journal
            .take()
            .unwrap_or_default()
    });
    let (mut differences, mut came) = objects_differ(&session, &expected);
    let (of_states, states) = states_differ(&session, &expected);
    differences.extend(of_states);
    came.extend(states);
    if let Some(journal) = journal {
        let of_journal = journal_differs(&journal, &expected);
        if !of_journal.is_empty() {
            came.extend(journal_came(&journal, &expected));
        }
        differences.extend(of_journal);
    }
    Ok((differences, Came::Parts(came)))
}

fn expected(path: &Path) -> anyhow::Result<Expected> {
    let failed = || format!("failed to read `{}`", path.display());
    let bytes = fs::read(path).with_context(failed)?;
    let value = match document::parse_one(&bytes, LIMITS).with_context(failed)? {
        // An empty file, which `--update` is to fill.
        Value::Null => json!({}),
        value => value,
    };
    serde_json::from_value(value).with_context(failed)
}

fn objects_differ(session: &Session, expected: &Expected) -> (Vec<String>, Map<String, Value>) {
    let written: Vec<ObjectRef> = session.take_written().into_keys().collect();
    let now = session
        .directory
        .read(&written)
        .into_iter()
        .filter_map(|read| read.ok().flatten());
    let found: Vec<Value> = now.map(|object| object.body).collect();
    let mut differences = compare::objects(&expected.objects, &expected.partial_objects, &found);
    let mut came = Map::new();
    if !differences.is_empty() {
        let (whole, partial) =
            update::objects(&expected.objects, &expected.partial_objects, &found);
        let parts = [
            ("objects", whole, &expected.objects),
            ("partialObjects", partial, &expected.partial_objects),
        ];
        came.extend(
            parts
                .into_iter()
                .filter(|(_, new, old)| new != *old)
                .map(|(key, new, _)| (key.to_owned(), json!(new))),
        );
    }
    let there = |reference: &ObjectRef| {
        found
            .iter()
            .any(|object| case::place(object) == case::place_of(reference))
    };
    let removed: Vec<&ObjectRef> = written
        .iter()
        .filter(|reference| !there(reference))
        .collect();
    let unwanted: Vec<_> = removed
        .iter()
        .filter(|object| !expected.removed.iter().any(|wanted| names(wanted, object)))
        .collect();
    let missing: Vec<_> = expected
        .removed
        .iter()
        .filter(|wanted| !removed.iter().any(|object| names(wanted, object)))
        .collect();
    if !(unwanted.is_empty() && missing.is_empty()) {
        let memory = expected
            .removed
            .iter()
            .filter(|wanted| !missing.contains(wanted))
            .cloned();
        let all: Vec<Reference> = memory
            .chain(unwanted.iter().map(|object| Reference::of(object)))
            .collect();
        came.insert("removed".to_owned(), json!(all));
    }
    differences.extend(
        unwanted
            .iter()
            .map(|object| format!("{object}: expected it to be kept, it was removed")),
    );
    differences.extend(missing.iter().map(|wanted| {
        format!(
            "{} {}: expected it to be removed, it was not",
            wanted.kind, wanted.name
        )
    }));
    (differences, came)
}

fn states_differ(session: &Session, expected: &Expected) -> (Vec<String>, Map<String, Value>) {
    let memory = session.controller.memory.lock();
    let found: Vec<_> = memory
        .results
        .iter()
        .map(|(key, told)| {
            (
                &*key.primary,
                format!("{:?} {}", told.state, told.reason),
                told,
            )
        })
        .collect();
    let mut differences = Vec::new();
    for wanted in &expected.states {
        let want = format!("{} {}", wanted.state, wanted.reason);
        match found
            .iter()
            .find(|(primary, ..)| names(&wanted.primary, primary))
        {
            Some((_, state, _)) if *state == want => {}
            Some((primary, state, told)) => {
                differences.push(format!(
                    "{primary}: expected {want}, got {state}: {}",
                    told.message
                ));
            }
            None => {
                differences.push(format!(
                    "{} {}: expected {want}, got no state",
                    wanted.primary.kind, wanted.primary.name
                ));
            }
        }
    }
    let unwanted = found.iter().filter(|(primary, ..)| {
        !expected
            .states
            .iter()
            .any(|wanted| names(&wanted.primary, primary))
    });
    differences.extend(
        unwanted.map(|(primary, state, _)| format!("{primary}: expected no state, got {state}")),
    );
    let all = found.iter().map(|(primary, _, told)| StateOf {
        primary: Reference::of(primary),
        state: told.state.as_str().to_owned(),
        reason: told.reason.as_str().to_owned(),
    });
    let all = all.collect::<Vec<_>>();
    let came = (!differences.is_empty()).then(|| ("states".to_owned(), json!(all)));
    (differences, came.into_iter().collect())
}

fn journal_differs(journal: &[Entry], expected: &Expected) -> Vec<String> {
    let mut differences = Vec::new();
    let reconciled = journal.iter().any(|entry| entry.cause.is_some());
    if expected
        .reconciled
        .is_some_and(|wanted| wanted != reconciled)
    {
        differences.push(format!(
            "reconciled: expected {}, got {reconciled}",
            !reconciled
        ));
    }
    let reasons: Vec<&String> = journal
        .iter()
        .filter_map(|entry| entry.cause.as_ref())
        .filter_map(triggered)
        .flatten()
        .collect();
    if expected
        .reasons
        .as_ref()
        .is_some_and(|wanted| wanted.iter().collect::<Vec<_>>() != reasons)
    {
        differences.push(format!(
            "reasons: expected {:?}, got {reasons:?}",
            expected.reasons
        ));
    }
    for wanted in expected.woken.iter().flatten() {
        let by: Vec<_> = journal
            .iter()
            .filter(|entry| entry.cause.is_some() && names(&wanted.primary, &entry.key.primary))
            .flat_map(|entry| {
                entry
                    .causes
                    .iter()
                    .map(cause)
                    .chain(entry.cause.as_ref().map(Cause::as_str))
            })
            .collect();
        if wanted
            .causes
            .iter()
            .any(|cause| !by.contains(&cause.as_str()))
            || by.is_empty()
        {
            differences.push(format!(
                "{} {}: expected `woken` by {:?}, got {by:?}",
                wanted.primary.kind, wanted.primary.name, wanted.causes
            ));
        }
    }
    let woken = expected.woken.as_deref().unwrap_or_default();
    for entry in journal
        .iter()
        .filter(|entry| entry.cause.is_some() && expected.woken.is_some())
    {
        if !woken
            .iter()
            .any(|wanted| names(&wanted.primary, &entry.key.primary))
        {
            differences.push(format!(
                "{}: expected not to be `woken`, got {:?}",
                entry.key.primary,
                entry.causes.iter().map(cause).collect::<Vec<_>>()
            ));
        }
    }
    differences
}

/// The reconciles that the change led to, as far as the case expects anything of them.
fn journal_came(journal: &[Entry], expected: &Expected) -> Map<String, Value> {
    let ran = || journal.iter().filter(|entry| entry.cause.is_some());
    let mut woken: Vec<Woken> = Vec::new();
    for entry in ran() {
        let primary = Reference::of(&entry.key.primary);
        let by = entry.causes.iter().map(|by| cause(by).to_owned());
        match woken.iter_mut().find(|known| known.primary == primary) {
            Some(known) => known.causes.extend(by),
            None => woken.push(Woken {
                primary,
                causes: by.collect(),
            }),
        }
    }
    woken.iter_mut().for_each(|known| known.causes.dedup());
    let reasons: Vec<&String> = ran()
        .filter_map(|entry| triggered(entry.cause.as_ref()?))
        .flatten()
        .collect();
    let parts = [
        ("woken", expected.woken.is_some(), json!(woken)),
        (
            "reconciled",
            expected.reconciled.is_some(),
            json!(ran().next().is_some()),
        ),
        ("reasons", expected.reasons.is_some(), json!(reasons)),
    ];
    parts
        .into_iter()
        .filter(|(_, said, _)| *said)
        .map(|(key, _, value)| (key.to_owned(), value))
        .collect()
}

fn triggered(why: &Cause) -> Option<&Vec<String>> {
    match why {
        Cause::Triggered(reasons) => Some(reasons),
        _ => None,
    }
}

/// The word of a cause in cases.
fn cause(cause: &Queued) -> &'static str {
    match cause {
        Queued::Updated => "Changed",
        Queued::Reconcile(why) => why.as_str(),
    }
}

/// Whether a reference of a case names an object.
fn names(reference: &Reference, object: &ObjectRef) -> bool {
    reference.kind == object.kind
        && reference.name == object.name
        && reference.namespace == object.namespace
}
