//! Publishes the statuses of policies and primaries to the clusters: of a policy when it changes, as `core` computes
//! it; of a primary when a reconcile ends, and what could not be written, as on a full disk, as soon as possible.

mod retained;
mod tags;

use super::Controller;
use super::memory::LastResult;
use crate::policies::objects;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use transom_api::status::{PolicyStatus, PrimaryStatus, WaitingStatus, WatchStatus};
use transom_api::{KnownReason, State};
use transom_core::backoff;
use transom_core::catalogue::{Catalogue, CatalogueEntry};
use transom_core::object::Object;
use transom_core::report::Report;
use transom_core::share::lock::MutexExt as _;
use transom_core::summary::{self, Standing, Sum};
use transom_core::time::parse_rfc3339;
use transom_core::work::Key;

/// Minimum time between two looks at the results of the primaries.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum time without a look: time alone may make a primary overdue.
const QUIET: Duration = Duration::from_secs(30);

/// The longest wait between two attempts to write what is left, so that free disk space is noticed soon.
const LONGEST: Duration = Duration::from_secs(30);

/// How long after this replica began to work on a policy it publishes no status of it until all its primaries were
/// reconciled once: counts of only some of them would raise false alarms, or none.
const START: Duration = Duration::from_secs(30);

/// The policies and their last published statuses, and what is left to write.
#[derive(Default)]
pub(super) struct Statuses {
    policies: Mutex<Policies>,
    changed: Notify,
    /// The statuses of primaries that could not be written, the newest of each.
    left: Mutex<BTreeMap<Key, (Report, String)>>,
    more_left: Notify,
}

#[derive(Default)]
pub(super) struct Policies {
    pub(super) catalogue: Catalogue,
    last: BTreeMap<String, PolicyStatus>,
    /// Statuses that an earlier agent published, until this one publishes its own.
    found: BTreeMap<String, PolicyStatus>,
    /// What these statuses said of moved tags.
    moved: BTreeMap<String, String>,
    /// Policies whose newest status could not be written; that was logged.
    unwritten: BTreeSet<String>,
    /// When this replica began to work on each active policy, once it has published since; it knows no results of the
    /// primaries then.
    pub(super) began: BTreeMap<String, Instant>,
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
        let now = (now.state, now.reason.as_str());
        let same =
            |one: &&PrimaryStatus| is_about(one, key) && (one.state, one.reason.as_str()) == now;
        let as_waiting = |one: &&WaitingStatus| (one.state, one.reason.as_str()) == now;
        let since = top_failures.iter().find(same).map(|one| &one.since);
        parse_rfc3339(since.or_else(|| Some(&waiting.iter().find(as_waiting)?.since))?)
    }

    /// Drops the unwritten statuses of a deleted policy.
    pub(super) fn forget(&self, policy: &str) {
        self.lock().moved.remove(policy);
        self.left().retain(|key, _| *key.policy != *policy);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Policies> {
        self.policies.locked()
    }

    /// The lock is held during each write, so that no older status is written after a newer one.
    fn left(&self) -> MutexGuard<'_, BTreeMap<Key, (Report, String)>> {
        self.left.locked()
    }
}

impl Controller {
    /// Sets the policies that statuses are published for: others are active, or refused. Publishes the statuses of
    /// those that changed, and leaves the rest to the publishing task: a start loads one policy after the other.
    pub(crate) fn catalogue_changed(&self, catalogue: &Catalogue, changed: &BTreeSet<&str>) {
        let listed = |policy: &str| catalogue.entry(policy).is_some();
        {
            let mut policies = self.statuses.lock();
            policies.catalogue = catalogue.clone();
            policies.last.retain(|policy, _| listed(policy));
            policies.began.retain(|policy, _| listed(policy));
            policies.unwritten.retain(|policy| listed(policy));
        }
        self.publish_those(|policy| changed.contains(policy));
        self.statuses.changed();
    }

    /// Takes over the status that `FleetPolicy` objects have now. When another replica wrote it, or it was removed, the
    /// next status follows on from that.
    pub(super) fn found_statuses(&self, objects: &[Object]) {
        let mut policies = self.statuses.lock();
        for object in objects {
            let policy = &object.reference.name;
            let status = objects::status(object).unwrap_or_default();
            let last = policies.last.get(policy);
            if last.is_some_and(|last| last.same_but_times(&status)) {
                continue;
            }
            self.connections.found_policy_status(policy, &status);
            policies.last.remove(policy);
            policies.moved.extend(tags::moved(policy, &status));
            policies.found.insert(policy.clone(), status);
        }
        self.statuses.changed();
    }

