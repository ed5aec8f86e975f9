//! Since when guests fail, beyond the end of a process: beside the records of limits, read before the first use and
//! written a moment after it changed. `core::failing` decides what is kept.

use super::Controller;
use super::config_map::LimitsConfigMap;
use super::store::LimitStore;
use crate::controller::Admitted;
use crate::policies::active::Active;
use crate::telemetry;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_api::status::FailingStatus;
use transom_core::catalogue::Revision;
use transom_core::failure::Failure;
use transom_core::failure::failing::{Failing, FailingSince};
use transom_core::reference::ObjectRef;
use transom_core::time::parse_rfc3339;
use transom_core::work::Key;

/// How the entries of these records begin; no name of a policy has an underscore.
const PREFIX: &str = "failing_";
/// How many bytes these records may have together.
const ROOM: usize = 512 * 1024;

/// The entry of a policy.
pub(super) fn entry(policy: &str) -> String {
    format!("{PREFIX}{policy}")
}

/// Whether an entry is one of these records.
pub(super) fn is_entry(entry: &str) -> bool {
    entry.starts_with(PREFIX)
}

impl Controller {
    /// The revision of the policy that counts now, also for a reconcile that began under an earlier one.
    pub(in crate::controller) fn newest(&self, admitted: &Admitted) -> Arc<Revision> {
        let queue = self.queue(&admitted.work.key.policy);
        match queue {
            Some(queue) => Arc::clone(&queue.loaded().revision),
            None => Arc::clone(&admitted.loaded.revision),
        }
    }

    /// Records that the guest failed for a primary by its own fault; returns since when, in seconds since 1970.
    pub(in crate::controller) async fn guest_failed(&self, key: &Key) -> i64 {
        self.learn_failing().await;
        let now_seconds = self.clock.now_seconds();
        // A command does not read the record; the running agent published this.
        let asked = self.accounts.is_dry_run();
        let told = asked.then(|| self.reported(key)?.failing_since).flatten();
        let told = told.and_then(|since| parse_rfc3339(&since));
        let since = self.failing(&key.policy, |failing| {
            failing.failed(&key.primary, now_seconds)
        });
        self.limits.withheld.notify_one();
        told.map_or(since, |told| told.min(since))
    }

    /// Records that the guest answered for a primary, or that the primary is gone.
    pub(in crate::controller) fn guest_answered(&self, key: &Key) {
        // Without a record there is nothing to clear.
        if self.limits.store.is_some()
            && self.failing(&key.policy, |failing| failing.answered(&key.primary))
        {
            self.limits.withheld.notify_one();
        }
    }

    /// Whether the guest failed for a primary when it was asked last.
    pub(in crate::controller) fn is_failing(&self, key: &Key) -> bool {
        self.failing(&key.policy, |failing| failing.is_failing(&key.primary))
    }

    /// Since when the guest fails for a primary, if it does.
    pub(in crate::controller) fn failing_since(
        &self,
        key: &Key,
        revision: &Revision,
    ) -> Option<FailingSince> {
        let spec = &revision.policy.on_failure;
        let policies = self.limits.lock();
        policies.get(&key.policy)?.failing.since(&key.primary, spec)
    }

    /// Of how many primaries of a policy the guest fails, and since when it does for each.
    pub(in crate::controller) fn failing_of(
        &self,
        policy: &str,
        now_seconds: i64,
    ) -> (
        Option<FailingStatus>,
        impl Fn(&ObjectRef) -> Option<FailingSince>,
    ) {
        let spec = self
            .queue(policy)
            .map(|queue| queue.loaded().revision.policy.on_failure);
        let spec = spec.unwrap_or_default();
        let policies = self.limits.lock();
        let failing = policies
            .get(policy)
            .map(|kept| kept.failing.clone())
            .unwrap_or_default();
        let status = failing.status(&spec, now_seconds);
        (status, move |primary: &ObjectRef| {
            failing.since(primary, &spec)
        })
    }

    /// Another replica may have led until now.
    pub(in crate::controller) fn forget_failing(&self) {
        for kept in self.limits.lock().values_mut() {
            kept.failing.unknown();
        }
        self.limits.withheld.notify_one();
    }

    /// Of a policy that is gone nothing is kept, also if a reconcile ends later.
    fn failing<R>(&self, policy: &Arc<str>, take: impl FnOnce(&mut Failing) -> R) -> R {
        let mut policies = self.limits.lock();
        match policies.get_mut(policy) {
            Some(kept) => take(&mut kept.failing),
            None if self.queue(policy).is_none() => take(&mut Failing::default()),
            None => take(&mut policies.entry(Arc::clone(policy)).or_default().failing),
        }
    }

