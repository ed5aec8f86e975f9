//! What was approved of a policy, and lets more pass than its limits: the plan of its active revision, and what is
//! withheld.

use super::{ChangeLimits, Controller};
use crate::policies::Approval;
use crate::policies::active::{Active, ApprovedCounts};
use crate::telemetry;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_api::status::LimitsStatus;
use transom_core::catalogue::Revision;
use transom_core::digest::Digest;
use transom_core::limits::{Ask, Ledger, PolicyLimits};
use transom_core::reference::ObjectRef;
use transom_core::rollout::Approved;

/// How long an approval by a user who may not approve is not asked about again: the user may be granted it.
const FORBIDDEN: Duration = Duration::from_secs(60);
/// The same while the API server does not tell whether the user may.
const UNKNOWN: Duration = Duration::from_secs(5);

/// A plan that was approved, until it is needed.
pub(super) struct ApprovedPlan {
    /// The revision that it was approved for.
    revision: Digest,
    /// How many primaries it changes.
    changes: ApprovedCounts,
    /// When that revision became active, in seconds since 1970.
    since: i64,
}

impl ApprovedPlan {
    /// Lets the approved plan exceed the limits once its own revision asks: the queue may still have the previous one.
    pub(super) fn let_pass(plan: &mut Option<Self>, ledger: &mut Ledger, ask: &Ask<'_>) {
        let Some(plan) = plan.take_if(|plan| plan.revision == ask.revision) else {
            return;
        };
        let until = (plan.since).saturating_add(i64::from(ask.limits.interval_seconds()));
        if ask.now_seconds < until {
            ledger.let_pass(&plan.changes, &plan.revision, ask.limits, ask.now_seconds);
        }
    }
}

impl ChangeLimits {
    /// A revision became active, of the policy with this uid, if it is an object: ends the approvals for other
    /// revisions. If its own plan was approved, the changes of that plan may exceed the limits for one interval from
    /// now.
    pub(in crate::controller) fn begin(
        &self,
        (revision, uid): (&Revision, Option<&str>),
        plan: Option<ApprovedCounts>,
        now_seconds: i64,
    ) {
        let (id, policy) = (revision.id(), &revision.policy);
        let mut policies = self.lock();
        let kept = policies.entry(Arc::clone(&policy.name)).or_default();
        kept.failing.belongs_to(uid);
        // What is approved now was for this revision as a candidate, or for the one before.
        kept.seen = None;
        if let Some(ledger) = &mut kept.ledger {
            ledger.begin(&id, &policy.limits);
        }
        let new = plan.map(|changes| ApprovedPlan {
            revision: id,
            changes,
            since: now_seconds,
        });
        kept.plan = new.or(kept.plan.take().filter(|plan| plan.revision == id));
    }
}

impl Controller {
    /// The digest that is approved for what is withheld of a policy, by a user who may.
    pub(super) async fn approved_limits(
        &self,
        policy: &Arc<str>,
        active: &Active,
    ) -> Option<String> {
        let approval = active.approval(policy);
        if self.limits.is_outdated(policy, approval.as_ref()) {
            self.tell_outdated(policy, approval.as_ref()?, active);
        }
        let approval = approval?;
        // An annotation may stay for ever: an API server is asked only about one for what is withheld.
        let is_offered = self
            .limits
            .ledger(policy, |ledger| ledger.offers(&approval.digest));
        let is_asked = self.connections.approvals().is_some();
        if is_asked && (is_offered != Some(true) || self.limits.has_asked(policy, &approval)) {
            return None;
        }
        let (reason, why, again) = match self.approved(policy, &approval).await {
            Approved::Digest(digest) => return Some(digest),
            Approved::Nothing => return None,
            Approved::Forbidden(why) => (KnownReason::ApprovalForbidden, why, FORBIDDEN),
            Approved::Unknown(reason, why) => (reason, why, UNKNOWN),
        };
        let digest = &approval.digest;
        let message = format!("the approval of {digest} does not count: {why}");
        self.limits.ask_again(policy, approval.clone(), again);
        self.tell_uncounted(policy, reason, message);
        None
    }

    /// Says that an approval is not for what is withheld now, unless it may be for a candidate.
    fn tell_outdated(&self, policy: &Arc<str>, approval: &Approval, active: &Active) {
        let catalogue = active.catalogue();
        let entry = catalogue.entry(policy);
        if entry.is_some_and(|entry| entry.candidate.is_some()) {
            return;
        }
        let digest = &approval.digest;
        let message = format!(
            "the approval of {digest} does not count: it is for other numbers than are withheld now"
        );
        self.tell_uncounted(policy, KnownReason::PlanChanged, message);
    }

    /// Says once why an approval does not count.
    fn tell_uncounted(&self, policy: &Arc<str>, reason: KnownReason, message: String) {
        if let Some(kept) = self.limits.lock().get_mut(policy) {
            if kept.uncounted == message {
                return;
            }
            kept.uncounted.clone_from(&message);
        }
        self.connections.warn_of_policy(policy, reason, &message);
        telemetry::warn_of_policy(policy, reason, &message);
    }
}

