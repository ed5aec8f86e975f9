//! The status of a policy: counts, why primaries wait, the top failures, and conditions, as one bounded value.
//! Messages come without credentials and are cut here.

mod concerns;
mod revision;
mod sum;

use crate::catalogue::CatalogueEntry;
use crate::catalogue::guest::GuestFacts;
use crate::failure::failing;
use crate::policy::budget::usage::Usage;
use crate::redact::visible::visible;
use crate::rollout::{self, Candidate};
use crate::time::format_rfc3339;
use concerns::concerns;
pub use revision::signers;
use revision::{loaded, tag_moved, unfinished, verified};
pub use sum::{Standing, Sum, expected_seconds, is_overdue};
use transom_api::policy::FailureMode;
use transom_api::status::{
    CandidateStatus, Condition, ConditionStatus, ConditionType, FailingStatus, LimitsStatus,
    MAX_LISTED, MAX_MESSAGE, PolicyStatus, RevisionStatus, UsageStatus, WatchStatus,
};
use transom_api::{KnownReason, State};

/// What is known of a policy besides its primaries.
#[derive(Clone, Copy, Debug)]
pub struct KnownPolicy<'a> {
    /// The policy's entry in the catalogue.
    pub entry: &'a CatalogueEntry,
    /// Watches that fail, of all policies.
    pub watch_errors: &'a [WatchStatus],
    /// The status before this one, for the times of its conditions.
    pub before: Option<&'a PolicyStatus>,
    /// What its limits withhold.
    pub limits: Option<&'a LimitsStatus>,
    /// The primaries whose guest fails by its own fault.
    pub failing: Option<&'a FailingStatus>,
    /// What the calls of the active revision used of their budget.
    pub usage: Option<&'a Usage>,
    /// Which controller that the policy replaces still runs, if any.
    pub conflict: Option<&'a str>,
    /// Seconds since 1970.
    pub now_seconds: i64,
}

/// The status of a policy.
pub fn of(known: KnownPolicy<'_>, sum: &Sum) -> PolicyStatus {
    let entry = known.entry;
    let digest = |guest: &GuestFacts| guest.digest.to_string();
    let revision = entry.revision.as_ref().map(|revision| RevisionStatus {
        id: rollout::short(&revision.id()),
        generation: entry.active,
        decide: digest(&revision.decide),
        trigger: revision.trigger.as_ref().map(digest),
    });
    let mut watch_errors = watch_errors(known);
    let conditions = conditions(known, sum, &watch_errors);
    watch_errors.truncate(MAX_LISTED);
    for watch in &mut watch_errors {
        watch.message = cut(&watch.message);
    }
    PolicyStatus {
        observed_generation: entry.place.generation,
        usage: usage(known, revision.as_ref()),
        revision,
        candidate: candidate(entry),
        counts: sum.counts(),
        conditions,
        top_failures: sum.top_failures(),
        waiting: sum.waiting(),
        watch_errors,
        limits: known.limits.cloned(),
        failing: known.failing.cloned(),
    }
}

/// The watches that fail and concern the policy, each once.
fn watch_errors(known: KnownPolicy<'_>) -> Vec<WatchStatus> {
    let errors = known.watch_errors.iter();
    let errors = errors.filter(|watch| concerns(known.entry, watch));
    let mut errors: Vec<_> = errors.cloned().collect();
    errors.sort();
    errors.dedup();
    errors
}

/// What the calls of the revision used. Another revision has another budget, or other guests.
fn usage(known: KnownPolicy<'_>, revision: Option<&RevisionStatus>) -> Vec<UsageStatus> {
    let id = |revision: &RevisionStatus| revision.id.clone();
    let is_same = |before: &&PolicyStatus| before.revision.as_ref().map(id) == revision.map(id);
    let before = known.before.filter(is_same);
    let before = before.map_or_else(Default::default, |before| before.usage.as_slice());
    let usage = known.usage.map(|usage| usage.status(before));
    usage.unwrap_or_default()
}

