//! Turns a changed policy or component into a new revision beside the old one; it takes over as a whole or is refused.
//! Each policy is loaded on its own; a change that needs no component, such as a suspension, counts at once. Does not
//! wait for a component: results come back as [`JobResult`](crate::policies::load_queue::JobResult).

mod bounding;
mod handover;
mod history;
mod load_results;
mod probation;
pub(crate) mod rollout;
mod start_load;
mod tagging;
pub(crate) mod trial;

use crate::policies::active::{Active, ActiveState, PolicyChanges};
use crate::policies::components::PartVersions;
use crate::policies::load::{self, LoadedPolicy};
use crate::policies::load_queue::LoadQueue;
use crate::policies::places::KnownPlaces;
use crate::policies::{Approval, FoundPolicies, PolicySource, Written};
use crate::telemetry;
use probation::RunningProbation;
use rollout::Pending;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_artifacts::Location;
use transom_artifacts::folder::FileIdentity;
use transom_core::catalogue::{PolicyChange, PolicyPlace, Refusal};
use transom_core::digest::Digest;
use transom_core::policy::Policy;
use transom_core::rollout::history::{History, RevisionRecord};

/// If a load takes longer than this, the newest manifest bounds the active revision until the load ends.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Loads the policies as they are written, and decides which revision of each one is active.
pub(crate) struct Swap {
    loads: LoadQueue,
    source: PolicySource,
    /// The manifests under each name, valid or not.
    newest: BTreeMap<Arc<str>, ManifestState>,
    /// The last revision of each policy that could be loaded whole.
    good: BTreeMap<Arc<str>, Arc<LoadedPolicy>>,
    active: Active,
    /// What policies may name.
    places: KnownPlaces,
    /// The number of the last load. It only grows, also when a policy is removed and written again.
    number: u64,
    /// Whether new revisions are candidates first; otherwise each is active once it is loaded.
    rolls_out: bool,
    /// The kept revisions of each policy, as they were read or written last.
    histories: BTreeMap<Arc<str>, History>,
    /// Barred revisions that the history does not record yet, each with the reason.
    bars: BTreeMap<Arc<str>, BTreeMap<Digest, (RevisionRecord, String)>>,
    /// The policies for which this new leader must still restore the revision that is active in the history.
    recalled: BTreeSet<Arc<str>>,
    /// The policies that may work on an earlier revision than under the leader before: the history could not be listed.
    unlisted: BTreeSet<Arc<str>>,
    /// The policies whose history may be out of date, and when to write it. That is also done from time to time.
    notes: BTreeMap<Arc<str>, Instant>,
    /// False while another replica may lead: this one then writes no history. Always true without leader election.
    caught_up: bool,
    /// Removed policies whose revisions are still to be deleted from the history.
    gone: BTreeSet<Arc<str>>,
    /// The policies whose active revision is new.
    probations: BTreeMap<Arc<str>, RunningProbation>,
}

/// The manifests under one name.
#[derive(Default)]
struct ManifestState {
    written: Vec<Written>,
    place: PolicyPlace,
    /// The checked policy; `None` when the manifest is not valid.
    policy: Option<Policy>,
    /// Whether it cannot be loaded.
    failed: bool,
    /// Why it is refused before it is loaded: it is not valid, or may not work beside another policy.
    refusal: Option<Refusal>,
    /// When its components began to be loaded; `None` when they are not being loaded.
    loading: Option<Instant>,
    /// The number of the load that counts; the result of an older one is dropped.
    number: u64,
    /// The fingerprints of the components at the last load.
    fingerprints: BTreeMap<Location, Option<FileIdentity>>,
    /// What was in the objects that hold components, at the last load.
    versions: PartVersions,
    /// The versions of these objects, and of files, that were reported during a load; compared when it ends.
    reported: PartVersions,
    reported_files: BTreeMap<Location, Option<FileIdentity>>,
    /// When to load once more, because an object could not be read.
    retry: Option<Instant>,
    /// The revision that was loaded and is not active.
    pending: Option<Pending>,
    /// How often in a row a trial took too long, also of candidates before an edit.
    late: u32,
    /// How many loads in a row could not read something. The refusal of the second and later ones is not reported
    /// again.
    unread: u32,
    /// A history that a load up to this number has read is stale: a newer one was read or written since.
    history_at: u64,
    /// Whether its kept revision could not be read at the last load, which is tried again.
    unrestored: bool,
}

