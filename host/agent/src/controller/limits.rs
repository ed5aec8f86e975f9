//! Keeps each policy within its limits: asks before each write, records ahead, and follows time and approvals.
//! `core::limits` decides.

mod admission;
mod approved;
mod config_map;
mod failing;
mod store;

use super::Controller;
use super::queue::Queued;
use super::workqueue::Workqueue;
use crate::policies::Approval;
use crate::policies::active::Active;
use crate::telemetry;
use approved::ApprovedPlan;
use futures::FutureExt as _;
use futures::stream::{self, FuturesUnordered, StreamExt as _};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::LimitStore;
use tokio::sync::Notify;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_api::status::LimitsStatus;
use transom_core::failure::Class;
use transom_core::failure::failing::Failing;
use transom_core::limits::{Ask, Ledger, LimitCheck, LimitRecord, LimitResult, LimitVerdict};
use transom_core::reference::ObjectRef;
use transom_core::report::End;
use transom_core::share::lock::MutexExt as _;
use transom_core::work::{Cause, Key};

/// How often to look at what is withheld.
const EVERY: Duration = Duration::from_secs(1);
/// How many policies are asked about side by side when what they withhold is released; else each waits for itself.
const AT_ONCE: usize = 16;
/// How long the number of a policy's primaries counts, in seconds.
const COUNTED_SECONDS: i64 = 10;

/// What every policy changed and what is withheld.
#[derive(Default)]
pub(super) struct ChangeLimits {
    /// Where it is recorded; `None` when nothing is limited, as in a run that writes nothing.
    store: Option<LimitStore>,
    policies: Mutex<BTreeMap<Arc<str>, KeptPolicy>>,
    /// Notified when something is withheld, or a guest fails.
    withheld: Notify,
    /// Notified when a look ended, and another one is due.
    looked: Notify,
}

/// One policy.
#[derive(Default)]
struct KeptPolicy {
    ledger: Option<Ledger>,
    /// How many primaries the policy has, and when they were counted.
    primaries: Option<(u32, i64)>,
    /// A record of which the writing failed.
    unsaved: Option<LimitRecord>,
    /// Since when the guest of the policy fails, for each primary for which it does.
    failing: Failing,
    /// The approved plan of the active revision, until it is needed.
    plan: Option<ApprovedPlan>,
    /// What was said last of an approval that does not count.
    uncounted: String,
    /// The digest of the approval at the last look, empty without one; `None` before the first look at a revision.
    seen: Option<String>,
    /// The approval that did not count when the API server was asked about it, and when to ask again.
    asked: Option<(Approval, Instant)>,
}

