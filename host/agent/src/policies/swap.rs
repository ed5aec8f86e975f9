//! Turns a changed policy or component into a new revision beside the old one; it takes over as a whole or is refused.
//! Each policy is loaded on its own; a change that needs no component, such as a suspension, counts at once. Does not
//! wait for a component: results come back as [`Done`].

mod beside;
mod bounding;

pub(crate) use beside::created_seconds;

use crate::policies::active::{Active, Changes, Known};
use crate::policies::load::{self, Loaded};
use crate::policies::loads::{Done, Job, Loads};
use crate::policies::{Found, Source, Written};
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_artifacts::Location;
use transom_artifacts::folder::FileIdentity;
use transom_core::catalogue::{Change, Place, Refusal};
use transom_core::policy::Policy;
use transom_core::signal::Signal;
use transom_engine::Engine;

/// How long a component may take to load until a narrower grant of its policy bounds the earlier revision.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Takes the written policies, has them loaded, and keeps what is active.
pub(crate) struct Swap {
    loads: Loads,
    source: Source,
    /// The manifests under each name, valid or not.
    newest: BTreeMap<Arc<str>, Newest>,
    /// The last revision of each policy that could be loaded whole.
    good: BTreeMap<Arc<str>, Arc<Loaded>>,
    active: Active,
    /// The connections that policies may name.
    connections: BTreeSet<String>,
    /// The number of the last load. It only grows, also when a policy is removed and written again.
    number: u64,
}

/// The manifests under one name.
struct Newest {
    written: Vec<Written>,
    place: Place,
    /// The checked policy; `None` when the manifest is not valid.
    policy: Option<Policy>,
    /// Whether it cannot be loaded.
    failed: bool,
    /// Whether it is refused because of another policy that it may not work beside.
    taken: bool,
    /// When its components began to be loaded; `None` when they are not being loaded.
    loading: Option<Instant>,
    /// The number of the load that counts; the result of an older one is dropped.
    number: u64,
    /// The fingerprints of the components at the last load.
    fingerprints: BTreeMap<Location, Option<FileIdentity>>,
}

impl Swap {
    /// Without policies yet; they may name these connections.
    pub(super) fn new(engine: Engine, source: Source, connections: BTreeSet<String>) -> Self {
        Self {
            loads: Loads::new(engine),
            source,
            newest: BTreeMap::new(),
            good: BTreeMap::new(),
            active: Active::default(),
            connections,
            number: 0,
        }
    }

    /// Where policies come from.
    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// What is active.
    pub(crate) fn active(&self) -> &Active {
        &self.active
    }

    /// Replaces the policies by these, if they differ.
    pub(super) fn give(&mut self, policies: Found) -> Changes {
        if matches!(&self.source, Source::Given(before) if *before == policies) {
            return Vec::new();
        }
        self.source = Source::Given(policies.clone());
        self.see(Ok(policies))
    }