impl Swap {
    /// Without policies yet; they may name these places.
    pub(super) fn new(
        loads: LoadQueue,
        source: PolicySource,
        places: KnownPlaces,
        rolls_out: bool,
    ) -> Self {
        Self {
            loads,
            source,
            newest: BTreeMap::new(),
            good: BTreeMap::new(),
            active: Active::default(),
            places,
            number: 0,
            rolls_out,
            histories: BTreeMap::new(),
            bars: BTreeMap::new(),
            recalled: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            notes: BTreeMap::new(),
            caught_up: true,
            gone: BTreeSet::new(),
            probations: BTreeMap::new(),
        }
    }

    /// Where policies come from.
    pub(super) fn source(&self) -> &PolicySource {
        &self.source
    }

    /// What is active.
    pub(crate) fn active(&self) -> &Active {
        &self.active
    }

    /// Replaces the policies by these, if they differ.
    pub(super) fn replace(&mut self, policies: FoundPolicies) -> PolicyChanges {
        if matches!(&self.source, PolicySource::Given(before) if *before == policies) {
            return Vec::new();
        }
        self.source = PolicySource::Given(policies.clone());
        self.update(Ok(policies))
    }

    /// The policies as they are written now.
    ///
    /// # Errors
    /// As for [`PolicySource::read`].
    pub(crate) fn written(&self) -> std::io::Result<FoundPolicies> {
        self.source.read()
    }

    /// Replaces the policies by these, and waits until all of them are loaded or refused.
    pub(crate) async fn exchange(&mut self, policies: FoundPolicies) -> PolicyChanges {
        let mut changes = self.replace(policies);
        while self.loads.count() > 0 {
            let done = self.next().await;
            changes.extend(self.finish(done));
        }
        changes
    }