impl ChangeLimits {
    /// Limits that are recorded in an object, or in memory only.
    pub(super) fn recorded(place: Option<ObjectRef>) -> Self {
        Self {
            store: Some(LimitStore::new(place)),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, KeptPolicy>> {
        self.policies.locked()
    }

    fn ledger<R>(&self, policy: &str, take: impl FnOnce(&mut Ledger) -> R) -> Option<R> {
        let mut policies = self.lock();
        Some(take(policies.get_mut(policy)?.ledger.as_mut()?))
    }

    /// Asks whether a primary may be changed; `None` when it is not known what was changed before.
    fn admit(&self, policy: &str, ask: &Ask<'_>) -> Option<LimitVerdict> {
        let mut policies = self.lock();
        let kept = policies.get_mut(policy)?;
        let ledger = kept.ledger.as_mut()?;
        ApprovedPlan::let_pass(&mut kept.plan, ledger, ask);
        Some(ledger.admit(ask))
    }

    /// Forgets a deleted policy. Its record stays for a while.
    pub(super) fn forget(&self, policy: &str) {
        self.lock().remove(policy);
    }

    /// What was withheld of a policy at the last look.
    fn status(&self, policy: &str) -> Option<LimitsStatus> {
        self.ledger(policy, |ledger| ledger.status().cloned())?
    }

    /// Nothing is wanted for a primary, or it is gone.
    pub(super) fn unwanted(&self, key: &Key) {
        self.ledger(&key.policy, |ledger| ledger.forget(&key.primary));
    }

    /// Has a look follow soon: a policy began.
    pub(super) fn changed(&self) {
        self.withheld.notify_one();
    }

    /// Whether time, an approval, or room may release what is withheld, or a record is to be written again.
    fn goes_on(&self) -> bool {
        let waits = |kept: &KeptPolicy| {
            kept.unsaved.is_some()
                || kept.failing.is_unsaved()
                || kept.ledger.as_ref().is_some_and(Ledger::is_stopping)
        };
        self.lock().values().any(waits)
    }

    /// Waits until a look is due.
    async fn due(&self) {
        let news = self.withheld.notified();
        if self.goes_on() {
            drop(tokio::time::timeout(EVERY, news).await);
            return;
        }
        tokio::select! {
            () = news => {}
            () = self.looked.notified() => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

impl Controller {
    /// Limits how much each policy may change, and records that in an object, or in memory only.
    pub(crate) fn limiting(mut self, place: Option<ObjectRef>) -> Self {
        self.limits = ChangeLimits::recorded(place);
        self
    }

    /// Looks at what is withheld until the task is aborted.
    pub(crate) async fn keep_limits(&self, active: &Active) {
        let due = || async {
            self.limits.due().await;
            self.withholding(active).await
        };
        let look = |policy: Arc<str>| async move {
            self.release(&policy, active).await;
            if self.limits.goes_on() {
                self.limits.looked.notify_one();
            }
        };
        each_by_itself(due, look).await;
    }

    /// The policies to look at; none while this replica does not work.
    async fn withholding(&self, active: &Active) -> Vec<Arc<str>> {
        if !self.works() {
            return Vec::new();
        }
        self.learn_failing().await;
        self.drop_failing(active).await;
        self.limits.lock().keys().cloned().collect()
    }

    /// Releases what may pass by now, in a single run. True when anything is reconciled again for that.
    pub(crate) async fn release_withheld(&self, active: &Active) -> bool {
        self.open_ledgers().await;
        let policies = self.withholding(active).await;
        any_of(policies, |policy| async move {
            self.release(&policy, active).await
        })
        .await
    }

    /// Records what really counts, without what was reserved beyond that: for an end in order, once no reconcile is
    /// under way. A record that another replica wrote since is kept.
    pub(crate) async fn settle_limits(&self) {
        // A write that was cut off by the end of its task is learnt first.
        for _ in 0..2 {
            for policy in self.settled_limits() {
                self.save(&policy).await;
            }
        }
    }

    /// The policies whose record differs from what counts; none while this replica does not work.
    fn settled_limits(&self) -> Vec<Arc<str>> {
        let now_seconds = self.clock.now_seconds();
        let differs = |(policy, kept): (&Arc<str>, &mut KeptPolicy)| {
            let settled = kept.ledger.as_mut()?.settle(now_seconds);
            kept.unsaved = settled.or(kept.unsaved.take());
            kept.unsaved.as_ref().map(|_| Arc::clone(policy))
        };
        match self.works() {
            true => (self.limits.lock().iter_mut())
                .filter_map(differs)
                .collect(),
            false => Vec::new(),
        }
    }

    /// Releases what may pass by now of one policy.
    async fn release(&self, policy: &Arc<str>, active: &Active) -> bool {
        self.save_failing(policy).await;
        let approved = self.approved_limits(policy, active).await;
        let before = self.limits.status(policy);
        let Some(looked) = self.check_limits(policy, approved.as_deref()) else {
            return false;
        };
        // Every status is computed then, and while anything is withheld this looks once a second.
        if before != self.limits.status(policy) {
            self.statuses.changed();
        }
        self.tell_limits(policy, &looked);
        if let Some(queue) = self.queue(policy) {
            for primary in &looked.released {
                queue.push(primary, Queued::Reconcile(Cause::Released), None);
            }
        }
        if looked.over.is_some()
            && let Some(kept) = self.limits.lock().get_mut(policy)
        {
            kept.unsaved = looked.over;
        }
        self.save(policy).await;
        !looked.released.is_empty()
    }

    fn check_limits(&self, policy: &Arc<str>, approved: Option<&str>) -> Option<LimitResult> {
        let queue = self.queue(policy)?;
        let loaded = queue.loaded();
        let active = &loaded.revision.policy;
        let was_complete = self.limits.ledger(policy, |ledger| ledger.is_complete())?;
        let now_seconds = self.clock.now_seconds();
        let counted = self.primaries_of(policy, now_seconds);
        let count = || self.count_primaries(active, now_seconds);
        // Also of what was withheld since the last look: none would count as a small fleet.
        let withholds = self.limits.withholds(policy);
        let count = || counted.map_or_else(count, |(primaries, _)| primaries);
        let look = LimitCheck {
            policy,
            limits: &active.limits,
            revision: loaded.revision.id(),
            approved,
            complete: was_complete || self.has_reconciled_all(&queue),
            primaries: withholds.then(count).unwrap_or_default(),
            listed: withholds && self.connections.primaries_listed(active, None).is_ok(),
            now_seconds,
        };
        self.limits.ledger(policy, |ledger| ledger.check(&look))
    }

    /// Whether every primary of the policy is known, and its last reconcile could read it: only then it is known for
    /// which of them nothing is withheld, and no guest fails.
    fn has_reconciled_all(&self, queue: &Workqueue) -> bool {
        queue.is_idle() && self.has_results_of_all(queue)
    }

    /// Whether every primary of the policy is known and has a result that could read it. Some may be reconciled again
    /// now.
    fn has_results_of_all(&self, queue: &Workqueue) -> bool {
        let policy = &queue.loaded().revision.policy;
        if self.connections.primaries_listed(policy, None).is_err() {
            return false;
        }
        let mut unread = false;
        self.memory.each_result(&queue.policy, |_, last| {
            unread |= last.end == End::Ended(Class::Unreachable);
        });
        let primaries = self.connections.primaries(policy).into_iter();
        let mut keys = primaries.map(|primary| Key::new(&queue.policy, &primary));
        !unread && keys.all(|key| self.memory.lock().results.contains_key(&key))
    }

    fn tell_limits(&self, policy: &Arc<str>, looked: &LimitResult) {
        if let Some(digest) = &looked.approved {
            telemetry::approved(policy, digest);
        }
        let Some(status) = self.limits.status(policy).filter(|_| looked.reached) else {
            return;
        };
        let reached = status.reached();
        let message = format!(
            "spec.limits is reached ({reached}), and the rest is withheld: see status.limits"
        );
        let reason = KnownReason::LimitReached;
        self.connections.warn_of_policy(policy, reason, &message);
        telemetry::warn_of_policy(policy, reason, &message);
    }
}

/// Looks at policies side by side: an answer about one of them may take long. True when any look is.
async fn any_of<F: Future<Output = bool>>(
    policies: Vec<Arc<str>>,
    look: impl FnMut(Arc<str>) -> F,
) -> bool {
    let looks = stream::iter(policies).map(look).buffer_unordered(AT_ONCE);
    looks.fold(false, async |any, one| any || one).await
}

/// Looks at the policies that are due, time and again. One of which the look has not ended yet is looked at once more
/// after that, and holds up no other.
async fn each_by_itself<D, L>(due: impl Fn() -> D, look: impl Fn(Arc<str>) -> L)
where
    D: Future<Output = Vec<Arc<str>>>,
    L: Future<Output = ()>,
{
    let named = |policy: Arc<str>| {
        let look = look(Arc::clone(&policy));
        look.map(|()| policy)
    };
    // The policies that are looked at, and whether they are due again.
    let (mut looks, mut again) = (FuturesUnordered::new(), BTreeMap::new());
    let mut next = pin!(due());
    loop {
        tokio::select! {
            policies = &mut next => {
                for policy in policies {
                    if again.insert(Arc::clone(&policy), again.contains_key(&policy)).is_none() {
                        looks.push(named(policy));
                    }
                }
                next.set(due());
            }
            Some(policy) = looks.next() => {
                if again.remove(&policy) == Some(true) {
                    again.insert(Arc::clone(&policy), false);
                    looks.push(named(policy));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use crate::controller::Touched;
    use crate::controller::connections::Connections;
    use crate::controller::queue::Request;
    use serde_json::json;
    use std::cell::{Cell, RefCell};
    use transom_api::policy::{Limited, LimitsSpec};
    use transom_core::contract::AgentFacts;
    use transom_core::digest::Digest;
    use transom_core::failure::Failure;
    use transom_core::limits::PolicyLimits;
    use transom_core::watches::SecretReads;

    const POLICY: &str = "external-managed-kubeconfig";

    /// Limits that let no taint pass.
    fn closed() -> PolicyLimits {
        let limits = json!({"elementsAdded": {}});
        serde_json::from_value::<LimitsSpec>(limits).unwrap().into()
    }

    /// A ledger that withholds the only change, which is to this primary.
    pub(super) fn withholding(primary: &ObjectRef) -> Ledger {
        let ask = Ask {
            primary: &Arc::new(primary.clone()),
            kinds: &[Limited::ElementsAdded].into(),
            limits: &closed(),
            revision: Digest::of_bytes(b"one"),
            primaries: 1,
            now_seconds: 0,
        };
        let mut ledger = Ledger::found(None);
        if let LimitVerdict::Reserve(record) = ledger.admit(&ask) {
            ledger.recorded(record);
        }
        assert!(matches!(ledger.admit(&ask), LimitVerdict::Withheld(_)));
        ledger
    }

    /// Looks at such a ledger while this is approved.
    pub(super) fn check(ledger: &mut Ledger, approved: Option<&str>) -> LimitResult {
        ledger.check(&LimitCheck {
            policy: "p",
            limits: &closed(),
            revision: Digest::of_bytes(b"one"),
            approved,
            complete: true,
            primaries: 1,
            listed: false,
            now_seconds: 0,
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_primary_for_which_nothing_can_be_planned_keeps_no_interval_open() {
        use KnownReason::{GuestTimedOut, GuestTrapped, OwnedByAnother, ReadFailed, WriteConflict};
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        controller.stop();
        // What may be planned again once it can be read stays withheld.
        for (reason, stays) in [
            (GuestTrapped, false),
            (GuestTimedOut, true),
            (OwnedByAnother, false),
            (ReadFailed, true),
            (WriteConflict, true),
        ] {
            let kept = KeptPolicy {
                ledger: Some(withholding(&primary)),
                ..KeptPolicy::default()
            };
            controller.limits.lock().insert(POLICY.into(), kept);
            let request = Request {
                primary: primary.clone().into(),
                causes: vec![Queued::Reconcile(Cause::Added)],
                since: Instant::now(),
            };
            let admitted = controller.admit(&queue, request).await.unwrap();
            let touched = Touched::new(&admitted, controller.documents.room(POLICY));
            let ended = touched.end(Failure::known(reason, "m"));
            controller.finish(&queue, &admitted, Err(ended));
            assert_eq!(controller.limits.withholds(POLICY), stays, "{reason:?}");
        }
    }

    #[test]
    fn an_answer_about_one_policy_holds_up_the_look_at_no_other() {
        let answered = Notify::new();
        let look = |policy: Arc<str>| {
            let answered = &answered;
            async move {
                if &*policy == "slow" {
                    answered.notified().await;
                    return true;
                }
                answered.notify_one();
                false
            }
        };
        let policies = ["slow", "quick"].map(Arc::from).to_vec();
        assert_eq!(any_of(policies, look).now_or_never(), Some(true));
    }

    #[tokio::test]
    async fn a_look_that_waits_for_an_answer_holds_up_no_later_look_at_another_policy() {
        let (answered, rounds, looks) = (Notify::new(), Cell::new(0), RefCell::new(Vec::new()));
        let due = || async {
            rounds.set(rounds.get() + 1);
            if rounds.get() > 3 {
                answered.notify_one();
                std::future::pending::<()>().await;
            }
            ["slow", "quick"].map(Arc::from).to_vec()
        };
        let look = |policy: Arc<str>| {
            looks.borrow_mut().push(Arc::clone(&policy));
            let waits = &*policy == "slow" && looks.borrow().len() < 3;
            let answered = &answered;
            async move {
                if waits {
                    answered.notified().await;
                }
            }
        };
        let mut looking = pin!(each_by_itself(due, look));
        for _ in 0..100 {
            assert!(futures::poll!(&mut looking).is_pending());
        }
        let of = |name: &str| looks.borrow().iter().filter(|one| &***one == name).count();
        // The slow one was due again meanwhile.
        assert!(of("quick") > 1 && of("slow") == 2, "{looks:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn since_when_a_guest_fails_goes_with_its_policy_and_does_not_come_back() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let stored = async || {
            controller.release_withheld(&session.active).await;
            let there = controller
                .limits
                .store
                .as_ref()
                .unwrap()
                .config_map
                .lock()
                .await;
            there.data().keys().cloned().collect::<Vec<_>>()
        };
        let key = Key::new(&POLICY.into(), &primary);
        controller.queues.complete();
        controller.guest_failed(&key).await;
        assert_eq!(stored().await, [format!("failing_{POLICY}")]);
        controller.remove_queue(POLICY);
        // A reconcile of the policy ends now.
        controller.guest_failed(&key).await;
        assert!(!controller.is_failing(&key) && controller.limits.lock().get(POLICY).is_none());
        session.active.found(&[], &["a.yaml"]);
        assert_eq!(stored().await.len(), 1, "it may be there");
        session.active.found(&[], &[]);
        assert_eq!(stored().await, [""; 0]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_entry_of_failures_that_cannot_be_read_is_written_over() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let store = controller.limits.store.as_ref().unwrap();
        let entry = format!("failing_{POLICY}");
        let broken = Some("nonsense".to_owned());
        let mut there = store.config_map.lock().await;
        controller
            .put(store, &mut there, &entry, broken)
            .await
            .unwrap();
        drop(there);
        controller.forget_failing();
        controller
            .guest_failed(&Key::new(&POLICY.into(), &primary))
            .await;
        controller.save_failing(&POLICY.into()).await;
        let text = store.config_map.lock().await.text(&entry);
        Failing::default().found(text.as_deref(), 0).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_policy_that_is_made_again_before_the_next_look_begins_without_failures() {
        let (_folder, session, primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let (key, queue) = (Key::new(&POLICY.into(), &primary), controller.queue(POLICY));
        let loaded = queue.unwrap().loaded();
        let begins = |uid| {
            let revision = (&*loaded.revision, Some(uid));
            controller.limits.begin(revision, None, 0);
        };
        begins("1");
        controller.guest_failed(&key).await;
        controller.save_failing(&POLICY.into()).await;
        begins("1");
        assert!(controller.is_failing(&key));
        begins("2");
        controller.learn_failing().await;
        assert!(!controller.is_failing(&key));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_record_that_cannot_be_written_is_tried_again_with_back_off() {
        // There is no connection that could write it.
        let connections = Connections::new(BTreeMap::new(), SecretReads::Watch);
        let facts = AgentFacts::new("local-cluster", None);
        let place = ObjectRef::local("v1", "ConfigMap", Some("transom"), "transom-limits");
        let controller = Controller::new(connections, Clock::new(None), facts);
        let controller = controller.limiting(Some(place.clone()));
        let store = controller.limits.store.as_ref().unwrap();
        store.config_map.lock().await.known = true;
        let policy: Arc<str> = POLICY.into();
        let mut kept = KeptPolicy::default();
        kept.failing.found(None, 0).unwrap();
        kept.failing.failed(&place.clone().into(), 0);
        controller.limits.lock().insert(Arc::clone(&policy), kept);
        controller.save_failing(&policy).await;
        let entry = failing::entry(POLICY);
        assert!(store.config_map.lock().await.is_put_off(&entry));
        // The next looks do not even read it: that would fail, too.
        controller.save_failing(&policy).await;
        let mut there = store.config_map.lock().await;
        assert!(there.unread().is_none());
        assert!(!there.put_off(&entry), "it was told");
        there.written(
            "failing_other",
            config_map::object(&place, Default::default()),
        );
        assert!(there.is_put_off(&entry) && !there.is_put_off("failing_other"));
        there.written(&entry, config_map::object(&place, Default::default()));
        assert!(!there.is_put_off(&entry) && there.put_off(&entry));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_primary_without_a_result_is_not_taken_for_one_that_is_right() {
        let (_folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        let queue = controller.queue(POLICY).unwrap();
        assert!(controller.has_reconciled_all(&queue));
        assert_eq!(controller.faults(POLICY).primaries, 1);
        // As after a start.
        controller.memory.lock().results.clear();
        assert!(queue.is_idle() && !controller.has_reconciled_all(&queue));
        assert_eq!(controller.faults(POLICY).primaries, 1);
    }
}
