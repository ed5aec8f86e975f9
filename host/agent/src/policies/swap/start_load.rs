//! Loads policies, and again when their components changed, or could not be read.

use super::{ManifestState, Swap};
use crate::policies::components::PartVersions;
use crate::policies::load_queue::{Job, Restoring, retry_at};
use crate::policies::wanted::WantedReads;
use crate::policies::{PolicySource, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;
use transom_artifacts::Location;
use transom_artifacts::folder::FileIdentity;
use transom_core::reference::ObjectRef;

impl ManifestState {
    /// Schedules a retry if the load that ended failed to read something. Returns whether the load before it failed to
    /// read, too. `seed` spreads the policies over time.
    pub(super) fn retry_later(&mut self, unread: bool, seed: u64) -> bool {
        self.retry = unread.then(|| retry_at(self.unread, seed));
        let before = self.unread;
        self.unread = if unread { before + 1 } else { 0 };
        unread && before > 0
    }
}

impl Swap {
    /// Starts to load the newest manifest of a policy. If that is refused, and nothing of the policy is active,
    /// restores the revision that was active when the agent ended.
    pub(super) fn load(&mut self, name: &Arc<str>) {
        let Some(newest) = self.newest.get_mut(name) else {
            return;
        };
        let of_server = matches!(self.source, PolicySource::Given(_));
        let first = !self.good.contains_key(name) || self.recalled.contains(name);
        let wanted = match (&newest.policy, &newest.refusal, newest.written.as_slice()) {
            (Some(policy), None, [one]) => Some(WantedReads::new(policy, one, of_server)),
            _ if !first || !self.rolls_out => None,
            (_, _, written) => WantedReads::to_restore(name, written, of_server),
        };
        let Some(mut wanted) = wanted else {
            return;
        };
        if let Some(history) = self.histories.get(name) {
            wanted.keep_meanings(history);
        }
        self.number += 1;
        newest.number = self.number;
        newest.loading = Some(Instant::now());
        newest.retry = None;
        let mut job = Job {
            policy: newest.policy.clone(),
            refusal: newest.refusal.clone(),
            first,
            ..Job::new(newest.number, name, wanted)
        };
        // The job before had still to get the revision before the active one: this one goes on with that.
        let is_watched = self.probations.contains_key(name);
        let lacking = self.loads.lacking(name);
        let lacking = lacking.or_else(|| self.lacks_before(name).then_some(0));
        if let Some(failures) = lacking.filter(|_| !first && !is_watched) {
            job.history = self.histories.get(name).cloned();
            (job.lacks_before, job.restoring) = (true, Restoring::Done);
            job.failures = failures;
        }
        self.loads.add(job);
        self.active.loading(self.loads.count());
    }

    /// Loads the policies again whose components changed.
    pub(in crate::policies) fn load_changed(
        &mut self,
        now: &BTreeMap<Location, Option<FileIdentity>>,
    ) {
        let changed = |_: &Arc<str>, newest: &ManifestState| {
            let mut before = newest.fingerprints.iter();
            newest.loading.is_some()
                || before.any(|(at, before)| now.get(at).is_some_and(|now| now != before))
        };
        for name in self.names(changed) {
            match self.newest.get_mut(&name) {
                Some(newest) if newest.loading.is_some() => {
                    newest.reported_files.extend(now.clone());
                }
                _ => self.load(&name),
            }
        }
    }

    /// Loads the policies again that name objects which have these versions now.
    pub(in crate::policies) fn load_changed_objects(&mut self, now: &PartVersions) {
        if now.is_empty() {
            return;
        }
        let changed = |_: &Arc<str>, newest: &ManifestState| {
            let named = newest.written.iter().flat_map(Written::read_from);
            let mut objects =
                named.flat_map(|one| one.objects().into_iter().cloned().collect::<Vec<_>>());
            objects.any(|object| {
                let before = newest.versions.get(&object);
                now.get(&object)
                    .is_some_and(|now| newest.loading.is_some() || before != Some(now))
            })
        };
        for name in self.names(changed) {
            match self.newest.get_mut(&name) {
                Some(newest) if newest.loading.is_some() => newest.reported.extend(now.clone()),
                _ => self.load(&name),
            }
        }
    }

    /// Loads a policy again whose components changed while it was loaded.
    pub(super) fn load_reported(&mut self, name: &str) {
        if let Some(newest) = self.newest.get_mut(name) {
            let files = std::mem::take(&mut newest.reported_files);
            let objects = std::mem::take(&mut newest.reported);
            self.load_changed(&files);
            self.load_changed_objects(&objects);
        }
    }

    /// Loads the policies again whose objects could not be read some time ago.
    pub(in crate::policies) fn retry(&mut self) {
        let now = Instant::now();
        let is_due =
            |_: &Arc<str>, newest: &ManifestState| newest.retry.is_some_and(|at| at <= now);
        for name in self.names(is_due) {
            // Another load would begin the pull of the revision before anew.
            if !self.loads.follows(&name) {
                self.load(&name);
            }
        }
    }

    /// The component files that policies name. Those of refused policies count, too: a missing or broken file may be
    /// put right.
    pub(in crate::policies) fn components(&self) -> BTreeSet<Location> {
        let written = self.newest.values().flat_map(|newest| &newest.written);
        let mut components: BTreeSet<_> = written.flat_map(Written::read_from).collect();
        components.retain(|component| component.file().is_some());
        components
    }

    /// The objects that hold components, likewise.
    pub(in crate::policies) fn objects(&self) -> BTreeSet<ObjectRef> {
        let written = self.newest.values().flat_map(|newest| &newest.written);
        let components = written.flat_map(Written::read_from);
        let allowed = components.filter(|one| self.loads.components().allow(one));
        allowed
            .flat_map(|one| one.objects().into_iter().cloned().collect::<Vec<_>>())
            .collect()
    }
}
