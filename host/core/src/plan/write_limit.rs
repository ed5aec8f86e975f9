//! Limits how often one object is written, and how often writes happen for one primary, whatever their cause.
//! [`super::contention`] is the limit that looks at causes.

use super::{Plan, Step, WriteKind};
use crate::contract::objects::MAX_OBJECTS;
use crate::failure::Failure;
use crate::reference::ObjectRef;
use crate::time;
use crate::work::Key;
use std::collections::{HashMap, VecDeque};
use transom_api::KnownReason;

/// The most writes to one object in [`WINDOW_SECONDS`].
pub const MAX_WRITES: usize = 60;
/// The most writes for one primary under one policy in [`WINDOW_SECONDS`]: two whole answers of a guest.
pub const MAX_WRITES_OF_PRIMARY: usize = 2 * MAX_OBJECTS;
/// Writes within this many seconds count together.
pub const WINDOW_SECONDS: i64 = 60;
/// Old counters are removed when there are more than this, and then whenever their number has doubled.
const SWEPT_FROM: usize = 1_024;

/// What writes are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CountedBy {
    Object(ObjectRef),
    Primary(Key),
}

impl CountedBy {
    fn most(&self) -> usize {
        match self {
            Self::Object(_) => MAX_WRITES,
            Self::Primary(_) => MAX_WRITES_OF_PRIMARY,
        }
    }
}

/// The writes of the last minute. In memory only; older entries are dropped soon.
#[derive(Clone, Debug, Default)]
pub struct WriteLimiter {
    written: HashMap<CountedBy, VecDeque<i64>>,
    sweep_at: usize,
}

/// The part of a plan that may be written now.
#[derive(Clone, Debug, PartialEq)]
pub struct PermittedPlan {
    /// The steps that may be written, in their order.
    pub plan: Plan,
    /// `WriteBudgetExceeded` until the next step may be written, when steps are left.
    pub stopped: Option<Failure>,
}

impl WriteLimiter {
    /// Counts the steps of a plan up to the first one over the budget. An object that could be removed, but not made
    /// anew, stays. Call [`Self::give_back`] for a step that is not written in the end.
    pub fn admit(&mut self, key: &Key, mut plan: Plan, now_seconds: i64) -> PermittedPlan {
        self.sweep(now_seconds);
        let mut steps = plan.steps.iter();
        let refused = steps.position(|step| !self.count(key, step, now_seconds));
        let rest = plan.steps.split_off(refused.unwrap_or(plan.steps.len()));
        let next = rest.first();
        let stopped = next.map(|step| self.exceeded(key, step, now_seconds));
        let anew = next.filter(|step| step.kind() == WriteKind::Create);
        let is_half = |step: &mut Step| {
            let same = anew.is_some_and(|anew| anew.target() == step.target());
            same && step.kind() == WriteKind::Delete
        };
        if let Some(half) = plan.steps.pop_if(is_half) {
            self.give_back(key, &half);
        }
        PermittedPlan { plan, stopped }
    }

    /// Takes back an admitted step that was not written.
    pub fn give_back(&mut self, key: &Key, step: &Step) {
        for counted in counted_by(key, step) {
            if let Some(written) = self.written.get_mut(&counted) {
                written.pop_back();
            }
        }
    }

    /// Counts one step, unless it is over the budget.
    fn count(&mut self, key: &Key, step: &Step, now_seconds: i64) -> bool {
        let all: Vec<CountedBy> = counted_by(key, step).collect();
        let is_full = |counted| self.until(counted, now_seconds).is_some();
        if all.iter().any(is_full) {
            return false;
        }
        for counted in all {
            let most = counted.most();
            let written = self.written.entry(counted).or_default();
            written.push_back(now_seconds);
            let surplus = written.len().saturating_sub(most);
            written.drain(..surplus);
        }
        true
    }

    /// Until when no further write is allowed, if one would be over the budget now.
    fn until(&self, counted: &CountedBy, now_seconds: i64) -> Option<i64> {
        let written = self.written.get(counted)?.iter();
        let recent: Vec<&i64> = written.filter(|at| counts(**at, now_seconds)).collect();
        let oldest = recent.get(recent.len().checked_sub(counted.most())?)?;
        Some(oldest.saturating_add(WINDOW_SECONDS))
    }