    /// Takes the policies that are written now: starts to load new ones, and at once bounds, refuses or removes what
    /// needs no component.
    pub(super) fn see(&mut self, found: Result<Found, String>) -> Changes {
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.tell_broken(vec![(self.source.place(), why)]);
                return Vec::new();
            }
        };
        let mut by_name: BTreeMap<Arc<str>, Vec<Written>> = BTreeMap::new();
        for written in &found.policies {
            // A policy without a name is refused under its place.
            by_name
                .entry(written.name().unwrap_or(&written.place).into())
                .or_default()
                .push(written.clone());
        }
        let mut changes = self.unwritten(&found, &by_name);
        self.tell_broken(found.broken);
        for (name, written) in by_name {
            if self
                .newest
                .get(&name)
                .is_none_or(|newest| newest.written != written)
            {
                changes.extend(self.take(&name, written));
            }
        }
        changes.extend(self.overlaps());
        self.active.lock().written = self.newest.keys().map(ToString::to_string).collect();
        self.active.loading(self.loads.count());
        changes
    }

    /// Removes the policies that are no longer written. A policy at a place that cannot be read now is not gone.
    fn unwritten(&mut self, found: &Found, by_name: &BTreeMap<Arc<str>, Vec<Written>>) -> Changes {
        let mut changes = Vec::new();
        let missing: Vec<_> = self
            .newest
            .keys()
            .filter(|name| !by_name.contains_key(*name))
            .cloned()
            .collect();
        for name in missing {
            let places = self
                .newest
                .get(&name)
                .map(|newest| newest.written.as_slice())
                .unwrap_or_default();
            let stays = places
                .iter()
                .find(|written| found.may_hold(&written.place))
                .map(|one| one.place.clone());
            let Some(place) = stays else {
                self.newest.remove(&name);
                self.good.remove(&name);
                changes.extend(self.change(|known| {
                    known.loaded.remove(&name);
                    known.catalogue = known.catalogue.without(&name);
                }));
                continue;
            };
            if let (Some(why), Some(newest)) = (found.why(&place), self.newest.get_mut(&name)) {
                // Whatever is read there next counts as new, even the same content.
                newest
                    .written
                    .iter_mut()
                    .for_each(|written| drop(written.value.take()));
                let message = format!("{place}: {why}");
                changes.extend(self.refuse(
                    &name,
                    Refusal {
                        reason: KnownReason::ManifestInvalid,
                        message,
                    },
                    false,
                ));
            }
        }
        changes
    }

    /// Takes the manifests under one name.
    fn take(&mut self, name: &Arc<str>, written: Vec<Written>) -> Changes {
        let places: Vec<_> = written
            .iter()
            .map(|written| written.place.as_str())
            .collect();
        let generation = written
            .first()
            .and_then(|one| one.value.pointer("/metadata/generation")?.as_i64());
        let place = Place {
            text: places.join(", "),
            generation,
        };
        let checked = match written.as_slice() {
            [one] => load::check(&one.value)
                .and_then(|policy| load::connected(&policy, &self.connections).map(|()| policy)),
            _ => Err(Refusal {
                reason: KnownReason::PolicyInvalid,
                message: format!(
                    "metadata.name: the policy is defined in {} places: {}",
                    places.len(),
                    place.text
                ),
            }),
        };
        let suspends = written
            .iter()
            .any(|one| one.value.pointer("/spec/suspend") == Some(&true.into()));
        let (policy, refusal) = match checked {
            Ok(policy) => (Some(policy), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let newest = Newest {
            written,
            place,
            policy,
            failed: false,
            taken: false,
            loading: None,
            number: 0,
            fingerprints: BTreeMap::new(),
        };
        self.newest.insert(Arc::clone(name), newest);
        let mut changes = Changes::new();
        if suspends {
            changes.extend(self.bound(name, |earlier| Policy {
                suspend: true,
                ..earlier.clone()
            }));
        }
        match refusal {
            Some(refusal) => changes.extend(self.refuse(name, refusal, true)),
            None => self.load(name),
        }
        changes
    }

    /// Starts to load the newest manifest of a policy.
    fn load(&mut self, name: &Arc<str>) {
        let Some(newest) = self.newest.get_mut(name) else {
            return;
        };
        let (Some(policy), [written]) = (&newest.policy, newest.written.as_slice()) else {
            return;
        };
        self.number += 1;
        newest.number = self.number;
        newest.loading = Some(Instant::now());
        let components = load::components(written);
        self.loads.add(Job {
            number: newest.number,
            policy: policy.clone(),
            base: written.base.clone(),
            components,
        });
    }

    /// Loads the policies again whose components changed.
    pub(super) fn see_components(
        &mut self,
        fingerprints: &BTreeMap<Location, Option<FileIdentity>>,
    ) {
        let other = |newest: &Newest| {
            newest.loading.is_none()
                && newest.fingerprints.iter().any(|(at, fingerprint)| {
                    fingerprints.get(at).is_some_and(|now| now != fingerprint)
                })
        };
        let changed: Vec<_> = self
            .newest
            .iter()
            .filter(|(_, one)| other(one))
            .map(|(name, _)| name.clone())
            .collect();
        changed.iter().for_each(|name| self.load(name));
    }

    /// The loads that are queued or running.
    pub(super) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Waits for the next policy that was loaded or refused.
    pub(super) async fn next(&mut self) -> Done {
        self.loads.next().await
    }

    /// Takes the result of a load.
    pub(super) fn finish(&mut self, done: Done) -> Changes {
        let name = Arc::clone(&done.policy);
        let Some(newest) = self
            .newest
            .get_mut(&name)
            .filter(|newest| newest.number == done.number)
        else {
            self.active.loading(self.loads.count());
            return Vec::new();
        };
        newest.loading = None;
        // These fingerprints are older than the load, so a component that changed during it counts as changed.
        newest.fingerprints = done.fingerprints;
        let failed_before = std::mem::replace(&mut newest.failed, done.result.is_err());
        // A policy that could not be loaded until now did not count among the others; what it owns may belong to
        // another one.
        let before = if failed_before && !newest.failed {
            self.overlaps()
        } else {
            Changes::new()
        };
        let Some(newest) = self
            .newest
            .get_mut(&name)
            .filter(|newest| newest.number == done.number)
        else {
            self.active.loading(self.loads.count());
            return before;
        };
        let now = match done.result {
            Ok(loaded) => {
                let (loaded, place) = (Arc::new(loaded), newest.place.clone());
                self.good.insert(Arc::clone(&name), Arc::clone(&loaded));
                self.change(|known| {
                    let same = known
                        .catalogue
                        .revision(&name)
                        .is_some_and(|before| *before == loaded.revision);
                    known.catalogue = known.catalogue.with((*loaded.revision).clone(), place);
                    if !same {
                        known.loaded.insert(name, loaded);
                    }
                })
            }
            Err(refusal) => {
                let mut changes = self.narrow(&name);
                changes.extend(self.refuse(&name, refusal, true));
                changes
            }
        };
        let after = self.overlaps();
        self.active.loading(self.loads.count());
        [before, now, after].concat()
    }

    /// Refuses the newest manifest. `anew`: the manifest or its components changed, so the refusal is reported again.
    fn refuse(&mut self, name: &Arc<str>, refusal: Refusal, anew: bool) -> Changes {
        let place = self
            .newest
            .get(name)
            .map(|newest| newest.place.clone())
            .unwrap_or_default();
        let bound = self.good.get(name).is_some_and(|good| {
            self.active
                .lock()
                .catalogue
                .revision(name)
                .is_some_and(|revision| *revision != good.revision)
        });
        let suffix = if bound {
            "; the previous revision stays active within the limits of this manifest"
        } else {
            ""
        };
        let refusal = Refusal {
            message: format!("{}{suffix}", refusal.message),
            ..refusal
        };
        let changes =
            self.change(|known| known.catalogue = known.catalogue.refusing(name, refusal, place));
        match changes.is_empty() && anew {
            true => vec![(Arc::clone(name), Change::Refused)],
            false => changes,
        }
    }

    /// Changes what is known, and returns the changes of policies.
    fn change(&self, change: impl FnOnce(&mut Known)) -> Changes {
        let mut known = self.active.lock();
        let before = known.catalogue.clone();
        change(&mut known);
        known.catalogue.since(&before)
    }

    /// Logs what cannot be read, each thing once for as long as it lasts.
    fn tell_broken(&self, broken: Vec<(String, String)>) {
        let before = std::mem::replace(&mut self.active.lock().broken, broken.clone());
        for (place, message) in broken.into_iter().filter(|one| !before.contains(one)) {
            telemetry::tell(&Signal::Unreadable {
                place,
                reason: KnownReason::ManifestInvalid,
                message,
            });
        }
    }

    /// The component files that policies name. Those of refused policies count, too: a missing or broken file may be
    /// put right.
    pub(super) fn components(&self) -> BTreeSet<Location> {
        let all = self
            .newest
            .values()
            .flat_map(|newest| newest.written.iter().flat_map(load::components));
        all.filter(|location| location.file().is_some()).collect()
    }
}