    /// What the running agent last published about a primary, if a status names it.
    pub(crate) fn reported(&self, key: &Key) -> Option<PrimaryStatus> {
        let policies = self.statuses.lock();
        let mut failures = policies
            .found
            .get(&*key.policy)
            .into_iter()
            .flat_map(|status| &status.top_failures);
        let by_policy = failures.find(|one| is_about(one, key)).cloned();
        by_policy.or_else(|| self.connections.reported(&key.policy, &key.primary))
    }

    /// The status of a policy as the running agent last published it.
    pub(crate) fn published(&self, policy: &str) -> Option<PolicyStatus> {
        let found = self.statuses.lock().found.get(policy).cloned();
        found.or_else(|| self.connections.policy_status(policy))
    }

    /// Publishes the status of every policy whose status changed.
    pub(crate) fn publish_policies(&self) {
        self.publish_those(|_| true);
    }

    /// Publishes the status of each of these policies whose status changed.
    fn publish_those(&self, wanted: impl Fn(&str) -> bool) {
        if !self.works() || self.accounts.is_dry_run() {
            return;
        }
        let mut policies = self.statuses.lock();
        let all = &mut *policies;
        let watch_errors = self.connections.watch_errors();
        for (policy, entry) in all.catalogue.entries().filter(|(policy, _)| wanted(policy)) {
            if entry.revision.is_none() {
                all.began.remove(&**policy);
            }
            // A policy without a queue waits for its connections.
            let looking = self
                .queue(policy)
                .map_or(entry.revision.is_some(), |queue| !queue.is_idle());
            let last = all.last.get(&**policy);
            let is_new = last.is_none_or(|last| last.revision.is_none());
            if looking && is_new {
                let began = all.began.entry(policy.to_string());
                if began.or_insert_with(Instant::now).elapsed() < START {
                    continue;
                }
            }
            let before = all.last.get(&**policy).cloned();
            let before = before.or_else(|| all.found.remove(&**policy));
            let before = before.or_else(|| self.connections.policy_status(policy));
            let status = self.policy_status(policy, entry, &watch_errors, before.as_ref());
            // A status that differs only in times is not written: the earlier times stay.
            let same = |before: &PolicyStatus| before.same_but_times(&status);
            let news = !before.as_ref().is_some_and(same);
            if news && let Err(error) = self.connections.publish_policy(policy, &status) {
                // The next look compares with the earlier status, and so tries the write again.
                all.last
                    .extend(before.map(|before| (policy.to_string(), before)));
                if all.unwritten.insert(policy.to_string()) {
                    unpublished(&format!("the status of {policy}"), &error);
                }
                continue;
            }
            all.unwritten.remove(&**policy);
            let published = before.filter(|_| !news).unwrap_or(status);
            all.last.insert(policy.to_string(), published);
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
            self.look_for_conflicts().await;
            self.publish_policies();
        }
    }

    fn policy_status(
        &self,
        policy: &str,
        entry: &CatalogueEntry,
        watch_errors: &[WatchStatus],
        before: Option<&PolicyStatus>,
    ) -> PolicyStatus {
        let now_seconds = self.clock.now_seconds();
        let (failing, since) = self.failing_of(policy, now_seconds);
        let mut sum = Sum::new(now_seconds);
        let (withholds, mut held) = (self.limits.withholds(policy), BTreeSet::new());
        self.memory.each_result(policy, |key, last| {
            if withholds && last.state == State::Held {
                held.insert(Arc::clone(&key.primary));
            }
            sum.add(Standing {
                primary: &key.primary,
                state: last.state,
                reason: &last.reason,
                message: &last.message,
                since_seconds: last.since_seconds,
                failing: since(&key.primary),
            });
        });
        let loaded = self.queue(policy).map(|queue| queue.loaded());
        let limits = loaded.as_ref().filter(|_| withholds).and_then(|loaded| {
            let limits = &loaded.revision.policy.limits;
            self.limits.agreed(policy, limits, &held)
        });
        // A queue may have another revision for a moment.
        let loaded = loaded.filter(|loaded| {
            let active = entry.revision.as_ref();
            active.is_some_and(|active| active.is(&loaded.revision))
        });
        let usage = loaded.map(|loaded| loaded.usage().clone());
        summary::of(
            summary::KnownPolicy {
                entry,
                watch_errors,
                before,
                limits: limits.as_ref(),
                failing: failing.as_ref(),
                usage: usage.as_ref(),
                conflict: self.replaced.of(policy).as_deref(),
                now_seconds,
            },
            &sum,
        )
    }

    /// Writes the status of a primary, or removes it when the primary is gone. What cannot be written now is written
    /// later. A primary has only one reconcile at a time.
    pub(super) fn publish_primary(&self, key: &Key, report: &Report, uid: &str) {
        // From here on no older status is written.
        self.statuses.left().remove(key);
        if let Err(error) = self.connections.publish(report, uid) {
            telemetry::unpublished(report, &error);
            let left = (report.clone(), uid.to_owned());
            self.statuses.left().insert(key.clone(), left);
            self.statuses.more_left.notify_one();
        }
    }