    fn exceeded(&self, key: &Key, step: &Step, now_seconds: i64) -> Failure {
        let full = counted_by(key, step).filter_map(|counted| {
            let until = self.until(&counted, now_seconds)?;
            Some((until, counted.most()))
        });
        let (until, most) = full.max().unzip();
        let (target, most) = (step.target(), most.unwrap_or(MAX_WRITES));
        let at = time::format_rfc3339(until.unwrap_or(now_seconds));
        let message =
            format!("{target} is not written before {at}: the limit is {most} writes per minute");
        Failure::known(KnownReason::WriteBudgetExceeded, message)
            .about([target.clone()])
            .until(until)
    }

    /// Forgets counters that are too old to count, so that memory stays bounded.
    fn sweep(&mut self, now_seconds: i64) {
        if self.written.len() >= self.sweep_at.max(SWEPT_FROM) {
            self.written
                .retain(|_, written| written.back().is_some_and(|at| counts(*at, now_seconds)));
            self.sweep_at = self.written.len().saturating_mul(2);
        }
    }
}

/// A finalizer of the primary counts for that object alone: whoever takes it off again and again must not use up what
/// may be written for the primary. So does a removal: it happens again only if somebody makes the object anew.
fn counted_by(key: &Key, step: &Step) -> impl Iterator<Item = CountedBy> {
    let target = step.target();
    let is_own_finalizer = step.is_of_finalizers() && *target == *key.primary;
    let is_removal = step.kind() == WriteKind::Delete;
    let primary = (!is_own_finalizer && !is_removal).then(|| CountedBy::Primary(key.clone()));
    std::iter::once(CountedBy::Object(target.clone())).chain(primary)
}

