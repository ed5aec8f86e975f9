//! Asks before each write whether the limits of the policy allow it, and records ahead what it counts for.

use super::{COUNTED_SECONDS, ChangeLimits};
use crate::controller::{Admitted, Controller};
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::catalogue::Revision;
use transom_core::failure::{Class, Failure};
use transom_core::limits::{self, Ask, LimitVerdict, LimitedKinds};
use transom_core::object::Object;
use transom_core::plan::{Outcome, Plan, Step};
use transom_core::policy::Policy;
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

/// How many primaries are counted without a thought.
const FEW: u32 = 100;

impl ChangeLimits {
    /// A reconcile ended before anything was planned. What is paused, waits, or has a guest that fails wants nothing
    /// now: it keeps no interval open. What could not be read, or be asked because something is missing, may still
    /// want what was withheld before.
    pub(in crate::controller) fn unplanned(&self, key: &Key, class: Class) {
        if matches!(class, Class::Held | Class::Waiting | Class::Invalid) {
            self.unwanted(key);
        }
    }
}

impl Controller {
    /// Counts what a plan changes, if it may be carried out. That may take long: what a policy decided before it was
    /// suspended, narrowed or removed is not written any more, unless it has begun to be. Nor is anything while a
    /// replica that leads again does not know yet what was active under the leader between.
    ///
    /// # Errors
    /// Why it may not.
    pub(in crate::controller) async fn may_write(
        &self,
        admitted: &Admitted,
        plan: &Plan,
        before: &[Arc<Object>],
        has_begun: bool,
    ) -> Result<LimitedKinds, Failure> {
        let key = &admitted.work.key;
        let goes_on = || {
            let queue = self.queue(&key.policy);
            let is_active = || queue.is_some_and(|queue| queue.works_on(&admitted.loaded));
            self.works() && (has_begun || is_active())
        };
        if goes_on() {
            let counted = self.within_limits(admitted, plan, before).await?;
            if goes_on() {
                return Ok(counted);
            }
            self.uncount(key, &counted, (&plan.steps, &Outcome::default()));
        }
        let message = "the policy, or the leader, changed before anything was written";
        Err(Failure::known(KnownReason::WriteConflict, message))
    }

    /// Counts what a plan changes before it is carried out. `before` are the primary and the objects that others made,
    /// as they were read.
    ///
    /// # Errors
    /// `LimitReached`, or why it cannot be recorded: then nothing may be written.
    async fn within_limits(
        &self,
        admitted: &Admitted,
        plan: &Plan,
        before: &[Arc<Object>],
    ) -> Result<LimitedKinds, Failure> {
        let key = &admitted.work.key;
        let kinds = match &self.limits.store {
            Some(_) => limits::kinds(&plan.steps, before),
            None => return Ok(LimitedKinds::new()),
        };
        if kinds.is_empty() {
            self.limits.unwanted(key);
            return Ok(kinds);
        }
        let newest = self.newest(admitted);
        if newest.policy.limits.are_off(&kinds) {
            self.limits.unwanted(key);
            return Ok(LimitedKinds::new());
        }
        let now_seconds = self.clock.now_seconds();
        let ask = self.ask_about(admitted, &newest, &kinds, now_seconds);
        // Another revision may become active while a record is written. An ask for the one before would end what was
        // approved for it.
        let admit = || {
            let newest = self.newest(admitted);
            let (limits, revision) = (&newest.policy.limits, newest.id());
            let ask = Ask {
                limits,
                revision,
                ..ask
            };
            self.limits.admit(&key.policy, &ask)
        };
        let verdict = match admit() {
            None if !ask.is_limited() => return Ok(LimitedKinds::new()),
            Some(verdict @ (LimitVerdict::Admitted(_) | LimitVerdict::Withheld(_))) => verdict,
            None | Some(LimitVerdict::Reserve(_)) => self.record_for(key, admit).await?,
        };
        match verdict {
            LimitVerdict::Admitted(counted) => Ok(counted),
            LimitVerdict::Withheld(failure) => {
                self.limits.withheld.notify_one();
                Err(failure)
            }
            LimitVerdict::Reserve(_) => {
                let message =
                    "the limits of the policy were recorded by another agent all the time";
                Err(Failure::known(KnownReason::WriteConflict, message))
            }
        }
    }

    /// What is asked about a primary of a revision.
    fn ask_about<'a>(
        &self,
        admitted: &'a Admitted,
        revision: &'a Revision,
        kinds: &'a LimitedKinds,
        now_seconds: i64,
    ) -> Ask<'a> {
        let (key, policy) = (&admitted.work.key, &admitted.loaded.revision.policy);
        let counted = self.primaries_of(&key.policy, now_seconds);
        let count = || self.count_primaries(policy, now_seconds);
        let ask = Ask {
            primary: &key.primary,
            kinds,
            limits: &revision.policy.limits,
            revision: revision.id(),
            primaries: counted.map_or_else(count, |(primaries, _)| primaries),
            now_seconds,
        };
        // There may be many more than a moment ago. Where there were many, they are counted once in a second.
        let is_old = counted.is_some_and(|(primaries, at)| primaries <= FEW || at != now_seconds);
        match is_old && !ask.is_limited() {
            true => Ask {
                primaries: count(),
                ..ask
            },
            false => ask,
        }
    }

    /// How many primaries a policy had when they were counted a moment ago, and when that was.
    pub(super) fn primaries_of(&self, policy: &str, now_seconds: i64) -> Option<(u32, i64)> {
        let policies = self.limits.lock();
        let (primaries, at) = policies.get(policy)?.primaries?;
        let counts = (0..COUNTED_SECONDS).contains(&(now_seconds - at));
        counts.then_some((primaries, at))
    }

    /// How many primaries a policy has, including those that are gone and left objects behind.
    pub(super) fn count_primaries(&self, policy: &Policy, now_seconds: i64) -> u32 {
        let mut primaries: BTreeSet<ObjectRef> =
            self.connections.primaries(policy).into_iter().collect();
        let keys = self.memory.keys_of(&policy.name).into_iter();
        primaries.extend(keys.map(|key| (*key.primary).clone()));
        let count = u32::try_from(primaries.len()).unwrap_or(u32::MAX);
        let mut policies = self.limits.lock();
        let kept = policies.entry(Arc::clone(&policy.name)).or_default();
        kept.primaries = Some((count, now_seconds));
        count
    }

    /// Takes back what was counted for a primary of which certainly nothing was written, or only what was there.
    pub(in crate::controller) fn uncount(
        &self,
        key: &Key,
        counted: &LimitedKinds,
        (steps, outcome): (&[Step], &Outcome),
    ) {
        let mut done = outcome.of(steps);
        if !counted.is_empty() && done.all(|(step, done)| limits::is_without_effect(step, done)) {
            self.limits.ledger(&key.policy, |ledger| {
                ledger.give_back(&key.primary, counted);
            });
        }
    }
}