    /// Removes what is stored for policies that are gone, also for those that went while no agent ran. While a place of
    /// policies cannot be read, it is not known which those are; nor does a single run know of all.
    pub(super) async fn drop_failing(&self, active: &Active) {
        let knows_all = !self.ends && self.queues.are_complete() && active.broken().is_empty();
        let Some(store) = self.limits.store.as_ref().filter(|_| knows_all) else {
            return;
        };
        let gone = |config_map: &LimitsConfigMap| {
            let (data, names) = (config_map.data(), active.names());
            let is_gone = |entry: &String| {
                let policy = entry.strip_prefix(PREFIX);
                policy.is_some_and(|policy| !names.contains(policy))
                    && !config_map.is_put_off(entry)
            };
            data.into_iter().map(|(entry, _)| entry).find(is_gone)
        };
        let mut config_map = store.config_map.lock().await;
        if gone(&config_map).is_none() || !self.is_ready(store, &mut config_map).await {
            return;
        }
        while let Some(entry) = gone(&config_map) {
            if !self
                .put_or_put_off(store, &mut config_map, &entry, None)
                .await
            {
                return config_map.outdate();
            }
        }
    }

    /// Reads what is kept of every policy of which that was not read since this replica leads. When it cannot be read,
    /// time counts from now on, and it is read with the next failure.
    pub(super) async fn learn_failing(&self) {
        let unknown = || {
            let policies = self
                .queues()
                .into_iter()
                .map(|queue| Arc::clone(&queue.policy));
            let mut policies: Vec<_> = policies.collect();
            policies.retain(|policy| !self.failing(policy, |failing| failing.is_known()));
            policies
        };
        let Some(store) = self.limits.store.as_ref().filter(|_| !unknown().is_empty()) else {
            return;
        };
        let mut config_map = store.config_map.lock().await;
        let policies = unknown();
        if config_map.unread().is_some() || policies.is_empty() {
            return;
        }
        config_map.outdate();
        let told = |failure: &Failure| {
            let reason = failure.reason.known().unwrap_or(KnownReason::ReadFailed);
            telemetry::unreadable("since when guests fail", reason, &failure.message);
        };
        if let Err(failure) = self.learn(store, &mut config_map).await {
            return told(&failure);
        }
        let now_seconds = self.clock.now_seconds();
        for policy in policies {
            let text = config_map.text(&entry(&policy));
            let found = self.failing(&policy, |failing| {
                failing.found(text.as_deref(), now_seconds)
            });
            // It is known now, so this is told once.
            if let Err(why) = found {
                told(&unreadable(&config_map, &policy, &why));
            }
        }
        self.statuses.changed();
    }

    /// Writes what changed of a policy since it was written; what cannot be written is tried again later.
    pub(super) async fn save_failing(&self, policy: &Arc<str>) {
        let queue = self.queue(policy);
        let awaits = self.failing(policy, |failing| failing.awaits());
        if queue.is_some_and(|queue| awaits && self.has_reconciled_all(&queue)) {
            self.failing(policy, Failing::complete);
        }
        let unsaved = || {
            let policies = self.limits.lock();
            let failing = &policies.get(policy)?.failing;
            failing.is_unsaved().then(|| failing.text())
        };
        let Some(store) = self.limits.store.as_ref().filter(|_| unsaved().is_some()) else {
            return;
        };
        let mut config_map = store.config_map.lock().await;
        let entry = entry(policy);
        if config_map.is_put_off(&entry) || !self.is_ready(store, &mut config_map).await {
            return;
        }
        let Some(text) = unsaved() else { return };
        // The limits lie in the same object, which must not become too large for them.
        let others = config_map.bytes(|one| one != entry && is_entry(one));
        let room = ROOM.saturating_sub(others);
        let kept = text.clone().filter(|text| text.len() <= room);
        match self
            .put_or_put_off(store, &mut config_map, &entry, kept)
            .await
        {
            true => self.failing(policy, |failing| failing.saved(text.as_deref())),
            false => config_map.outdate(),
        }
    }

    /// Whether the place is known.
    async fn is_ready(&self, store: &LimitStore, config_map: &mut LimitsConfigMap) -> bool {
        config_map.unread().is_none() && self.learn(store, config_map).await.is_ok()
    }
}

fn unreadable(config_map: &LimitsConfigMap, policy: &str, why: &str) -> Failure {
    let place = config_map.path(&entry(policy));
    let message =
        format!("{place} is no record, so it counts as absent and is written anew: {why}");
    Failure::known(KnownReason::ReadFailed, message)
}