impl ChangeLimits {
    /// Whether the API server was asked about an approval, which did not count, and is not to be asked again yet.
    fn has_asked(&self, policy: &str, approval: &Approval) -> bool {
        let policies = self.lock();
        let asked = policies.get(policy).and_then(|kept| kept.asked.as_ref());
        asked.is_some_and(|(asked, again)| asked == approval && Instant::now() < *again)
    }

    /// An approval does not count: has the API server asked about it again after a while.
    fn ask_again(&self, policy: &str, approval: Approval, after: Duration) {
        if let Some(kept) = self.lock().get_mut(policy) {
            kept.asked = Some((approval, Instant::now() + after));
        }
    }

    /// Whether an approval came while something was withheld, and is not for that. Once: one that counts, or counted,
    /// or was there before, may stay.
    fn is_outdated(&self, policy: &str, approval: Option<&Approval>) -> bool {
        let mut policies = self.lock();
        let Some(kept) = policies.get_mut(policy) else {
            return false;
        };
        // Until then the same numbers may come that a process before published.
        if !kept.ledger.as_ref().is_some_and(Ledger::is_complete) {
            return false;
        }
        let digest = approval.map_or("", |approval| &approval.digest);
        let before = kept.seen.replace(digest.to_owned());
        let is_new = before.is_some_and(|before| before != digest) && !digest.is_empty();
        let is_for_other = |ledger: &Ledger| ledger.status().is_some() && !ledger.offers(digest);
        is_new && kept.ledger.as_ref().is_some_and(is_for_other)
    }

    /// Whether anything of a policy is withheld.
    pub(in crate::controller) fn withholds(&self, policy: &str) -> bool {
        self.ledger(policy, |ledger| ledger.withholds())
            .unwrap_or_default()
    }

    /// What is withheld of a policy for these primaries, which are held.
    pub(in crate::controller) fn agreed(
        &self,
        policy: &str,
        limits: &PolicyLimits,
        held: &BTreeSet<Arc<ObjectRef>>,
    ) -> Option<LimitsStatus> {
        let is_held = |primary: &ObjectRef| held.contains(primary);
        self.ledger(policy, |ledger| ledger.agreed(policy, limits, is_held))?
    }
}

#[cfg(test)]
mod tests {
    use super::super::KeptPolicy;
    use super::super::tests::{check, withholding};
    use super::*;
    use transom_cluster::kubernetes::User;

    const POLICY: &str = "p";

    /// The limits of a policy.
    fn limits(kept: KeptPolicy) -> ChangeLimits {
        let limits = ChangeLimits::default();
        limits.lock().insert(POLICY.into(), kept);
        limits
    }

    fn approval(digest: &str) -> Approval {
        Approval {
            digest: digest.to_owned(),
            by: None,
        }
    }

    #[test]
    fn an_approval_that_does_not_count_is_asked_about_again_after_a_while_and_another_at_once() {
        let limits = limits(KeptPolicy::default());
        let refused = approval("sha256:0");
        assert!(!limits.has_asked(POLICY, &refused));
        for after in [FORBIDDEN, UNKNOWN] {
            limits.ask_again(POLICY, refused.clone(), after);
            assert!(limits.has_asked(POLICY, &refused));
        }
        let by_another = Approval {
            by: Some(User::default()),
            ..refused.clone()
        };
        assert!(!limits.has_asked(POLICY, &by_another));
        assert!(!limits.has_asked(POLICY, &approval("sha256:1")));
        limits.ask_again(POLICY, refused.clone(), Duration::ZERO);
        assert!(!limits.has_asked(POLICY, &refused));
    }
    #[test]
    fn an_approval_of_other_numbers_than_are_withheld_is_told_once() {
        let primary = ObjectRef::local("v1", "Thing", None, "one");
        let limits = limits(KeptPolicy {
            ledger: Some(withholding(&primary)),
            ..KeptPolicy::default()
        });
        let is_told = |digest: &str| limits.is_outdated(POLICY, Some(&approval(digest)));
        let look = |approved: Option<&str>| {
            let check = |ledger: &mut Ledger| check(ledger, approved);
            limits.ledger(POLICY, check).unwrap()
        };
        assert!(
            !is_told("sha256:before"),
            "nothing is told to be withheld yet"
        );
        look(None);
        assert!(!is_told("sha256:before"), "it was there before");
        assert!(is_told("sha256:other") && !is_told("sha256:other"));
        // One that counts, also once it is used up.
        let digest = limits.status(POLICY).unwrap().approve;
        assert!(!is_told(&digest));
        assert_eq!(look(Some(&digest)).approved.as_ref(), Some(&digest));
        assert!(!is_told(&digest));
        assert!(!limits.is_outdated(POLICY, None));
        assert!(is_told(&digest), "it is given once more");
    }
}
