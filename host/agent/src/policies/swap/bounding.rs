//! Refuses manifests that may not work beside those of other policies, and bounds what the earlier revision of a policy
//! may do while its newest manifest cannot take over.

use super::{GRACE, ManifestState, Swap};
use crate::policies::Written;
use crate::policies::active::PolicyChanges;
use crate::policies::load::LoadedPolicy;
use std::sync::Arc;
use transom_api::policy::ModeSpec;
use transom_core::catalogue::overlap::{self, LoadCandidate};
use transom_core::catalogue::{PolicyChange, Revision};
use transom_core::policy::{Policy, bound};

impl ManifestState {
    /// Whether its components take long.
    fn is_slow(&self) -> bool {
        self.loading.is_some_and(|since| since.elapsed() > GRACE)
    }
}

impl Swap {
    /// Refuses manifests that overlap with others, and loads those again that no longer do. Compares only manifests, so
    /// the result does not depend on the order in which components are loaded.
    pub(super) fn refuse_overlaps(&mut self) -> PolicyChanges {
        let mut taken = {
            let known = self.active.lock();
            let candidate = |(name, newest)| {
                let (name, newest): (&Arc<str>, &ManifestState) = (name, newest);
                let active = known.catalogue.revision(name);
                let active = active.map(|revision| &revision.policy);
                let loadable = newest.policy.as_ref().filter(|_| !newest.failed);
                Some(LoadCandidate {
                    // A policy that cannot be loaded counts with its active revision.
                    newest: loadable.or(active)?,
                    active,
                    created_seconds: newest.written.first().and_then(Written::created_seconds),
                })
            };
            overlap::refused(&self.newest.iter().filter_map(candidate).collect::<Vec<_>>())
        };
        let mut changes = PolicyChanges::new();
        for name in self.names(|_, _| true) {
            let Some(newest) = self.newest.get_mut(&name) else {
                continue;
            };
            // One that is not valid is refused for that.
            let before = newest.policy.is_some() && newest.refusal.is_some();
            match taken.remove(&name) {
                Some(refusal) => {
                    newest.refusal = Some(refusal.clone());
                    newest.pending = None;
                    if !before {
                        self.withdraw_load(&name);
                    }
                    changes.extend(self.narrow(&name));
                    changes.extend(self.refuse(&name, refusal, !before));
                    if !before {
                        self.load(&name);
                    }
                }
                None if before => {
                    newest.refusal = None;
                    self.load(&name);
                }
                None => {}
            }
        }
        changes
    }

    /// What the newest manifests of a policy say counts at once, valid or not: that it is suspended, or only compares.
    /// Otherwise one that is not valid narrows nothing, and the one before it counts no more.
    pub(super) fn bound_at_once(&self, name: &str) -> PolicyChanges {
        let Some(newest) = self.newest.get(name) else {
            return PolicyChanges::new();
        };
        if self.is_behind(name) || newest.written.iter().any(Written::suspends) {
            return self.suspend(name);
        }
        if self.shadows(&newest.written) {
            return self.bound(name, bound::shadowed);
        }
        let good = self.good.get(name).filter(|_| newest.refusal.is_some());
        match good.is_some_and(|good| !self.is_taken(name, &good.revision.policy)) {
            true => self.bound(name, Policy::clone),
            false => PolicyChanges::new(),
        }
    }

    /// Whether another policy works, or will, that owns what this one would own beside it.
    pub(super) fn is_taken(&self, name: &str, policy: &Policy) -> bool {
        let known = self.active.lock();
        self.newest.iter().any(|(other, newest)| {
            let active = known.catalogue.revision(other);
            let loadable = newest.refusal.is_none() && !newest.failed;
            let comes = newest.policy.as_ref();
            let automatic = |policy: &&Policy| policy.spec.rollout.mode == ModeSpec::Automatic;
            let comes = comes.filter(|_| active.is_none() && loadable);
            let comes = comes.filter(automatic);
            let mut works = active.map(|active| &active.policy).into_iter().chain(comes);
            **other != *name && works.any(|works| overlap::clash(policy, works))
        })
    }