/// Whether a write still counts. One in the future does not: the clock was set back.
fn counts(at: i64, now_seconds: i64) -> bool {
    (0..WINDOW_SECONDS).contains(&now_seconds.saturating_sub(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{key, object, target};
    use proptest::prelude::*;
    use serde_json::Value;

    fn patch(name: &str) -> Step {
        let fields = vec![("spec.taints".to_owned(), Value::Null)];
        Step::Patch {
            reference: target(name),
            version: "1".to_owned(),
            fields,
        }
    }

    /// How many of these steps may be written, and until when the rest waits.
    fn admitted(
        limiter: &mut WriteLimiter,
        primary: &str,
        targets: &[&str],
        now: i64,
    ) -> (usize, Option<i64>) {
        let mut plan = Plan::new(&key(primary), None);
        plan.steps = targets.iter().map(|name| patch(name)).collect();
        let PermittedPlan { plan, stopped } = limiter.admit(&key(primary), plan, now);
        (
            plan.steps.len(),
            stopped.and_then(|failure| failure.ask_again_at),
        )
    }

    #[test]
    fn limits_writes_per_object_and_minute() {
        let mut limiter = WriteLimiter::default();
        for at in 0..60 {
            assert_eq!(
                admitted(&mut limiter, "a", &["t"], at / 2),
                (1, None),
                "write {at}"
            );
        }
        assert_eq!(admitted(&mut limiter, "a", &["t"], 30), (0, Some(60)));
        assert_eq!(
            admitted(&mut limiter, "b", &["t"], 59),
            (0, Some(60)),
            "whoever writes it"
        );
        assert_eq!(
            admitted(&mut limiter, "b", &["other"], 59),
            (1, None),
            "others are not concerned"
        );
        assert_eq!(admitted(&mut limiter, "a", &["t"], 60), (1, None));
        assert_eq!(admitted(&mut limiter, "a", &["t", "t"], 60), (1, Some(61)));
    }

    #[test]
    fn a_finalizer_that_is_taken_off_again_and_again_uses_up_no_other_write() {
        let (mut limiter, key) = (WriteLimiter::default(), key("a"));
        let keep = Step::Patch {
            reference: (*key.primary).clone(),
            version: "1".to_owned(),
            fields: vec![("metadata.finalizers".to_owned(), Value::Null)],
        };
        let mut is_admitted = |step: &Step| {
            let mut plan = Plan::new(&key, None);
            plan.steps.push(step.clone());
            limiter.admit(&key, plan, 0).stopped.is_none()
        };
        assert!((0..60).all(|_| is_admitted(&keep)));
        assert!(!is_admitted(&keep));
        assert!(is_admitted(&patch("t")));
    }

    #[test]
    fn limits_ever_changing_targets_and_resumes_long_plans_later() {
        let mut limiter = WriteLimiter::default();
        let names: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let most = MAX_WRITES_OF_PRIMARY;
        assert_eq!(admitted(&mut limiter, "a", &names, 5), (most, Some(65)));
        let rest = &names[most..];
        assert_eq!(admitted(&mut limiter, "a", rest, 64), (0, Some(65)));
        assert_eq!(admitted(&mut limiter, "a", rest, 65), (rest.len(), None));
    }

    #[test]
    fn removals_count_for_their_objects_alone() {
        let (mut limiter, key) = (WriteLimiter::default(), key("a"));
        let removal = |name: String| Step::Delete {
            reference: target(&name),
            uid: String::new(),
            version: "1".to_owned(),
            why: "it is left over".to_owned(),
        };
        let mut plan = Plan::new(&key, None);
        plan.steps = (0..1_000).map(|at| removal(at.to_string())).collect();
        assert_eq!(limiter.admit(&key, plan, 0).stopped, None);
        let mut again = Plan::new(&key, None);
        again.steps = (0..MAX_WRITES).map(|_| removal("0".to_owned())).collect();
        let admitted = limiter.admit(&key, again, 0);
        assert_eq!(admitted.plan.steps.len(), MAX_WRITES - 1);
    }

    #[test]
    fn an_object_that_is_made_anew_is_not_removed_without_a_write_left_to_make_it() {
        // How many of the two steps may be written after so many writes of this or of other objects.
        for (this, others, admitted) in [
            (MAX_WRITES - 2, 0, 2),
            (MAX_WRITES - 1, 0, 0),
            (MAX_WRITES, 0, 0),
            (0, MAX_WRITES_OF_PRIMARY - 1, 2),
            (0, MAX_WRITES_OF_PRIMARY, 0),
        ] {
            let (mut limiter, key) = (WriteLimiter::default(), key("a"));
            let others = (0..others).map(|at| patch(&at.to_string()));
            let before = (0..this).map(|_| patch("t")).chain(others);
            let before = limiter.admit(&key, Plan::new(&key, before), 0);
            assert_eq!(before.stopped, None);
            let there = object(target("t"), Value::Null);
            let removal = Step::delete(&there, "it is made anew");
            let remade = [removal.clone(), Step::Create { desired: there }];
            let now = limiter.admit(&key, Plan::new(&key, remade), 0);
            let done = (now.plan.steps.len(), now.stopped.is_none());
            assert_eq!(done, (admitted, admitted == 2), "{this}");
            // What is not written does not count.
            let more = limiter.admit(&key, Plan::new(&key, vec![removal; MAX_WRITES]), 0);
            assert_eq!(more.plan.steps.len(), MAX_WRITES - this - admitted);
        }
    }

    #[test]
    fn refunds_unused_writes_and_tolerates_a_clock_set_back() {
        let mut limiter = WriteLimiter::default();
        for _ in 0..200 {
            assert_eq!(admitted(&mut limiter, "a", &["t"], 1_000), (1, None));
            limiter.give_back(&key("a"), &patch("t"));
        }
        assert_eq!(
            admitted(&mut limiter, "a", &["t"; 61], 1_000),
            (60, Some(1_060))
        );
        assert_eq!(admitted(&mut limiter, "a", &["t"], 10), (1, None));
    }

    #[test]
    fn forgets_an_object_written_once() {
        let mut limiter = WriteLimiter::default();
        for number in 0..100_000 {
            admitted(
                &mut limiter,
                &format!("s{number}"),
                &[&format!("t{number}")],
                number / 10,
            );
        }
        // Ten writes a second count for a minute, with two counters each; there are never more than twice as many, or
        // than the first sweep allows.
        assert!(
            limiter.written.len() <= 2_400.max(SWEPT_FROM),
            "{} counters",
            limiter.written.len()
        );
    }

    proptest! {
        #[test]
        fn no_minute_has_more_writes_to_an_object_than_allowed(
            steps in proptest::collection::vec((0..3_u8, 0..3_u8, 0..4_i64, 0..9_usize, any::<bool>()), 1..300),
        ) {
            let (mut limiter, mut now, mut written) = (WriteLimiter::default(), 0, Vec::<(u8, i64)>::new());
            for (primary, object, later, count, fails) in steps {
                now += later;
                let name = object.to_string();
                let (admitted, until) = admitted(&mut limiter, &primary.to_string(), &vec![name.as_str(); count], now);
                prop_assert_eq!(admitted == count, until.is_none());
                prop_assert!(until.is_none_or(|until| until > now && until <= now + WINDOW_SECONDS));
                if fails && admitted > 0 {
                    limiter.give_back(&key(&primary.to_string()), &patch(&name));
                }
                written.extend((usize::from(fails)..admitted).map(|_| (object, now)));
            }
            for (object, at) in &written {
                let within = written.iter().filter(|(other, then)| other == object && (0..WINDOW_SECONDS).contains(&(then - at)));
                prop_assert!(within.count() <= MAX_WRITES);
            }
        }
    }
}
