//! What an earlier run loaded, for a policy that has nothing active yet.

use super::Job;
use super::run::bug;
use crate::policies::cases::PassedCases;
use crate::policies::components::Components;
use crate::policies::load::{self, LoadedPolicy, Unloaded};
use crate::policies::revisions;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use transom_api::KnownReason;
use transom_artifacts::GatheredComponents;
use transom_core::policy::Policy;
use transom_core::rollout::history::{History, RevisionRecord};
use transom_engine::Engine;

/// How far the agent has restored the revision that was active when it last ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::policies) enum Restoring {
    /// It is restored when the newest components were read, if they are another revision.
    #[default]
    WithNewest,
    /// It is restored next, before the newest components are read: that may take long.
    Next,
    /// It was restored and handed over.
    Done,
    /// The newest components were handed over as well. Only the revision before the active one is still to be pulled,
    /// which nothing waits for.
    PreviousRevision,
    /// It could not be restored; true if a retry may succeed.
    Failed(bool),
}

/// What was restored of the revisions of an earlier run.
#[derive(Default)]
pub(super) struct EarlierRevisions {
    /// The revision that was active when the agent ended, unless the newest manifest has become just that one, or it
    /// cannot be restored.
    pub(super) active: Option<LoadedPolicy>,
    /// The previous revision, if the active one was on probation. Without it the active one works, but cannot be rolled
    /// back.
    pub(super) before: Option<LoadedPolicy>,
    /// Whether the revision before it could not be restored now. It is tried once more after all else.
    pub(super) lacks_before: bool,
}

/// Restores what was active when the agent ended, and the revision before it.
///
/// # Errors
/// When another try may restore the active one, or it takes longer than the engine waits.
pub(super) fn restored(
    engine: &Engine,
    components: &Components,
    job: &Job,
    gathered: &GatheredComponents,
    newest: Option<&LoadedPolicy>,
) -> Result<EarlierRevisions, Unloaded> {
    let of = |record: Option<&RevisionRecord>| match record {
        Some(record) => restore(engine, components, job, gathered, record),
        None => Ok(None),
    };
    let recorded = job.history.as_ref().and_then(History::active);
    let other =
        |record: &&RevisionRecord| newest.is_none_or(|newest| !record.goes_on_in(&newest.revision));
    let active = of(recorded.filter(other))?;
    let watched = still_watched_before(components, job);
    // The active one does not wait for it.
    let before = of(watched).unwrap_or_default();
    Ok(EarlierRevisions {
        active,
        lacks_before: watched.is_some() && before.is_none(),
        before,
    })
}

/// The revision before the active one, if the history has the active one on probation.
pub(super) fn watched_before(history: &History) -> Option<&RevisionRecord> {
    let watched = history.active()?.probation.is_some();
    history.previous().filter(|_| watched)
}

/// The same, unless the probation is over by now.
pub(super) fn still_watched_before<'j>(
    components: &Components,
    job: &'j Job,
) -> Option<&'j RevisionRecord> {
    let history = job.history.as_ref();
    let history = history.filter(|history| components.are_watching(history));
    history.and_then(watched_before)
}

/// Restores a revision; `None` when it cannot be restored.
///
/// # Errors
/// When another try may succeed: it takes longer than the engine waits, or the machine has too much to do.
fn restore(
    engine: &Engine,
    components: &Components,
    job: &Job,
    gathered: &GatheredComponents,
    record: &RevisionRecord,
) -> Result<Option<LoadedPolicy>, Unloaded> {
    match tried(engine, components, job, gathered, record) {
        Err(Unloaded::Refused(refusal)) if refusal.reason != KnownReason::EngineBusy => Ok(None),
        restored => restored.map(Some),
    }
}

/// Restores a revision.
///
/// # Errors
/// When it cannot be restored, or takes longer than the engine waits.
pub(super) fn tried(
    engine: &Engine,
    components: &Components,
    job: &Job,
    gathered: &GatheredComponents,
    record: &RevisionRecord,
) -> Result<LoadedPolicy, Unloaded> {
    let wanted = (job.policy.as_ref(), &job.wanted);
    let restore = || revisions::restore(engine, components, wanted, gathered, record);
    let restored = catch_unwind(AssertUnwindSafe(restore));
    restored.unwrap_or_else(|_| Err(Unloaded::Refused(bug())))
}

/// The policy with the components that an earlier run loaded, if nothing is active yet.
pub(super) fn earlier(
    engine: &Engine,
    components: &Components,
    (job, policy): (&Job, &Policy),
    gathered: &GatheredComponents,
) -> Result<Option<LoadedPolicy>, Unloaded> {
    if !job.first {
        return Ok(None);
    }
    let remote = job.wanted.components.iter().filter(|one| one.is_remote());
    let kept: Option<BTreeMap<_, _>> = remote
        .map(|one| {
            let held = components.kept().find(one, job.wanted.asker(one))?;
            Some((one.clone(), held))
        })
        .collect();
    let Some(kept) = kept.filter(|kept| !kept.is_empty()) else {
        return Ok(None);
    };
    // The trusted keys are those of now.
    let gathered = GatheredComponents {
        kept,
        objects: gathered.objects.clone(),
        ..GatheredComponents::default()
    };
    let inputs = load::Inputs {
        sources: components.sources(),
        base: &job.wanted.base,
        gathered: &gathered,
        passed: PassedCases::All,
    };
    let load = || load::assemble(engine, policy.clone(), inputs);
    match catch_unwind(AssertUnwindSafe(load)) {
        Ok(loaded) => loaded.map(Some),
        Err(_) => Ok(None),
    }
}