/// The conditions, with `Ready` first.
fn conditions(known: KnownPolicy<'_>, sum: &Sum, watch_errors: &[WatchStatus]) -> Vec<Condition> {
    let entry = known.entry;
    let said = of_revision(known, sum, watch_errors);
    let unfinished = unfinished(entry);
    let stalled = stalled(entry, sum);
    let ready = match &stalled {
        Some(stalled) => Condition {
            kind: ConditionType::Ready,
            status: ConditionStatus::False,
            ..stalled.clone()
        },
        None => ready(&said),
    };
    let said = std::iter::once(ready).chain(said);
    let said = said.chain(verified(entry)).chain(tag_moved(entry));
    let said = said.chain(conflicting(known.conflict));
    let has_one = |one: &Condition| one.kind == ConditionType::Stalled;
    let stalled = stalled.filter(|_| !unfinished.as_ref().is_some_and(has_one));
    let said = said.chain(unfinished).chain(stalled);
    said.map(|said| dated(said, known)).collect()
}

/// Whether a revision is loaded, watched and healthy.
fn of_revision(known: KnownPolicy<'_>, sum: &Sum, watch_errors: &[WatchStatus]) -> [Condition; 3] {
    let entry = known.entry;
    let waits = entry.candidate.as_ref().map(|candidate| candidate.reason);
    let refused = entry.refused.as_ref().map(|refused| refused.reason);
    if let (None, Some(reason)) = (&entry.revision, refused.or(waits)) {
        // Never active: its needs and its health are unknown.
        let unknown = |kind| {
            let message = "No revision of the policy is active.".to_owned();
            said(kind, ConditionStatus::Unknown, reason.as_str(), message)
        };
        let (watched, healthy) = (ConditionType::Watched, ConditionType::Healthy);
        return [loaded(entry), unknown(watched), unknown(healthy)];
    }
    let limits = known.limits;
    let healthy = limits.map_or_else(|| sum.healthy(), |limits| sum.stopped(limits));
    [loaded(entry), watched(watch_errors), healthy]
}

/// The newest revision while it is not active; of one that could not even be loaded, only where it stopped.
fn candidate(entry: &CatalogueEntry) -> Option<CandidateStatus> {
    let stopped = entry.refused.as_ref().map(|refused| CandidateStatus {
        gate: refused.gate.as_str().to_owned(),
        reason: refused.reason.as_str().to_owned(),
        ..CandidateStatus::default()
    });
    entry.candidate.as_ref().map(Candidate::status).or(stopped)
}

/// The condition `Stalled`: the guest fails by its own fault, and `spec.onFailure.mode` is `Fail`.
fn stalled(entry: &CatalogueEntry, sum: &Sum) -> Option<Condition> {
    let policy = &entry.revision.as_ref()?.policy;
    let fails = policy.on_failure.mode == FailureMode::Fail;
    let groups = sum.largest(&[State::Failed]).into_iter();
    let faults = groups.filter(|(_, reason, _)| failing::fault(reason).is_some());
    let faults: Vec<_> = faults.filter(|_| fails).collect();
    let (_, reason, _) = faults.first()?;
    let count: u32 = faults.iter().map(|(_, _, group)| group.count).sum();
    let message = format!(
        "The guest fails for {count} of {} primaries, and spec.onFailure.mode is Fail.",
        sum.counts().total
    );
    let (kind, status) = (ConditionType::Stalled, ConditionStatus::True);
    Some(said(kind, status, reason.as_str(), message))
}

/// The condition `Conflicting`: a controller that the policy replaces still runs.
fn conflicting(conflict: Option<&str>) -> Option<Condition> {
    let reason = KnownReason::Conflicting.as_str();
    let (kind, status) = (ConditionType::Conflicting, ConditionStatus::True);
    conflict.map(|message| said(kind, status, reason, message.to_owned()))
}

