//! A new leader takes over the active revisions that the previous leader recorded in the history.

use super::Swap;
use crate::policies::active::PolicyChanges;
use crate::policies::load::LoadedPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use transom_api::KnownReason;
use transom_api::policy::PolicySpec;
use transom_core::rollout;

/// How long a new leader waits for the list of all revisions.
const LISTING: Duration = Duration::from_secs(10);

impl Swap {
    /// Writes no history until [`Self::catch_up`]: another replica may lead, and record what this one does not know.
    /// What this one found of candidates counts no more.
    pub(in crate::policies) fn stand_by(&mut self) -> PolicyChanges {
        self.caught_up = false;
        let unlisted = std::mem::take(&mut self.unlisted).into_iter();
        let mut changes: PolicyChanges = unlisted.flat_map(|name| self.narrow(&name)).collect();
        changes.extend(self.untry());
        changes
    }

    /// Takes over the revisions that the leader before has put to work. Returns the policies whose active revision has
    /// to be loaded for that.
    pub(in crate::policies) async fn catch_up(&mut self) -> (PolicyChanges, BTreeSet<Arc<str>>) {
        let (mut changes, mut is_listed) = (PolicyChanges::new(), true);
        let mut is_unread = false;
        self.caught_up = true;
        for newest in self.newest.values_mut() {
            (newest.history_at, newest.unrestored) = (self.number, false);
        }
        self.loads.components().forget_histories();
        // A policy that was written again since may have other revisions by now.
        self.gone.retain(|name| !self.newest.contains_key(name));
        let names = self.names(|_, _| true);
        // Notes that were not written are still due. Until the history is read, they record only bars.
        for name in &self.gone.clone() {
            self.note(name);
        }
        for name in &names {
            self.recalled.insert(Arc::clone(name));
            self.note(name);
            self.try_again(name, Instant::now());
        }
        for name in &names {
            let written = self.newest.get(name);
            let written = written.map(|newest| newest.written.as_slice());
            let uid = self.uid(written.unwrap_or_default());
            // All are listed with the first one.
            let history = match is_listed {
                true => timeout(LISTING, self.loads.components().history(name, uid)).await,
                false => Ok(Ok(None)),
            };
            if let Ok(Ok(Some(history))) = history {
                self.put_history(name, history);
                changes.extend(self.take_over(name));
            } else {
                is_unread |= match history {
                    // Nobody waits for a right that is missing.
                    Ok(Err(unread)) => unread.reason != KnownReason::ReadForbidden,
                    Ok(Ok(_)) => false,
                    Err(_) => true,
                };
                is_listed = false;
                changes.extend(self.load_unlisted(name, is_unread));
            }
        }
        let behind = names.into_iter();
        let behind = behind.filter(|name| self.recalled.contains(name));
        (changes, behind.collect())
    }

    /// Loads a policy whose history could not be listed: a load also reads the history, and is retried until it
    /// succeeds. `is_unread`: it may be there.
    fn load_unlisted(&mut self, name: &Arc<str>, is_unread: bool) -> PolicyChanges {
        let is_behind = is_unread && self.may_be_behind(name);
        if is_behind {
            self.unlisted.insert(Arc::clone(name));
        }
        self.load(name);
        match is_behind {
            true => self.narrow(name),
            false => PolicyChanges::new(),
        }
    }

    /// Whether the leader before may have put another revision to work than the one that works here: the manifests name
    /// another one.
    fn may_be_behind(&self, name: &Arc<str>) -> bool {
        let Some((newest, good)) = self.newest.get(name).zip(self.good.get(name)) else {
            return false;
        };
        let works = &good.revision.policy.spec;
        let is_other = |named: &PolicySpec| {
            let other_guests = named.guests != works.guests;
            other_guests || rollout::identity(named) != rollout::identity(works)
        };
        newest.pending.is_some() || (newest.policy.iter()).any(|policy| is_other(&policy.spec))
    }

    /// Puts the revision to work that is active by the history, or has it loaded.
    pub(super) fn take_over(&mut self, name: &Arc<str>) -> PolicyChanges {
        let mut changes = PolicyChanges::new();
        self.recalled.remove(name);
        let newest = self.newest.get(name);
        let pending = newest.and_then(|newest| newest.pending.as_ref());
        let mut pending = pending.map(|pending| Arc::clone(&pending.loaded));
        if let Some(loaded) = &pending
            && let Some(why) = self.barred(name, &loaded.revision.id())
        {
            changes.extend(self.refuse_barred(name, loaded, why));
            pending = None;
        }
        // If the history has no active revision, the one that works here becomes its first.
        let Some(active) = self.active_by_history(name).cloned() else {
            changes.extend(self.listed(name));
            return changes;
        };
        // The leader before may have been of another version, with other builtin components.
        let goes_on = |here: &Arc<LoadedPolicy>| active.goes_on_in(&here.revision);
        let before = self.good.get(name).cloned();
        if before.as_ref().is_some_and(goes_on) {
            changes.extend(self.listed(name));
            self.load_before(name);
            return changes;
        }
        match pending.filter(goes_on) {
            Some(loaded) => {
                changes.extend(self.put_to_work(name, loaded));
                if let Some(before) = before {
                    self.watch_on(name, before);
                }
                self.load_before(name);
            }
            None => {
                self.recalled.insert(Arc::clone(name));
                self.load(name);
            }
        }
        changes
    }

    /// Has a load bring the revision before, if it is lacking: the leader before may have activated several.
    fn load_before(&mut self, name: &Arc<str>) {
        if self.lacks_before(name) {
            self.load(name);
        }
    }

    /// The history of a policy is known, and what works here is what it has active: ends a suspension until then.
    pub(super) fn listed(&mut self, name: &Arc<str>) -> PolicyChanges {
        match self.unlisted.remove(name) {
            true => self.narrow(name),
            false => PolicyChanges::new(),
        }
    }

    /// Whether the kept revision of one of these policies is being loaded.
    pub(in crate::policies) fn any_loads(&self, policies: &BTreeSet<Arc<str>>) -> bool {
        let behind = policies.iter().filter(|name| self.recalled.contains(*name));
        let mut newest = behind.filter_map(|name| self.newest.get(name));
        newest.any(|newest| newest.loading.is_some())
    }
}
