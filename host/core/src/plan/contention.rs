//! Counts how often another writer changed what we wrote: a whole object, or fields of a user's object. Stops the
//! writes of a policy to an object that another writer keeps changing.

use super::Step;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::managed_keys;
use crate::object::Object;
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use transom_api::KnownReason;

/// Foreign changes within this many seconds count together.
const WINDOW_SECONDS: i64 = 600;
/// This many foreign changes are too many.
const MAX_CHANGES: usize = 3;

/// What is known since the agent's start of one policy's writes to one object. In memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    left: Option<Digest>,
    planned: Option<Digest>,
    seen: Option<Digest>,
    changed_at: Vec<i64>,
}

impl Contention {
    /// Records what is there before a write, and permits the write unless the object is contended. `before` and
    /// `after` are fingerprints of what the policy writes of the object, such as [`whole`], and of nothing else.
    ///
    /// # Errors
    /// `Contended`, until the oldest of the counted changes expires.
    pub fn permit(
        &mut self,
        target: &ObjectRef,
        before: Digest,
        after: Digest,
        now_seconds: i64,
    ) -> Result<(), Failure> {
        self.observe(before, now_seconds);
        self.planned = Some(after);
        let Some(until) = self.until() else {
            return Ok(());
        };
        let message = format!(
            "another writer changed {target} three times in ten minutes; the agent leaves it as it is"
        );
        let failure = Failure::known(KnownReason::Contended, message);
        Err(failure.about([target.clone()]).until(Some(until)))
    }

    /// Counts a change when the object is not as we left it; each foreign state counts once.
    fn observe(&mut self, fingerprint: Digest, now_seconds: i64) {
        if self.left.is_some_and(|left| left != fingerprint) && self.seen != Some(fingerprint) {
            self.seen = Some(fingerprint);
            self.changed_at.push(now_seconds);
        }
        // Changes in the future are dropped: the clock was set back, and their age is unknown.
        self.changed_at
            .retain(|at| (0..WINDOW_SECONDS).contains(&now_seconds.saturating_sub(*at)));
    }

    /// Records that the permitted write is in place. Call it after every successful write.
    pub fn written(&mut self) {
        if let Some(planned) = self.planned.take() {
            self.left = Some(planned);
            self.seen = None;
        }
    }

    /// Until when to leave the target alone, in seconds since 1970; `None` when it is not contended.
    fn until(&self) -> Option<i64> {
        let oldest = self.changed_at.len().checked_sub(MAX_CHANGES)?;
        Some(self.changed_at.get(oldest)?.saturating_add(WINDOW_SECONDS))
    }
}

/// The contention of every object, by policy.
#[derive(Clone, Debug, Default)]
pub struct Contentions(HashMap<(Arc<str>, ObjectRef), Contention>);

impl Contentions {
    /// The contention of an object that a policy writes.
    pub fn of(&mut self, policy: &Arc<str>, object: &ObjectRef) -> &mut Contention {
        self.0
            .entry((Arc::clone(policy), object.clone()))
            .or_default()
    }

    /// Records a successful step of a policy.
    pub fn wrote(&mut self, policy: &Arc<str>, step: &Step) {
        let written = (Arc::clone(policy), step.target().clone());
        if let Step::Delete { .. } = step {
            self.0.remove(&written);
        } else if step.is_of_finalizers() {
            // It says nothing about the fields that are contended.
        } else if let Some(contention) = self.0.get_mut(&written) {
            contention.written();
        }
    }

    /// Forgets an object.
    pub fn remove(&mut self, policy: &Arc<str>, object: &ObjectRef) {
        self.0.remove(&(Arc::clone(policy), object.clone()));
    }

    /// Forgets a policy.
    pub fn remove_policy(&mut self, policy: &str) {
        self.0.retain(|(of, _), _| **of != *policy);
    }
}

/// A fingerprint of an object that a policy makes whole: its data, its owner, and the keys that the policy put on it; a
/// fixed one when there is no object. It must not leave the process.
pub fn whole(target: Option<&Object>) -> Digest {
    let Some(target) = target else {
        return Digest::of(&json!(null));
    };
    let owner = Stamp::read(target).map(|stamp| (stamp.policy, stamp.source));
    Digest::of(&json!([
        target.body.get("data"),
        owner,
        managed_keys::view(target)
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{object, target};

    fn fingerprint(data: Option<&str>) -> Digest {
        let secret = data.map(|data| object(target("demo"), json!({"data": {"kubeconfig": data}})));
        whole(secret.as_ref())
    }

    /// Plans while `there` is there; returns until when the target is left alone. A permitted write succeeds.
    fn planned(contention: &mut Contention, there: Option<&str>, at: i64) -> Option<i64> {
        let permitted = contention.permit(
            &target("demo"),
            fingerprint(there),
            fingerprint(Some("ours")),
            at,
        );
        if permitted.is_ok() {
            contention.written();
        }
        permitted.err().and_then(|failure| failure.ask_again_at)
    }

    /// We write `ours`; then another writer writes each of these, at its second.
    fn after(foreign: &[(Option<&str>, i64)]) -> Option<i64> {
        let mut contention = Contention::default();
        planned(&mut contention, None, 0);
        foreign
            .iter()
            .fold(None, |_, (data, at)| planned(&mut contention, *data, *at))
    }

    #[test]
    fn three_foreign_changes_in_ten_minutes_are_too_many() {
        assert_eq!(after(&[(Some("x"), 0), (Some("x"), 100)]), None);
        assert_eq!(
            after(&[(Some("x"), 0), (Some("y"), 100), (Some("x"), 599)]),
            Some(600)
        );
        assert_eq!(
            after(&[(Some("x"), 0), (Some("x"), 100), (Some("x"), 600)]),
            None
        );
        assert_eq!(after(&[(None, 0), (None, 1), (Some("x"), 2)]), Some(600));
        assert_eq!(
            after(&[(Some("x"), 86_400), (Some("y"), 86_401), (Some("x"), 0)]),
            None,
            "the clock was set back"
        );
        assert_eq!(
            after(&[(Some("ours"), 0), (Some("ours"), 1), (Some("ours"), 2)]),
            None
        );
    }

    #[test]
    fn counts_a_change_seen_twice_once_and_forgets_after_the_window() {
        let mut contention = Contention::default();
        planned(&mut contention, Some("x"), 0);
        for at in 1..5 {
            // Each of these writes fails: `written` is not called.
            assert!(
                contention
                    .permit(
                        &target("demo"),
                        fingerprint(Some("x")),
                        fingerprint(Some("ours")),
                        at
                    )
                    .is_ok()
            );
        }
        assert_eq!(contention.changed_at, [1]);
        assert_eq!(planned(&mut contention, Some("x"), 601), None);
        assert!(contention.changed_at.is_empty());
    }
}