/// A condition before [`dated`].
fn said(kind: ConditionType, status: ConditionStatus, reason: &str, message: String) -> Condition {
    Condition {
        kind,
        status,
        observed_generation: None,
        reason: reason.to_owned(),
        message,
        last_transition_time: String::new(),
    }
}

/// The condition with its time and generation.
fn dated(said: Condition, known: KnownPolicy<'_>) -> Condition {
    let before = known
        .before
        .into_iter()
        .flat_map(|before| &before.conditions);
    let same = |one: &&Condition| one.kind == said.kind && one.status == said.status;
    let since = before.into_iter().find(same);
    let since = since.map(|before| before.last_transition_time.clone());
    Condition {
        observed_generation: known.entry.place.generation,
        message: cut(&said.message),
        last_transition_time: since.unwrap_or_else(|| format_rfc3339(known.now_seconds)),
        ..said
    }
}

fn holds(is_so: bool) -> ConditionStatus {
    if is_so {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    }
}

/// All conditions as one, for clients that wait for a policy without knowing the others: the first condition that
/// does not hold gives the message.
fn ready(conditions: &[Condition]) -> Condition {
    let first = |status| conditions.iter().find(|one| one.status == status);
    let open = first(ConditionStatus::False).or_else(|| first(ConditionStatus::Unknown));
    let (status, reason) = match open {
        Some(open) => (open.status, open.reason.as_str()),
        None => (ConditionStatus::True, KnownReason::InSync.as_str()),
    };
    let speaks = open.or(conditions.last());
    let message = speaks.map(|one| one.message.clone()).unwrap_or_default();
    said(ConditionType::Ready, status, reason, message)
}

fn watched(watch_errors: &[WatchStatus]) -> Condition {
    let Some(first) = watch_errors.first() else {
        let (status, reason) = (ConditionStatus::True, KnownReason::InSync.as_str());
        let message = "Everything that the policy needs is watched.".to_owned();
        return said(ConditionType::Watched, status, reason, message);
    };
    let more = match watch_errors.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let what = match first.kind.as_str() {
        "" => String::new(),
        kind => format!("{kind} of {} on ", first.api_version),
    };
    let message = format!("{what}{}: {}{more}", first.cluster, first.message);
    said(
        ConditionType::Watched,
        ConditionStatus::False,
        &first.reason,
        message,
    )
}

