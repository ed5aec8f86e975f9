//! What is known of the load of one policy while it waits and runs.

use super::Restoring;
use crate::policies::wanted::WantedReads;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::Instant;
use transom_artifacts::{GatheredComponents, Location};
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_core::rollout::history::{History, RevisionRecord};

/// A policy whose guests are to be fetched and compiled.
pub(in crate::policies) struct Job {
    pub(in crate::policies) number: u64,
    pub(in crate::policies) name: Arc<str>,
    /// `None` when the newest manifest is not valid.
    pub(in crate::policies) policy: Option<Policy>,
    /// Why the newest manifest is refused, if it is. Then only the revision that was active is restored.
    pub(in crate::policies) refusal: Option<Refusal>,
    /// What is read for it.
    pub(in crate::policies) wanted: WantedReads,
    /// What lies in a cluster, once it is read.
    pub(in crate::policies) gathered: Option<GatheredComponents>,
    /// Whether it was found to take long.
    pub(in crate::policies) slow: bool,
    /// Whether no revision of the policy is active: then what an earlier run loaded is better than nothing.
    pub(in crate::policies) first: bool,
    /// Whether a registry has to be asked, which may take long.
    pub(in crate::policies) pulls: bool,
    /// The same for the components of the revision that was active.
    pub(in crate::policies) pulls_earlier: bool,
    /// The registries that are asked next.
    pub(in crate::policies) registries: BTreeSet<String>,
    /// The kept revisions, once they are read; only of a policy that has no active revision.
    pub(in crate::policies) history: Option<History>,
    /// Whether these revisions are still to be read.
    pub(in crate::policies) recalls: bool,
    /// What was read of their components at the original places, if the cache lacks them.
    pub(in crate::policies) earlier: Option<GatheredComponents>,
    /// Whether the previous revision is still missing when the active one is restored: it has to be pulled, or the
    /// machine was too busy.
    pub(in crate::policies) lacks_before: bool,
    /// How far the revision that was active is restored.
    pub(in crate::policies) restoring: Restoring,
    /// When it may begin, if not at once.
    pub(in crate::policies) due: Option<Instant>,
    /// How often the revision before the active one could not be had.
    pub(in crate::policies) failures: u32,
}

impl Job {
    /// A job of which nothing is read yet.
    pub(in crate::policies) fn new(number: u64, name: &Arc<str>, wanted: WantedReads) -> Self {
        Self {
            number,
            name: Arc::clone(name),
            policy: None,
            refusal: None,
            wanted,
            gathered: None,
            slow: false,
            first: false,
            pulls: false,
            pulls_earlier: false,
            registries: BTreeSet::new(),
            history: None,
            recalls: false,
            earlier: None,
            lacks_before: false,
            restoring: Restoring::default(),
            due: None,
            failures: 0,
        }
    }

    /// The revision that was active when the agent ended, once the history is read.
    pub(super) fn active(&self) -> Option<&RevisionRecord> {
        self.history.as_ref().and_then(History::active)
    }

    pub(super) fn kind(&self) -> JobKind {
        let is_builtin = |component: &Location| matches!(component, Location::Builtin(_));
        match &self.gathered {
            _ if self.recalls && self.pulls_earlier => JobKind::Pulling,
            _ if self.recalls => JobKind::Reading,
            _ if self.restoring == Restoring::Next && self.slow => JobKind::Slow,
            _ if self.restoring == Restoring::Next => JobKind::Quick,
            None if self.pulls => JobKind::Pulling,
            None if self.wanted.all().any(Location::is_remote) => JobKind::Reading,
            _ if self.slow => JobKind::Slow,
            // What it restores may be another component.
            _ if self.follows() => JobKind::Quick,
            _ if self.wanted.all().all(is_builtin) => JobKind::Builtin,
            _ => JobKind::Quick,
        }
    }

    /// Whether it only gets the previous revision, which nothing waits for.
    pub(super) fn follows(&self) -> bool {
        self.restoring == Restoring::PreviousRevision
    }

    /// How often the revision before the active one could not be had, while it is still to be.
    pub(super) fn lacking(&self) -> Option<u32> {
        self.lacks_before.then_some(self.failures)
    }

    /// Whether it is not due yet.
    pub(super) fn rests(&self) -> bool {
        self.due.is_some_and(|due| due > Instant::now())
    }

    /// The job that pulls the revision before the active one, once all else is handed over.
    pub(super) fn following(self) -> Self {
        Self {
            gathered: None,
            earlier: None,
            slow: false,
            pulls: true,
            restoring: Restoring::PreviousRevision,
            due: None,
            ..self
        }
    }

    /// Whether it has read components, and holds them.
    pub(super) fn holds(&self) -> bool {
        self.gathered.is_some() || self.earlier.is_some()
    }

    /// Sets that these components are pulled next.
    pub(super) fn asks<'a>(&mut self, components: impl IntoIterator<Item = &'a Location>) {
        let images = components.into_iter().filter_map(Location::image);
        self.registries = images.map(|image| image.registry.clone()).collect();
    }

    /// Sets that the newest components are read next.
    pub(super) fn asks_newest(&mut self) {
        let components = self.wanted.components.clone();
        self.asks(&components);
    }
}

/// How long a job may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    /// It reads components that are near, and is queued again with them.
    Reading,
    /// It also asks registries, which may take long.
    Pulling,
    /// It uses builtin guests only.
    Builtin,
    /// Others wait for it, so it may not take long.
    Quick,
    /// It takes long; only other slow jobs wait for it.
    Slow,
}