    /// Tries again to write what could not be written; returns how many are left, and the last error.
    pub(crate) fn write_left(&self) -> Option<(usize, io::Error)> {
        let mut last = None;
        let keys: Vec<Key> = self.statuses.left().keys().cloned().collect();
        for key in keys {
            let mut left = self.statuses.left();
            let Some((report, uid)) = left.get(&key) else {
                continue;
            };
            match self.connections.publish(report, uid) {
                Ok(()) => drop(left.remove(&key)),
                Err(error) => last = Some(error),
            }
        }
        last.map(|error| (self.statuses.left().len(), error))
    }

    /// Keeps writing what is left, with back-off, until the task is aborted.
    pub(crate) async fn keep_writing_statuses(&self) {
        let mut failures = 0;
        loop {
            if failures == 0 {
                self.statuses.more_left.notified().await;
            }
            let wait = backoff::delay_ms(failures, self.seeds.hash_one(failures));
            tokio::time::sleep(Duration::from_millis(wait).min(LONGEST)).await;
            failures = self.write_left().map_or(0, |_| failures + 1);
        }
    }
}

/// Whether a published status is that of a primary.
fn is_about(status: &PrimaryStatus, key: &Key) -> bool {
    let primary = &key.primary;
    (&status.namespace, &status.name) == (&primary.namespace, &primary.name)
}

/// Logs that a status could not be written or removed.
fn unpublished(place: &str, error: &io::Error) {
    telemetry::unreadable(place, KnownReason::WriteFailed, &error.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use crate::controller::queue::Queued;
    use futures::FutureExt as _;
    use transom_api::status::RevisionStatus;
    use transom_core::work::Cause;

    const POLICY: &str = "external-managed-kubeconfig";

    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_publishes_nothing_before_its_revisions_are_those_of_the_leader_before() {
        let (_folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let publish = |current: bool| {
            controller.current.send_replace(current);
            controller.statuses.lock().last.clear();
            controller.publish_policies();
            controller.statuses.lock().last.contains_key(POLICY)
        };
        assert_eq!([false, true].map(publish), [false, true]);
        // Nor does it judge what is withheld.
        controller.current.send_replace(false);
        assert!(!controller.release_withheld(&session.active).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_policy_that_begins_has_no_status_that_counts_only_some_of_its_primaries() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        controller.stop();
        let queue = controller.queue(POLICY).unwrap();
        queue.push(&primary, Queued::Reconcile(Cause::Resync), None);
        let active = PolicyStatus {
            revision: Some(RevisionStatus::default()),
            ..PolicyStatus::default()
        };
        let long_ago = Instant::now().checked_sub(START).unwrap();
        for (last, began, expected) in [
            (None, None, false),
            (None, Some(long_ago), true),
            // A candidate of a policy that had no revision became active.
            (Some(PolicyStatus::default()), None, false),
            (Some(active), None, true),
        ] {
            let published = |policies: &Policies| {
                let last = policies.last.get(POLICY);
                last.is_some_and(|last| last.counts.total > 0)
            };
            let mut policies = controller.statuses.lock();
            // Another one began long ago.
            policies.began = [("another".to_owned(), long_ago)].into();
            policies
                .began
                .extend(began.map(|at| (POLICY.to_owned(), at)));
            policies.last = last
                .into_iter()
                .map(|last| (POLICY.to_owned(), last))
                .collect();
            drop(policies);
            controller.publish_policies();
            assert_eq!(published(&controller.statuses.lock()), expected);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_status_shows_what_is_withheld_only_with_primaries_that_say_so() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let key = Key::new(&POLICY.into(), &primary);
        let shown = || {
            controller.publish_policies();
            let policies = controller.statuses.lock();
            let status = policies.last.get(POLICY).unwrap();
            let ready = status.conditions[0].clone();
            (ready.reason, status.limits.is_some())
        };
        assert_eq!(shown(), ("InSync".to_owned(), false));
        let mut memory = controller.memory.lock();
        let result = memory.results.get_mut(&key).unwrap();
        (result.state, result.reason) = (State::Held, KnownReason::LimitReached.into());
        drop(memory);
        assert_eq!(shown(), ("LimitReached".to_owned(), false));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_look_at_the_limits_that_changes_nothing_computes_no_status() {
        let (_folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        controller.release_withheld(&session.active).await;
        controller.statuses.changed.notified().now_or_never();
        controller.release_withheld(&session.active).await;
        let changed = controller.statuses.changed.notified().now_or_never();
        assert_eq!(changed, None);
    }
}