/// Cuts a message between characters to the length that a status shows.
fn cut(message: &str) -> String {
    let message = visible(message);
    if message.len() <= MAX_MESSAGE {
        return message.into_owned();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE - '…'.len_utf8());
    format!("{}…", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Revision;
    use crate::catalogue::{PolicyPlace, Refusal};
    use crate::sample::{guest, hosted, kubeconfig_manifest, policy};
    use std::sync::Arc;
    use transom_api::Reason;
    use transom_api::policy::Limited;
    use transom_api::status::{ChangesStatus, MAX_TOP_FAILURES, PrimaryCounts};

    const NOW: i64 = 1_000_000;

    fn entry() -> CatalogueEntry {
        let revision = Revision {
            policy: policy(&kubeconfig_manifest()),
            trigger: None,
            decide: guest(&["spec"], &[]),
        };
        let place = PolicyPlace {
            text: "external".to_owned(),
            generation: Some(4),
        };
        CatalogueEntry {
            revision: Some(Arc::new(revision)),
            refused: None,
            place,
            active: Some(4),
            candidate: None,
            moved: Vec::new(),
        }
    }

    fn status(
        entry: &CatalogueEntry,
        before: Option<&PolicyStatus>,
        now: i64,
        primaries: &[(&str, State, Reason, i64)],
    ) -> PolicyStatus {
        let primaries: Vec<_> = primaries
            .iter()
            .map(|(name, state, reason, since)| (hosted(name), *state, reason, *since))
            .collect();
        let mut sum = Sum::new(now);
        for (primary, state, reason, since) in &primaries {
            sum.add(Standing {
                primary,
                state: *state,
                reason,
                message: "told",
                since_seconds: *since,
                failing: None,
            });
        }
        of(
            KnownPolicy {
                entry,
                watch_errors: &[],
                before,
                limits: None,
                failing: None,
                usage: None,
                conflict: None,
                now_seconds: now,
            },
            &sum,
        )
    }

    #[test]
    fn a_policy_that_is_to_fail_is_stalled_by_a_fault_of_its_guest_and_by_nothing_else() {
        let mut entry = entry();
        let stalled = |entry: &CatalogueEntry, reason: KnownReason| {
            let primaries = [
                ("a", State::Failed, reason.into(), NOW),
                ("b", State::Failed, KnownReason::ReadFailed.into(), NOW),
                ("c", State::Failed, KnownReason::ReadFailed.into(), NOW),
            ];
            let conditions = status(entry, None, NOW, &primaries).conditions;
            let reason = |kind| {
                let mut all = conditions.iter().filter(|one| one.kind == kind);
                let reason = all.next().map(|one| one.reason.clone());
                assert!(all.next().is_none(), "{kind:?} twice");
                reason
            };
            (reason(ConditionType::Stalled), reason(ConditionType::Ready))
        };
        let texts = |stalled: Option<&str>, ready: &str| {
            (stalled.map(str::to_owned), Some(ready.to_owned()))
        };
        let trapped = KnownReason::GuestTrapped;
        assert_eq!(stalled(&entry, trapped), texts(None, "ReadFailed"));
        let revision = Arc::make_mut(entry.revision.as_mut().unwrap());
        revision.policy.on_failure.mode = FailureMode::Fail;
        let both = texts(Some("GuestTrapped"), "GuestTrapped");
        assert_eq!(stalled(&entry, trapped), both);
        let missing = KnownReason::InputTerminating;
        assert_eq!(stalled(&entry, missing), texts(None, "ReadFailed"));
        // One condition, also when the newest revision is refused.
        entry.refused = Some(Refusal::new(KnownReason::SettingsRefused, "why"));
        let refused = texts(Some("SettingsRefused"), "GuestTrapped");
        assert_eq!(stalled(&entry, trapped), refused);
    }

    #[test]
    fn a_moved_tag_is_a_condition_that_leaves_the_policy_ready() {
        let mut entry = entry();
        let conditions = |entry: &CatalogueEntry| status(entry, None, NOW, &[]).conditions;
        let before = conditions(&entry);
        entry.moved.push(crate::catalogue::MovedTag {
            component: "oci:registry.example/a:v1".to_owned(),
            pulled: "sha256:1".to_owned(),
            now: "sha256:2".to_owned(),
        });
        let mut after = conditions(&entry);
        let moved = after.pop().unwrap();
        assert_eq!(after, before);
        assert_eq!(
            (moved.kind, moved.status),
            (ConditionType::TagMoved, ConditionStatus::True)
        );
        assert!(
            moved.message.contains("sha256:1") && moved.message.contains("sha256:2"),
            "{moved:?}"
        );
    }

    #[test]
    fn tells_who_signed_only_where_signatures_are_demanded() {
        let mut entry = entry();
        let verified = |entry: &CatalogueEntry| {
            let conditions = status(entry, None, NOW, &[]).conditions;
            let found = conditions.into_iter();
            let mut found = found.filter(|one| one.kind == ConditionType::Verified);
            found
                .next()
                .map(|one| (one.status, one.reason, one.message))
        };
        assert_eq!(verified(&entry), None);
        let revision = Arc::make_mut(entry.revision.as_mut().unwrap());
        let keys = serde_json::json!({"keys": [{"name": "release", "file": "release.pub"}]});
        revision.policy.verify = serde_json::from_value(keys).unwrap();
        revision.decide.signers = vec!["release".to_owned()];
        revision.trigger = Some(guest(&["spec"], &[]));
        let (holds, reason, message) = verified(&entry).unwrap();
        assert_eq!(
            (holds, reason.as_str()),
            (ConditionStatus::True, "Verified")
        );
        assert!(
            message.contains("is signed by release; ") && message.contains("part of the agent"),
            "{message}"
        );
        let refusal = |reason| Refusal::new(reason, "why");
        entry.refused = Some(refusal(KnownReason::SettingsRefused));
        assert_eq!(verified(&entry).unwrap().0, ConditionStatus::True);
        entry.refused = Some(refusal(KnownReason::SignatureMissing));
        let (holds, reason, message) = verified(&entry).unwrap();
        assert_eq!(
            (holds, reason.as_str(), message.as_str()),
            (ConditionStatus::False, "SignatureMissing", "why")
        );
        // Also when no revision was ever active.
        entry.revision = None;
        assert_eq!(verified(&entry).unwrap().0, ConditionStatus::False);
    }

    /// The status of a policy without primaries while these watches fail.
    fn watching(entry: &CatalogueEntry, watch_errors: &[WatchStatus]) -> PolicyStatus {
        let known = KnownPolicy {
            entry,
            watch_errors,
            limits: None,
            failing: None,
            usage: None,
            conflict: None,
            before: None,
            now_seconds: NOW,
        };
        of(known, &Sum::new(NOW))
    }

    fn watch(kind: &str) -> WatchStatus {
        WatchStatus {
            cluster: "local".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            reason: "ReadForbidden".to_owned(),
            message: "not allowed".to_owned(),
        }
    }

    fn refusing(reason: KnownReason, message: &str) -> CatalogueEntry {
        let refusal = Refusal::new(reason, message);
        CatalogueEntry {
            refused: Some(refusal),
            ..entry()
        }
    }

    fn says(status: &PolicyStatus, kind: ConditionType) -> (ConditionStatus, &str, &str) {
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|condition| condition.kind == kind).unwrap();
        (condition.status, &condition.reason, &condition.message)
    }

    fn declared(word: &str) -> Reason {
        Reason::Declared(word.into())
    }

    #[test]
    fn counts_reasons_and_lists_top_failures() {
        let failed = (State::Failed, Reason::from(KnownReason::GuestTrapped));
        let status = status(
            &entry(),
            None,
            NOW,
            &[
                ("right", State::Applied, KnownReason::InSync.into(), 5),
                (
                    "late",
                    State::Waiting,
                    declared("ServiceMissing"),
                    NOW - 901,
                ),
                (
                    "early",
                    State::Waiting,
                    declared("ServiceMissing"),
                    NOW - 900,
                ),
                ("paused", State::Held, KnownReason::Paused.into(), 7),
                ("newer", failed.0, failed.1.clone(), NOW),
                ("older", failed.0, failed.1, NOW - 9),
            ],
        );
        assert_eq!(
            status.counts,
            PrimaryCounts {
                total: 6,
                applied: 1,
                held: 1,
                waiting: 2,
                failed: 2
            }
        );
        let names: Vec<_> = status
            .top_failures
            .iter()
            .map(|primary| primary.name.as_str())
            .collect();
        assert_eq!(names, ["older", "newer", "late"]);
        let waiting: Vec<_> = status
            .waiting
            .iter()
            .map(|one| {
                (
                    one.reason.as_str(),
                    one.count,
                    one.overdue,
                    one.expected_seconds,
                )
            })
            .collect();
        assert_eq!(
            waiting,
            [("ServiceMissing", 2, 1, Some(900)), ("Paused", 1, 0, None)]
        );
        assert_eq!(status.waiting[0].since, format_rfc3339(NOW - 901));
        assert_eq!(
            says(&status, ConditionType::Healthy),
            (
                ConditionStatus::False,
                "GuestTrapped",
                "1 of 6 applied, 1 held, 2 waiting, 2 failed: 2 GuestTrapped"
            )
        );
        assert_eq!(
            (
                status.observed_generation,
                status.revision.unwrap().generation
            ),
            (Some(4), Some(4))
        );
    }

    #[test]
    fn a_policy_is_ready_when_every_condition_holds() {
        let entry = entry();
        let newer = refusing(KnownReason::PolicyInvalid, "spec: no");
        let never = CatalogueEntry {
            revision: None,
            active: None,
            ..newer.clone()
        };
        let failed = [("a", State::Failed, KnownReason::GuestTrapped.into(), NOW)];
        let waits = [("a", State::Waiting, KnownReason::OwnedByAnother.into(), NOW)];
        for (entry, primaries, expected) in [
            (&entry, &[][..], (ConditionStatus::True, "InSync")),
            (&entry, &waits[..], (ConditionStatus::True, "InSync")),
            (
                &entry,
                &failed[..],
                (ConditionStatus::False, "GuestTrapped"),
            ),
            (&newer, &[][..], (ConditionStatus::False, "PolicyInvalid")),
            (
                &newer,
                &failed[..],
                (ConditionStatus::False, "PolicyInvalid"),
            ),
            (&never, &[][..], (ConditionStatus::False, "PolicyInvalid")),
        ] {
            let status = status(entry, None, NOW, primaries);
            let (found, reason, _) = says(&status, ConditionType::Ready);
            assert_eq!((found, reason), expected, "{primaries:?}");
            let is_stalled = entry.refused.is_some();
            assert_eq!(status.conditions.len(), 4 + usize::from(is_stalled));
        }
        let status = watching(&entry, &[watch("Secret")]);
        let (found, reason, _) = says(&status, ConditionType::Ready);
        assert_eq!((found, reason), (ConditionStatus::False, "ReadForbidden"));
    }

    #[test]
    fn a_refusal_that_only_a_change_ends_is_stalled_and_any_other_is_reconciling() {
        use ConditionType::{Reconciling, Stalled};
        for (reason, expected) in [
            (KnownReason::PolicyInvalid, Stalled),
            (KnownReason::GuestTrapped, Stalled),
            (KnownReason::RolledBack, Stalled),
            (KnownReason::ComponentNotFound, Reconciling),
            (KnownReason::SignatureMissing, Reconciling),
            (KnownReason::RegistryUnavailable, Reconciling),
        ] {
            let status = status(&refusing(reason, "why"), None, NOW, &[]);
            let kinds = status.conditions.iter().map(|condition| condition.kind);
            let found: Vec<_> = kinds
                .filter(|kind| [Reconciling, Stalled].contains(kind))
                .collect();
            assert_eq!(found, [expected], "{reason:?}");
        }
        // What is tried again counts, whatever the reason.
        for (retried, expected) in [(true, Reconciling), (false, Stalled)] {
            let mut entry = refusing(KnownReason::GuestTimedOut, "why");
            let refused = entry.refused.as_mut().unwrap();
            refused.retried = retried;
            let status = status(&entry, None, NOW, &[]);
            let has = |condition: &Condition| condition.kind == expected;
            assert!(status.conditions.iter().any(has), "{retried}");
        }
        let done = status(&entry(), None, NOW, &[]);
        assert_eq!(done.conditions.len(), 4);
    }

    #[test]
    fn a_policy_whose_limit_is_reached_is_not_healthy() {
        let change = ChangesStatus {
            limit: Limited::ElementsAdded,
            done: 12,
            most: 12,
            withheld: 3,
        };
        let done = ChangesStatus {
            limit: Limited::ObjectsPruned,
            withheld: 0,
            ..change.clone()
        };
        let limits = LimitsStatus {
            since: format_rfc3339(NOW),
            until: format_rfc3339(NOW + 600),
            changes: vec![change, done],
            withheld: 3,
            primaries: vec!["a".to_owned()],
            approve: "sha256:0".to_owned(),
        };
        let known = KnownPolicy {
            entry: &entry(),
            watch_errors: &[],
            before: None,
            limits: Some(&limits),
            failing: None,
            usage: None,
            conflict: None,
            now_seconds: NOW,
        };
        let status = of(known, &Sum::new(NOW));
        for kind in [ConditionType::Healthy, ConditionType::Ready] {
            assert_eq!(
                says(&status, kind),
                (
                    ConditionStatus::False,
                    "LimitReached",
                    "3 withheld by spec.limits: elementsAdded 12 of 12; see status.limits. \
                     0 of 0 applied, 0 held, 0 waiting, 0 failed"
                )
            );
        }
        assert_eq!(status.limits, Some(limits));
    }

    #[test]
    fn a_primary_that_a_limit_stops_makes_a_policy_unhealthy_before_the_limits_are_told() {
        let standing = |name, state, reason: KnownReason| (name, state, reason.into(), NOW);
        let stopped = |name| standing(name, State::Held, KnownReason::LimitReached);
        let waits = |name| standing(name, State::Waiting, KnownReason::OwnedByAnother);
        let fails = |name| standing(name, State::Failed, KnownReason::GuestTrapped);
        for primaries in [
            vec![stopped("a")],
            vec![stopped("a"), waits("b"), waits("c")],
            vec![stopped("a"), fails("b"), fails("c")],
        ] {
            let status = status(&entry(), None, NOW, &primaries);
            for kind in [ConditionType::Healthy, ConditionType::Ready] {
                let (holds, reason, _) = says(&status, kind);
                assert_eq!((holds, reason), (ConditionStatus::False, "LimitReached"));
            }
        }
    }

    #[test]
    fn without_a_failed_primary_a_policy_is_healthy() {
        let nobody = status(&entry(), None, NOW, &[]);
        assert_eq!(
            says(&nobody, ConditionType::Healthy),
            (
                ConditionStatus::True,
                "InSync",
                "0 of 0 applied, 0 held, 0 waiting, 0 failed"
            )
        );
        let waits = status(
            &entry(),
            None,
            NOW,
            &[("a", State::Waiting, KnownReason::OwnedByAnother.into(), NOW)],
        );
        assert_eq!(
            says(&waits, ConditionType::Healthy).0,
            ConditionStatus::True
        );
        assert_eq!(says(&waits, ConditionType::Healthy).1, "OwnedByAnother");
        assert_eq!(says(&waits, ConditionType::Loaded).1, "Loaded");
        assert_eq!(says(&waits, ConditionType::Watched).1, "InSync");
    }

    #[test]
    fn a_refused_revision_explains_why_and_the_previous_stays_active() {
        let mut entry = refusing(KnownReason::PolicyInvalid, &"x".repeat(2_000));
        entry.place.generation = Some(5);
        let status = status(&entry, None, NOW, &[]);
        let (holds, reason, message) = says(&status, ConditionType::Loaded);
        assert_eq!((holds, reason), (ConditionStatus::False, "PolicyInvalid"));
        assert!(message.len() <= MAX_MESSAGE && message.ends_with('…'));
        assert_eq!(
            says(&status, ConditionType::Stalled).0,
            ConditionStatus::True
        );
        assert_eq!(
            (
                status.observed_generation,
                status.revision.unwrap().generation
            ),
            (Some(5), Some(4))
        );
    }

    #[test]
    fn a_policy_that_was_never_active_has_only_unknown_conditions() {
        let never = CatalogueEntry {
            revision: None,
            ..refusing(KnownReason::ComponentNotFound, "no such file")
        };
        let status = status(&never, None, NOW, &[]);
        assert_eq!(
            says(&status, ConditionType::Loaded),
            (ConditionStatus::False, "ComponentNotFound", "no such file")
        );
        for kind in [ConditionType::Watched, ConditionType::Healthy] {
            let (holds, reason, _) = says(&status, kind);
            assert_eq!(
                (holds, reason),
                (ConditionStatus::Unknown, "ComponentNotFound")
            );
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let failed = [(
            "a",
            State::Failed,
            Reason::from(KnownReason::GuestTrapped),
            NOW,
        )];
        let first = status(&entry(), None, NOW, &failed);
        let same = status(&entry(), Some(&first), NOW + 60, &failed);
        assert_eq!(same, first, "time alone changes nothing");
        let mended = status(
            &entry(),
            Some(&same),
            NOW + 90,
            &[("a", State::Applied, KnownReason::InSync.into(), NOW + 90)],
        );
        let times: Vec<_> = mended
            .conditions
            .iter()
            .map(|one| (one.kind, one.last_transition_time.as_str()))
            .collect();
        let (then, now) = (format_rfc3339(NOW), format_rfc3339(NOW + 90));
        assert_eq!(
            times,
            [
                (ConditionType::Ready, &*now),
                (ConditionType::Loaded, &*then),
                (ConditionType::Watched, &*then),
                (ConditionType::Healthy, &*now)
            ]
        );
    }

    #[test]
    fn the_size_of_a_status_is_bounded() {
        let names: Vec<_> = (0..5_000)
            .map(|at| {
                (
                    format!("n{at:04}"),
                    declared(&format!("Reason{}", at % 100)),
                )
            })
            .collect();
        let all: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, (name, reason))| {
                (
                    name.as_str(),
                    if at % 2 == 0 {
                        State::Failed
                    } else {
                        State::Waiting
                    },
                    reason.clone(),
                    1,
                )
            })
            .collect();
        let status = status(&entry(), None, NOW, &all);
        let bytes = serde_json::to_string(&status).unwrap().len();
        assert!(
            status.top_failures.len() == MAX_TOP_FAILURES
                && status.waiting.len() == MAX_LISTED
                && bytes < 16 * 1024,
            "{bytes} bytes"
        );
    }

    #[test]
    fn reports_failing_watches_once() {
        let watch_errors = ["Service", "Secret", "Service", "Pod"].map(watch);
        let status = watching(&entry(), &watch_errors);
        assert_eq!(status.watch_errors, [watch("Secret"), watch("Service")]);
        assert_eq!(
            says(&status, ConditionType::Watched),
            (
                ConditionStatus::False,
                "ReadForbidden",
                "Secret of v1 on local: not allowed (and 1 more)"
            )
        );
    }

    #[test]
    fn an_unreadable_file_may_hold_inputs_of_any_policy() {
        let file = |cluster: &str| WatchStatus {
            cluster: cluster.to_owned(),
            api_version: String::new(),
            reason: "ManifestInvalid".to_owned(),
            message: "a\u{1b}.yaml: document 1, line 2: not UTF-8".to_owned(),
            ..watch("")
        };
        let status = watching(&entry(), &[file("local"), file("elsewhere")]);
        assert_eq!(
            says(&status, ConditionType::Watched),
            (
                ConditionStatus::False,
                "ManifestInvalid",
                "local: a\\u001b.yaml: document 1, line 2: not UTF-8"
            )
        );
        assert_eq!(status.watch_errors.len(), 1);
    }

    #[test]
    fn every_reason_of_waiting_has_an_expected_time() {
        use crate::failure::Class;
        for word in KnownReason::ALL
            .iter()
            .filter(|word| Class::of(**word) == Class::Waiting)
        {
            assert!(
                expected_seconds(State::Waiting, &(*word).into()).is_some(),
                "{}",
                word.as_str()
            );
        }
        assert_eq!(
            expected_seconds(State::Held, &KnownReason::Suspended.into()),
            None
        );
        assert_eq!(
            expected_seconds(State::Held, &declared("NotAvailable")),
            Some(3_600)
        );
        assert_eq!(
            expected_seconds(State::Held, &declared("PrimaryPaused")),
            None
        );
    }
}