    /// The result of the running load of a policy no longer counts.
    fn withdraw_load(&mut self, name: &str) {
        self.number += 1;
        if let Some(newest) = self.newest.get_mut(name) {
            newest.number = self.number;
            newest.loading = None;
        }
    }

    /// Suspends the active revision of a policy whose manifest cannot take over, and says so.
    pub(super) fn suspend(&self, name: &str) -> PolicyChanges {
        self.bound(name, |earlier| Policy {
            suspend: true,
            ..earlier.clone()
        })
    }

    /// Whether these manifests say that their policy only compares: no revision of it writes.
    pub(super) fn shadows(&self, written: &[Written]) -> bool {
        self.rolls_out && written.iter().any(Written::shadows)
    }

    /// Bounds the earlier revisions of policies whose components take long.
    pub(in crate::policies) fn narrow_slow(&mut self) -> PolicyChanges {
        let slow = self.names(|_, newest| newest.is_slow());
        slow.iter().flat_map(|name| self.narrow(name)).collect()
    }

    /// Whether this new leader still works on another revision than the one active in the history, because the load of
    /// that one takes long; or may do so, because the history could not be listed. False if its components could not be
    /// read: the leader does not wait for them.
    fn is_behind(&self, name: &str) -> bool {
        if self.caught_up && self.unlisted.contains(name) {
            return true;
        }
        let Some((name, newest)) = self.newest.get_key_value(name) else {
            return false;
        };
        // Without a valid manifest nothing says what may work again afterwards.
        let waits = newest.is_slow() && !newest.unrestored && newest.policy.is_some();
        let works = self.good.get(name);
        let is_other = works
            .zip(self.active_by_history(name))
            .is_some_and(|(works, active)| !active.goes_on_in(&works.revision));
        self.caught_up && waits && self.recalled.contains(name) && is_other
    }

    /// Bounds the active revision of a policy by its newest manifest. If a new leader is about to replace it by the
    /// revision of the history, suspends it: it would undo the writes of that one. Whatever ends the load calls this
    /// again or activates another revision, and so ends the suspension.
    pub(super) fn narrow(&self, name: &str) -> PolicyChanges {
        if self.is_behind(name) {
            return self.suspend(name);
        }
        let newest = self.newest.get(name);
        let shadows = newest.is_some_and(|newest| self.shadows(&newest.written));
        match newest.and_then(|newest| newest.policy.as_ref()) {
            Some(newest) => self.bound(name, |earlier| {
                let bounded = bound::bounded(earlier, newest);
                if shadows {
                    bound::shadowed(&bounded)
                } else {
                    bounded
                }
            }),
            None => self.bound_at_once(name),
        }
    }

    /// Activates the last good revision with a bounded policy.
    pub(super) fn bound(
        &self,
        name: &str,
        bounded: impl FnOnce(&Policy) -> Policy,
    ) -> PolicyChanges {
        let Some(good) = self.good.get(name) else {
            return PolicyChanges::new();
        };
        let revision = Arc::new(Revision {
            policy: bounded(&good.revision.policy),
            trigger: good.revision.trigger.clone(),
            decide: good.revision.decide.clone(),
        });
        let changes = self.change(|known| {
            if known.catalogue.revision(name) != Some(&revision) {
                let loaded = LoadedPolicy {
                    revision: Arc::clone(&revision),
                    // It was not tried with these bounds.
                    expecting: None,
                    ..LoadedPolicy::clone(good)
                };
                let catalogue = &known.catalogue;
                known.catalogue = catalogue.update(name, |entry| entry.revision = Some(revision));
                known.loaded.insert(name.into(), Arc::new(loaded));
            }
        });
        let bounded = |(name, _)| (name, PolicyChange::Bounded);
        changes.into_iter().map(bounded).collect()
    }
}
