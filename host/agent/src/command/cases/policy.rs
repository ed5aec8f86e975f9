//! Runs one case of a policy: given objects, perhaps a change, and then what is written, reported and woken. Works in
//! memory only.

mod comparison;

use super::update::Came;
use crate::clock::Clock;
use crate::command::case::{self, AgentSpec, CaseSpec, GivenFile, GivenObject, settings};
use crate::command::session::Session;
use crate::controller::Controller;
use crate::policies::components::Components;
use crate::policies::first_load::FirstLoad;
use crate::policies::load::LoadedPolicy;
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
        session.settle().await?;
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
    let now = case.now.as_deref().unwrap_or(case::NOW);
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
    let loading = FirstLoad::start(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::engine;
    use transom_core::observation::Observation;

    #[tokio::test(flavor = "multi_thread")]
    async fn own_writes_are_followed_before_a_change_and_a_change_is_taken_in_at_once() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../policies/cleanup/cases/G08-lowest-first");
        let given = read(&folder, "given.yaml").unwrap().objects;
        let engine = engine::of_tests();
        let started = start(&engine, &folder, &CaseSpec::default(), &given).await;
        let mut session = started.unwrap();
        let mut written = session.take_written().into_keys();
        let primary = written.find(|one| one.kind == "ManagedCluster").unwrap();
        // Two works were removed, and the last one is due now.
        assert!(session.follow().await && !session.take_written().is_empty());
        session.settle().await.unwrap();
        assert!(!session.follow().await);
        session.controller.memory.lock().journal = Some(Vec::new());
        // Each of these alone calls for a reconcile.
        let news = std::iter::repeat_n(Observation::Gone(primary), 500);
        session.controller.observe_at_once(LOCAL, news.collect());
        session.controller.idle().await;
        let journal = session.controller.memory.lock().journal.take();
        assert_eq!(journal.unwrap().len(), 1);
    }
}
