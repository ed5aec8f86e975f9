//! Publishes the status of each policy to the clusters when it changes. `core` computes the status.

use super::Controller;
use super::memory::LastResult;
use crate::policies::{Found, objects};
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use transom_api::KnownReason;
use transom_api::status::{PolicyStatus, PrimaryStatus, WaitingStatus, WatchStatus};
use transom_artifacts::Base;
use transom_core::catalogue::{Catalogue, Entry};
use transom_core::object::Object;
use transom_core::signal::Signal;
use transom_core::summary::{self, Standing};
use transom_core::time::parse_rfc3339;
use transom_core::work::Key;

/// Minimum time between two looks at the results of the primaries.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum time without a look: time alone may make a primary overdue.
const QUIET: Duration = Duration::from_secs(30);

/// How long after the start a policy has no status published until all its primaries were reconciled once: counts of
/// only some of them would raise false alarms.
const START: Duration = Duration::from_secs(30);

/// The policies and their last published statuses.
pub(super) struct Statuses {
    policies: Mutex<Policies>,
    changed: Notify,
    start: Instant,
}

#[derive(Default)]
struct Policies {
    catalogue: Catalogue,
    last: BTreeMap<String, PolicyStatus>,
    /// Statuses that an earlier agent published, until this one publishes its own.
    found: BTreeMap<String, PolicyStatus>,
    /// Policies whose newest status could not be written; that was logged.
    unwritten: BTreeSet<String>,
}

impl Default for Statuses {
    fn default() -> Self {
        Self {
            policies: Mutex::default(),
            changed: Notify::new(),
            start: Instant::now(),
        }
    }
}

impl Statuses {
    /// Notifies the publishing task, for example when a reconcile ended.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Since when a primary has been in its state for its reason, as an earlier agent published it. The status names
    /// only the top failures. For a waiting one that it does not name, this is the time since which the first
    /// primary has waited for the same reason.
    pub(super) fn found_since(&self, key: &Key, now: &LastResult) -> Option<i64> {
        let policies = self.lock();
        let PolicyStatus {
            top_failures,
            waiting,
            ..
        } = policies.found.get(&*key.policy)?;
        let same = |one: &&PrimaryStatus| {
            (one.namespace.as_ref(), &one.name)
                == (key.primary.namespace.as_ref(), &key.primary.name)
                && (one.state, one.reason.as_str()) == (now.state, now.reason.as_str())
        };
        let as_waiting = |one: &&WaitingStatus| {
            (one.state, one.reason.as_str()) == (now.state, now.reason.as_str())
        };
        let since = top_failures.iter().find(same).map(|one| &one.since);
        parse_rfc3339(since.or_else(|| Some(&waiting.iter().find(as_waiting)?.since))?)
    }

    fn lock(&self) -> MutexGuard<'_, Policies> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller {
    /// Sets the policies that statuses are published for: others are active, or refused.
    pub(crate) fn catalogue_changed(&self, catalogue: &Catalogue) {
        {
            let mut policies = self.statuses.lock();
            policies.catalogue = catalogue.clone();
            policies
                .last
                .retain(|policy, _| catalogue.entries().any(|(name, _)| **name == **policy));
        }
        self.publish_policies();
    }

    /// The policies that are objects of an API server, as they are now; component files lie at `base`.
    pub(crate) async fn given(&self, base: &Base) -> Found {
        let (objects, unread) = self.connections.policy_objects().await;
        self.found_statuses(&objects);
        let mut found = Found {
            policies: objects::written(&objects, base),
            ..Found::default()
        };
        for (object, failure) in unread {
            found.miss(object.to_string(), object.to_string(), failure.message);
        }
        found
    }

    /// The same, when one of them changed since the last call.
    pub(crate) async fn changed_objects(&self, base: &Base) -> Option<Found> {
        match self.policies_changed.swap(false, Ordering::AcqRel) {
            true => Some(self.given(base).await),
            false => None,
        }
    }