    /// Takes the policies as they are written now. Starts to load new ones. What needs no component, such as a
    /// suspension, a refusal or a removal, takes effect at once.
    pub(super) fn update(&mut self, found: Result<FoundPolicies, String>) -> PolicyChanges {
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.log_broken(vec![(self.source.place(), why)]);
                return Vec::new();
            }
        };
        let mut by_name: BTreeMap<Arc<str>, Vec<Written>> = BTreeMap::new();
        for written in &found.policies {
            // A policy without a name is refused under its place.
            let name = written.name().unwrap_or(&written.place).into();
            by_name.entry(name).or_default().push(written.clone());
        }
        let mut changes = self.remove_unwritten(&found, &by_name);
        self.log_broken(found.broken);
        for (name, written) in by_name {
            match self.newest.get_mut(&name) {
                Some(newest) if same(&newest.written, &written) => newest.approve(written),
                _ => changes.extend(self.take(&name, written)),
            }
        }
        self.active.lock().approvals = self.approvals();
        self.active.lock().uids = self.uids();
        changes.extend(self.refuse_overlaps());
        self.active.lock().written = self.newest.keys().map(ToString::to_string).collect();
        self.active.loading(self.loads.count());
        changes
    }

    /// What is approved of each policy that is an object or stands in one file.
    fn approvals(&self) -> BTreeMap<Arc<str>, Approval> {
        let approval = |(name, newest): (&Arc<str>, &ManifestState)| {
            let [written] = newest.written.as_slice() else {
                return None;
            };
            Some((Arc::clone(name), written.approval()?))
        };
        self.newest.iter().filter_map(approval).collect()
    }

    /// The names of the policies of which this is true.
    fn names(&self, is_wanted: impl Fn(&Arc<str>, &ManifestState) -> bool) -> Vec<Arc<str>> {
        let wanted = self
            .newest
            .iter()
            .filter(|(name, one)| is_wanted(name, one));
        wanted.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Removes the policies that are no longer written. A policy at a place that cannot be read now is not gone.
    fn remove_unwritten(
        &mut self,
        found: &FoundPolicies,
        by_name: &BTreeMap<Arc<str>, Vec<Written>>,
    ) -> PolicyChanges {
        let mut changes = PolicyChanges::new();
        // An object that was made anew is another policy.
        let is_gone = |_: &Arc<str>, newest: &ManifestState, now: Option<&Vec<Written>>| {
            now.is_none_or(|now| self.uid(now) != self.uid(&newest.written))
        };
        for name in self.names(|name, newest| is_gone(name, newest, by_name.get(name))) {
            let uid = self.newest.get(&name);
            let uid = uid.and_then(|newest| self.uid(&newest.written).map(str::to_owned));
            let Some(newest) = self.newest.get_mut(&name) else {
                continue;
            };
            let mut places = newest.written.iter().map(|one| one.place.clone());
            let Some(place) = places.find(|place| found.unread_at(place).is_some()) else {
                self.newest.remove(&name);
                self.good.remove(&name);
                self.forget_kept(&name, uid.as_deref());
                self.probations.remove(&name);
                self.loads.cancel(&name);
                changes.extend(self.change(|known| {
                    known.loaded.remove(&name);
                    known.rehearsed.remove(&name);
                    known.catalogue = known.catalogue.without(&name);
                }));
                continue;
            };
            if let Some(why) = found.why(&place) {
                // Whatever is read there next counts as new, even the same content.
                for written in &mut newest.written {
                    written.value.take();
                }
                let refusal = Refusal::new(KnownReason::ManifestInvalid, format!("{place}: {why}"));
                changes.extend(self.refuse(&name, refusal, false));
            }
        }
        changes
    }

    /// Takes the manifests under one name.
    fn take(&mut self, name: &Arc<str>, written: Vec<Written>) -> PolicyChanges {
        let places: Vec<_> = written.iter().map(|one| one.place.as_str()).collect();
        let first = written.first().map(|one| &one.value);
        let place = PolicyPlace {
            text: places.join(", "),
            generation: first.and_then(|first| first.pointer("/metadata/generation")?.as_i64()),
        };
        let checked = match written.as_slice() {
            [one] => load::check(&one.value).and_then(|policy| self.places.check(policy)),
            _ => Err(load::defined_in_several(
                written.iter().map(Written::shown_place),
            )),
        };
        let refusal = checked.as_ref().err().cloned();
        let newest = ManifestState {
            written,
            place,
            policy: checked.ok(),
            refusal: refusal.clone(),
            late: (self.newest.get(name)).map_or(0, ManifestState::late_trials),
            ..ManifestState::default()
        };
        self.newest.insert(Arc::clone(name), newest);
        let mut changes = self.bound_at_once(name);
        if let Some(refusal) = refusal {
            changes.extend(self.refuse(name, refusal, true));
        }
        self.load(name);
        changes
    }

    /// The loads that are queued or running.
    pub(super) fn loads(&self) -> &LoadQueue {
        &self.loads
    }

    /// Refuses the newest manifest. `anew`: the manifest or its components changed, so the refusal is reported again.
    fn refuse(&mut self, name: &Arc<str>, mut refusal: Refusal, anew: bool) -> PolicyChanges {
        let newest = self.newest.get(name);
        let place = newest.map_or_else(PolicyPlace::default, |newest| newest.place.clone());
        let changes = self.change(|known| {
            let active = known.catalogue.revision(name);
            let good = self.good.get(name).map(|good| &good.revision);
            if good.is_some() && active.is_some() && good != active {
                refusal.message +=
                    "; the previous revision stays active within the limits of this manifest";
            }
            known.catalogue = known.catalogue.update(name, |entry| {
                entry.refused = Some(refusal);
                entry.place = place;
                entry.candidate = None;
            });
        });
        match changes.is_empty() && anew {
            true => vec![(Arc::clone(name), PolicyChange::Refused)],
            false => changes,
        }
    }

    /// Changes what is known, and returns the changes of policies.
    fn change(&self, change: impl FnOnce(&mut ActiveState)) -> PolicyChanges {
        let mut known = self.active.lock();
        let before = known.catalogue.clone();
        change(&mut known);
        known.catalogue.since(&before)
    }

    /// Logs what cannot be read, each thing once for as long as it lasts.
    fn log_broken(&self, broken: Vec<(String, String)>) {
        let before = std::mem::replace(&mut self.active.lock().broken, broken.clone());
        for (place, message) in broken.into_iter().filter(|one| !before.contains(one)) {
            telemetry::unreadable(&place, KnownReason::ManifestInvalid, &message);
        }
    }
}

/// Whether the manifests define the same policies.
fn same(one: &[Written], other: &[Written]) -> bool {
    let mut both = one.iter().zip(other);
    one.len() == other.len() && both.all(|(one, other)| one.defines_same(other))
}
