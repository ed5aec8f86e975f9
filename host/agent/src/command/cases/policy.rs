//! Runs one case of a policy: given objects, perhaps a change, and then what is written, reported and woken. Works in
//! memory only.

mod comparison;

use super::update::Came;
use crate::command::case::{self, AgentSpec, CaseSpec, GivenFile, GivenObject, settings};
use crate::command::session::Session;
use crate::controller::{Clock, Controller};
use crate::policies::components::Components;
use crate::policies::load::LoadedPolicy;
use crate::policies::loading::Loading;
use crate::policies::{FoundPolicies, PolicySource};
use anyhow::{Context as _, bail};
use comparison::{CaseExpectation, Comparison};
use serde_json::Map;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use transom_artifacts::Sources;
use transom_cluster::Cluster as _;
use transom_cluster::directory::{Directory, SizeLimits};
use transom_core::contract::AgentFacts;
use transom_core::reference::LOCAL;
use transom_core::time::parse_rfc3339;
use transom_engine::Engine;

/// The time of a case that names none.
const NOW: &str = "2026-11-21T08:00:00Z";

/// One revision of each component, so that its code stays compiled from case to case.
pub(super) type WarmRevisions = BTreeMap<String, Arc<LoadedPolicy>>;

/// Returns the differences between the result and what is expected, and the parts of the result that differ.
///
/// # Errors
/// When a file of the case or the policy cannot be read.
pub(super) async fn run(
    engine: &Engine,
    folder: &Path,
    warm: &mut WarmRevisions,
) -> anyhow::Result<(Vec<String>, Came)> {
    let GivenFile { objects, case } = read(folder, "given.yaml")?;
    let case = case.unwrap_or_default();
    let expected = CaseExpectation::read(folder)?;
    let mut session = start(engine, folder, &case, &objects).await?;
    let loaded = session.active.loaded().into_iter();
    warm.extend(loaded.map(|loaded| (loaded.revision.decide.digest.to_string(), loaded)));
    if let Some((name, refusal)) = session.active.refusals().into_iter().next() {
        let (reason, message) = (refusal.reason.as_str(), refusal.message);
        bail!("policy {name} is refused: {reason}: {message}");
    }
    let changes = folder.join("then.yaml").is_file();
    if changes || !case.gone.is_empty() {
        session.take_written();
        session.controller.memory.lock().journal = Some(Vec::new());
        if changes {
            let then = read(folder, "then.yaml")?.objects;
            case::put(&session.directory, &then, case::by_name);
        }
        case.remove_gone(&session.directory)?;
        session.follow().await;
    }
    if let Some(unreadable) = session.directory.unreadable().first() {
        bail!("{}: {}", unreadable.reason.as_str(), unreadable.message);
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

/// The objects in a file of the case.
fn read(folder: &Path, name: &str) -> anyhow::Result<GivenFile> {
    let bytes = super::read(folder, name, case::LIMITS.bytes)?;
    GivenFile::parse(&bytes, &folder.join(name))
}

/// Reconciles the given objects under the policies of the case.
async fn start(
    engine: &Engine,
    folder: &Path,
    case: &CaseSpec,
    objects: &[GivenObject],
) -> anyhow::Result<Session> {
    let mut policies = settings::policies_above(folder)?;
    for policy in &mut policies {
        settings::lay(policy, case);
    }
    let source = PolicySource::Given(FoundPolicies {
        policies,
        ..FoundPolicies::default()
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
    let directory = Directory::from_bytes(LOCAL, "given.json", b"", SizeLimits::default());
    case::put(&directory, objects, case::by_name);
    let loading = Loading::start(
        engine.clone(),
        source,
        [LOCAL.to_owned()].into(),
        Components::new(&Sources::all()),
        false,
    );
    Session::start(loading, directory, |connections| {
        Controller::new(connections, Clock::new(Some(now)), facts)
    })
    .await
}