    /// Takes over the status that `FleetPolicy` objects have now. When another replica wrote it, or it was removed, the
    /// next status follows on from that.
    fn found_statuses(&self, objects: &[Object]) {
        let mut policies = self.statuses.lock();
        for object in objects {
            let (policy, status) = (
                &object.reference.name,
                objects::status(object).unwrap_or_default(),
            );
            if policies
                .last
                .get(policy)
                .is_some_and(|last| last.same_but_times(&status))
            {
                continue;
            }
            self.connections.found_policy_status(policy, &status);
            policies.last.remove(policy);
            policies.found.insert(policy.clone(), status);
        }
        self.statuses.changed();
    }

    /// What the running agent last published about a primary, if a status names it.
    pub(crate) fn reported(&self, key: &Key) -> Option<PrimaryStatus> {
        let here = |one: &&PrimaryStatus| {
            (one.namespace.as_ref(), &one.name)
                == (key.primary.namespace.as_ref(), &key.primary.name)
        };
        let policies = self.statuses.lock();
        let by_policy = policies
            .found
            .get(&*key.policy)
            .and_then(|status| status.top_failures.iter().find(here).cloned());
        by_policy.or_else(|| self.connections.reported(&key.policy, &key.primary))
    }

    /// Publishes the status of every policy whose status changed.
    pub(crate) fn publish_policies(&self) {
        if !self.leading.leads() || self.accounts.are_only_asked() {
            return;
        }
        let mut policies = self.statuses.lock();
        let Policies {
            catalogue,
            last,
            found,
            unwritten,
        } = &mut *policies;
        unwritten.retain(|policy| catalogue.entries().any(|(name, _)| **name == **policy));
        let watch_errors = self.connections.watch_errors();
        for (policy, entry) in catalogue.entries() {
            // A policy without a queue waits for its connections.
            let looking = self
                .queue(policy)
                .map_or(entry.revision.is_some(), |queue| !queue.is_idle());
            if looking && !last.contains_key(&**policy) && self.statuses.start.elapsed() < START {
                continue;
            }
            let before = last
                .get(&**policy)
                .cloned()
                .or_else(|| found.remove(&**policy));
            let before = before.or_else(|| self.connections.policy_status(policy));
            let status = self.policy_status(policy, entry, &watch_errors, before.as_ref());
            // A status that differs only in times is not written: the earlier times stay.
            let news = !before
                .as_ref()
                .is_some_and(|before| before.same_but_times(&status));
            if news && let Err(error) = self.connections.publish_policy(policy, &status) {
                // The next look compares with the earlier status, and so tries the write again.
                last.extend(before.map(|before| (policy.to_string(), before)));
                if unwritten.insert(policy.to_string()) {
                    unpublished(policy, &error);
                }
                continue;
            }
            unwritten.remove(&**policy);
            last.insert(
                policy.to_string(),
                before.filter(|_| !news).unwrap_or(status),
            );
        }
    }

    /// How many policies have a status that could not be written.
    pub(crate) fn unwritten_policies(&self) -> usize {
        self.statuses.lock().unwritten.len()
    }

    /// Publishes the status of policies until the task is aborted.
    pub(crate) async fn keep_publishing_policies(&self) {
        let mut looks = tokio::time::interval(PAUSE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // Looks again after a while even without news.
            drop(tokio::time::timeout(QUIET, self.statuses.changed.notified()).await);
            self.publish_policies();
        }
    }

    fn policy_status(
        &self,
        policy: &str,
        entry: &Entry,
        watch_errors: &[WatchStatus],
        before: Option<&PolicyStatus>,
    ) -> PolicyStatus {
        let memory = self.memory.lock();
        let primaries = memory
            .results
            .iter()
            .filter(|(key, _)| *key.policy == *policy);
        let standings = primaries.map(|(key, last)| Standing {
            primary: &key.primary,
            state: last.state,
            reason: &last.reason,
            message: &last.message,
            since_seconds: last.since_seconds,
        });
        let now_seconds = self.clock.now_seconds();
        summary::of(
            summary::Known {
                entry,
                watch_errors,
                before,
                now_seconds,
            },
            standings,
        )
    }
}

/// Logs that the status of a policy could not be written; another look tries again.
fn unpublished(policy: &str, error: &std::io::Error) {
    let (place, message) = (format!("the status of {policy}"), error.to_string());
    telemetry::tell(&Signal::Unreadable {
        place,
        reason: KnownReason::WriteFailed,
        message,
    });
}
