//! The primaries for which a guest fails by its own fault: since when, what becomes of what was applied, and what is
//! kept of that beyond the end of a process.

use crate::digest::Digest;
use crate::failure::Failure;
use crate::reference::ObjectRef;
use crate::time::format_rfc3339;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use transom_api::policy::{FailureMode, OnFailureSpec};
use transom_api::status::FailingStatus;
use transom_api::{KnownReason, Reason};

/// The most primaries of a policy that are kept, the longest failing first. For more of them, time counts anew after a
/// restart.
const KEPT: usize = 4_096;
/// How many hexadecimal digits tell the primaries of one policy apart.
pub(crate) const MARK: usize = 12;

/// Whether a guest is to blame when a reconcile ends for this reason, whatever its inputs are.
pub fn is_fault(reason: KnownReason) -> bool {
    use KnownReason as K;
    matches!(
        reason,
        K::GuestTimedOut
            | K::GuestMemoryExceeded
            | K::GuestTablesExceeded
            | K::GuestStackOverflowed
            | K::GuestTrapped
            | K::AnswerTooLarge
            | K::LogFlooded
            | K::HostCallsExceeded
            | K::ContractBroken
            | K::TooManyRounds
            | K::ReadNotGranted
            | K::WriteNotGranted
            | K::ValueNotGranted
            | K::ServerNotGranted
            | K::CANotGranted
            | K::InsecureNotGranted
            | K::ProxyNotGranted
            | K::ServerNameNotGranted
            | K::CredentialNotGranted
            | K::TaintKeyNotGranted
            | K::UnknownReference
            | K::InvalidTargetName
            | K::Stale
            | K::Withdrawn
    )
}

/// The reason of a reconcile that ended by a fault of its guest.
pub fn fault(reason: &Reason) -> Option<KnownReason> {
    reason.known().filter(|reason| is_fault(*reason))
}

/// The reason of a reconcile that certainly ended by a fault of its guest, after so many failures in a row. A call may
/// take too long once because the machine is busy: that counts once the retry fails as well.
pub fn proven(reason: &Reason, failures: u32) -> Option<KnownReason> {
    let waits = |reason: &KnownReason| *reason == KnownReason::GuestTimedOut && failures < 2;
    fault(reason).filter(|reason| !waits(reason))
}

/// The reason that counts against a revision that is new: a proven fault of its guest, or another plan than was tried.
pub fn counts(reason: &Reason, failures: u32) -> Option<KnownReason> {
    let diverged = reason.known().filter(|one| *one == KnownReason::Diverged);
    diverged.or_else(|| proven(reason, failures))
}

/// Since when a guest fails for a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailingSince {
    /// In seconds since 1970.
    pub since_seconds: i64,
    /// When what was applied is stale, or withdrawn, in seconds since 1970; `None` when never.
    pub expires_seconds: Option<i64>,
}

/// What becomes of what was applied for a primary while its guest fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It stays; until this time in seconds since 1970, or without an end.
    Hold(Option<i64>),
    /// It stays, and is stale.
    Stale,
    /// It is taken back.
    Withdraw,
}

/// What becomes of what was applied for a primary whose guest has failed since a time, both in seconds since 1970.
pub fn reaction(spec: &OnFailureSpec, since_seconds: i64, now_seconds: i64) -> Reaction {
    match (expires(spec, since_seconds), spec.mode) {
        (None, _) => Reaction::Hold(None),
        (Some(expires), _) if now_seconds < expires => Reaction::Hold(Some(expires)),
        (Some(_), FailureMode::Withdraw) => Reaction::Withdraw,
        (Some(_), FailureMode::HoldLast | FailureMode::Fail) => Reaction::Stale,
    }
}

/// When what was applied expires, in seconds since 1970; `None` when it never does.
pub fn expires(spec: &OnFailureSpec, since_seconds: i64) -> Option<i64> {
    let expires = since_seconds.saturating_add(i64::from(spec.stale_after_seconds));
    (spec.mode != FailureMode::Fail).then_some(expires)
}

/// `Stale`: the guest fails for this reason, and what was applied stays. `kept` says why it was not taken back, where
/// that was due.
pub fn stale(why: &Failure, kept: Option<&Failure>) -> Failure {
    let before = kept.map(|kept| format!("{}; ", kept.message));
    let objects = kept.into_iter().flat_map(|kept| kept.objects.clone());
    expired(KnownReason::Stale, why, &before.unwrap_or_default()).about(objects)
}

/// `Withdrawn`: the guest fails for this reason, and what was applied was taken back.
pub fn withdrawn(why: &Failure) -> Failure {
    expired(KnownReason::Withdrawn, why, "")
}

/// The class stays that of the failure: it is tried again as before.
fn expired(word: KnownReason, why: &Failure, before: &str) -> Failure {
    let message = format!("{before}{}: {}", why.reason, why.message);
    Failure::new(why.class, word.into(), &message)
        .about(why.objects.iter().cloned())
        .until(why.ask_again_at)
}

/// Since when the guest of a policy fails, for each primary for which it does. A failure lasts until the guest answers,
/// or the primary is gone; other failures meanwhile, as of an API server, say nothing about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failing {
    /// The uid of the policy, if it is an object.
    uid: Option<String>,
    /// In seconds since 1970.
    since: BTreeMap<Arc<ObjectRef>, i64>,
    /// Failures that an earlier process or another replica stored, for primaries whose guest was not asked since.
    earlier: BTreeMap<String, i64>,
    /// The primaries whose guest answered before the stored record was read.
    answered: HashSet<Arc<ObjectRef>>,
    /// Whether what is kept was read.
    known: bool,
    /// Whether the stored record differs from this value.
    unsaved: bool,
}

impl Failing {
    /// Says which policy it is. Another one that was made under the name of a former one has other guests: nothing that
    /// is known, or stored, of the former one counts.
    pub fn belongs_to(&mut self, uid: Option<&str>) {
        if self.uid.as_deref() != uid {
            *self = Self {
                uid: uid.map(str::to_owned),
                ..Self::default()
            };
        }
    }

    /// Whether what is kept was read since this replica leads.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Another replica may have led meanwhile: what it kept is to be read.
    pub fn unknown(&mut self) {
        self.known = false;
        self.answered.clear();
    }

    /// Takes the stored record, which overrides the times in memory: for a primary that is not in it, the time starts
    /// now, because its guest answered another replica or fails for the first time.
    ///
    /// # Errors
    /// When the text is no such record. It counts as none then, and [`Self::text`] is to be written in its place.
    pub fn found(&mut self, text: Option<&str>, now_seconds: i64) -> Result<(), String> {
        let parse = |text| serde_json::from_str::<BTreeMap<i64, Vec<String>>>(text);
        let kept = text.map(parse).transpose();
        let (kept, told) = match kept {
            Ok(kept) => (kept.unwrap_or_default(), Ok(())),
            Err(error) => (BTreeMap::new(), Err(error.to_string())),
        };
        let marks = kept.into_iter();
        let each =
            |(since, marks): (i64, Vec<String>)| marks.into_iter().map(move |mark| (mark, since));
        self.earlier = marks.flat_map(each).collect();
        for primary in std::mem::take(&mut self.answered) {
            let mark = self.mark(&primary);
            self.earlier.remove(&mark);
        }
        for (primary, since) in &mut self.since {
            let mark = mark(self.uid.as_deref(), primary);
            *since = self.earlier.remove(&mark).unwrap_or(now_seconds);
        }
        (self.known, self.unsaved) = (true, self.text().as_deref() != text);
        told
    }

    /// The guest failed for a primary now; returns since when it does, in seconds since 1970.
    pub fn failed(&mut self, primary: &Arc<ObjectRef>, now_seconds: i64) -> i64 {
        let mark = self.mark(primary);
        let earlier = self.earlier.remove(&mark);
        let before = self.since.get(primary).copied();
        // Never later than now: the clock may have been set back.
        let since = before
            .or(earlier)
            .map_or(now_seconds, |at| at.min(now_seconds));
        self.unsaved |= before.or(earlier) != Some(since);
        self.since.insert(Arc::clone(primary), since);
        since
    }

    /// The guest answered for a primary, or that is gone. True when it failed before.
    pub fn answered(&mut self, primary: &Arc<ObjectRef>) -> bool {
        if !self.known {
            self.answered.insert(Arc::clone(primary));
        }
        let mark = || mark(self.uid.as_deref(), primary);
        let earlier = !self.earlier.is_empty() && self.earlier.remove(&mark()).is_some();
        let failed = self.since.remove(primary).is_some() || earlier;
        self.unsaved |= failed;
        failed
    }

    /// Whether anything of earlier is left that [`Self::complete`] would end.
    pub fn awaits(&self) -> bool {
        self.known && !self.earlier.is_empty()
    }

    /// Every primary was reconciled: drops the stored failures left. Their primaries are gone, or not asked about now.
    pub fn complete(&mut self) {
        if self.known {
            self.unsaved |= !self.earlier.is_empty();
            self.earlier.clear();
        }
    }

    /// Whether the guest failed for a primary when it was asked last.
    pub fn is_failing(&self, primary: &ObjectRef) -> bool {
        let is_earlier =
            || !self.earlier.is_empty() && self.earlier.contains_key(&self.mark(primary));
        self.since.contains_key(primary) || is_earlier()
    }

    /// Since when the guest fails for a primary.
    pub fn since(&self, primary: &ObjectRef, spec: &OnFailureSpec) -> Option<FailingSince> {
        let since = *self.since.get(primary)?;
        Some(FailingSince {
            since_seconds: since,
            expires_seconds: expires(spec, since),
        })
    }

    /// Whether [`Self::text`] is to be written.
    pub fn is_unsaved(&self) -> bool {
        self.known && self.unsaved
    }

    /// What was stored is gone: [`Self::text`] is to be written again.
    pub fn lost(&mut self) {
        self.unsaved |= self.text().is_some();
    }

    /// [`Self::text`] was written.
    pub fn saved(&mut self, text: Option<&str>) {
        self.unsaved = self.text().as_deref() != text;
    }

    /// What to keep: by time, the marks of the primaries. No name of an object. `None` when there is nothing.
    pub fn text(&self) -> Option<String> {
        let now = self
            .since
            .iter()
            .map(|(primary, at)| (*at, self.mark(primary)));
        let earlier = self.earlier.iter().map(|(mark, at)| (*at, mark.clone()));
        let mut all: Vec<(i64, String)> = now.chain(earlier).collect();
        all.sort();
        all.truncate(KEPT);
        let mut by_time: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (at, mark) in all {
            by_time.entry(at).or_default().push(mark);
        }
        (!by_time.is_empty()).then(|| json!(by_time).to_string())
    }

    fn mark(&self, primary: &ObjectRef) -> String {
        mark(self.uid.as_deref(), primary)
    }

    /// As a policy's status shows it; `None` when the guest fails for no primary.
    pub fn status(&self, spec: &OnFailureSpec, now_seconds: i64) -> Option<FailingStatus> {
        let first = self.since.values().min()?;
        let ends = self.since.values().filter_map(|at| expires(spec, *at));
        let (over, ahead): (Vec<i64>, Vec<i64>) = ends.partition(|end| *end <= now_seconds);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Some(FailingStatus {
            primaries: count(self.since.len()),
            expired: count(over.len()),
            since: format_rfc3339(*first),
            expires: ahead.into_iter().min().map(format_rfc3339),
        })
    }
}

/// Tells a primary of this very policy from the others, without its name.
pub(crate) fn mark(uid: Option<&str>, primary: &ObjectRef) -> String {
    let of = match uid {
        Some(uid) => json!([uid, primary]),
        None => json!(primary),
    };
    let hex = Digest::of(&of).hex();
    hex.chars().take(MARK).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;
    use crate::sample::hosted;
    use proptest::prelude::*;

    const NOW: i64 = 1_000;

    fn primary(name: &str) -> Arc<ObjectRef> {
        Arc::new(hosted(name))
    }

    fn spec(mode: FailureMode, stale_after_seconds: u32) -> OnFailureSpec {
        OnFailureSpec {
            mode,
            stale_after_seconds,
        }
    }

    /// What another process finds.
    fn restarted(failing: &Failing, now: i64) -> Failing {
        let mut other = Failing::default();
        other.found(failing.text().as_deref(), now).unwrap();
        other
    }

    #[test]
    fn a_call_that_took_too_long_once_is_no_fault_yet() {
        let counts = |reason: KnownReason, failures| proven(&reason.into(), failures).is_some();
        assert!(!counts(KnownReason::GuestTimedOut, 1));
        assert!(counts(KnownReason::GuestTimedOut, 2));
        assert!(counts(KnownReason::GuestTrapped, 1));
        assert!(!counts(KnownReason::ReadFailed, 5));
    }

    #[test]
    fn holds_until_the_time_is_over_and_then_does_what_the_mode_says() {
        use FailureMode::{Fail, HoldLast, Withdraw};
        for (mode, after, now, expected) in [
            (HoldLast, 60, NOW + 59, Reaction::Hold(Some(NOW + 60))),
            (HoldLast, 60, NOW + 60, Reaction::Stale),
            (HoldLast, 0, NOW, Reaction::Stale),
            (Withdraw, 60, NOW + 59, Reaction::Hold(Some(NOW + 60))),
            (Withdraw, 60, NOW + 60, Reaction::Withdraw),
            (Withdraw, 0, NOW, Reaction::Withdraw),
            (Fail, 0, NOW, Reaction::Hold(None)),
            (Fail, 60, i64::MAX, Reaction::Hold(None)),
            (
                Withdraw,
                u32::MAX,
                i64::MIN,
                Reaction::Hold(Some(NOW + i64::from(u32::MAX))),
            ),
        ] {
            let reacted = reaction(&spec(mode, after), NOW, now);
            assert_eq!(reacted, expected, "{mode:?} {after} {now}");
        }
    }

    #[test]
    fn a_failure_lasts_until_the_guest_answers() {
        let (mut failing, a) = (Failing::default(), primary("a"));
        assert_eq!(failing.failed(&a, NOW), NOW);
        assert_eq!(failing.failed(&a, NOW + 50), NOW);
        assert!(failing.answered(&a) && !failing.answered(&a));
        assert_eq!(failing.failed(&a, NOW + 60), NOW + 60);
        // The clock was set back.
        assert_eq!(failing.failed(&a, NOW), NOW);
    }

    #[test]
    fn time_goes_on_after_a_restart_and_not_for_others() {
        let (mut failing, a, b) = (Failing::default(), primary("a"), primary("b"));
        failing.found(None, NOW).unwrap();
        failing.failed(&a, NOW);
        assert!(failing.is_unsaved());
        let mut again = restarted(&failing, NOW + 500);
        assert!(again.since.is_empty(), "it was not asked yet");
        assert_eq!(again.text(), failing.text(), "and is still kept");
        assert_eq!(again.failed(&a, NOW + 500), NOW);
        assert_eq!(again.failed(&b, NOW + 500), NOW + 500);
        let mut third = restarted(&again, NOW + 600);
        assert!(third.answered(&b), "it answers after the restart");
        // Also when it answers before the record can be read.
        let mut late = Failing::default();
        late.answered(&b);
        late.found(again.text().as_deref(), NOW + 600).unwrap();
        assert_eq!(late.failed(&b, NOW + 700), NOW + 700);
        assert_eq!(late.failed(&a, NOW + 700), NOW);
        assert_eq!(third.text(), failing.text());
        third.complete();
        assert_eq!(third.text(), None, "the primary is gone");
        assert!(third.is_unsaved());
    }

    #[test]
    fn what_another_replica_kept_counts_rather_than_what_is_remembered() {
        let (mut ours, a, b) = (Failing::default(), primary("a"), primary("b"));
        ours.found(None, NOW).unwrap();
        ours.failed(&a, NOW);
        ours.failed(&b, NOW);
        // It led meanwhile; its guest answered for both, and failed again for one.
        let mut theirs = Failing::default();
        theirs.failed(&a, NOW + 100);
        ours.unknown();
        assert!(!ours.is_unsaved(), "nothing of theirs is overwritten");
        ours.found(theirs.text().as_deref(), NOW + 200).unwrap();
        assert_eq!((ours.since[&a], ours.since[&b]), (NOW + 100, NOW + 200));
    }

    #[test]
    fn a_policy_that_is_made_again_under_a_name_takes_over_no_time() {
        let (mut former, a) = (Failing::default(), primary("a"));
        former.belongs_to(Some("1"));
        former.found(None, NOW).unwrap();
        former.failed(&a, NOW);
        let found = |uid| {
            let mut anew = Failing::default();
            anew.belongs_to(uid);
            anew.found(former.text().as_deref(), NOW + 500).unwrap();
            anew.failed(&a, NOW + 500)
        };
        assert_eq!(found(Some("1")), NOW);
        assert_eq!(found(Some("2")), NOW + 500);
        assert_eq!(found(None), NOW + 500);
        // Without a kill between.
        former.belongs_to(Some("1"));
        assert!(former.is_failing(&a));
        former.belongs_to(Some("2"));
        assert!(!former.is_failing(&a) && !former.is_known());
    }

    #[test]
    fn a_record_that_is_none_counts_as_absent_and_is_replaced() {
        for text in ["", "7", "{\"x\": []}", "{\"1\": [2]}", "[]"] {
            let (mut failing, a) = (Failing::default(), primary("a"));
            failing.failed(&a, NOW);
            assert!(failing.found(Some(text), NOW + 5).is_err(), "{text}");
            assert!(failing.is_known() && failing.is_unsaved(), "{text}");
            assert_eq!(failing.failed(&a, NOW + 9), NOW + 5, "{text}");
            failing.saved(failing.text().as_deref());
            assert!(!failing.is_unsaved());
        }
    }

    #[test]
    fn the_status_counts_and_names_the_next_time() {
        let mut failing = Failing::default();
        assert_eq!(failing.status(&spec(FailureMode::HoldLast, 60), NOW), None);
        for (name, at) in [("a", 0), ("b", 30), ("c", 50)] {
            failing.failed(&primary(name), at);
        }
        let seen = |mode, now| {
            let status = failing.status(&spec(mode, 60), now).unwrap();
            (
                status.primaries,
                status.expired,
                status.since,
                status.expires,
            )
        };
        let (first, second) = (format_rfc3339(0), format_rfc3339(90));
        let hold = FailureMode::HoldLast;
        assert_eq!(seen(hold, 60), (3, 1, first.clone(), Some(second)));
        assert_eq!(seen(hold, 110), (3, 3, first.clone(), None));
        assert_eq!(seen(FailureMode::Fail, 110), (3, 0, first, None));
    }

    #[test]
    fn an_expired_failure_says_what_fails_and_is_tried_as_before() {
        let why = Failure::known(KnownReason::GuestTimedOut, "too slow").until(Some(7));
        let kept = Failure::known(KnownReason::StillNeeded, "s is kept until k is gone");
        let kept = kept.about([hosted("k")]);
        let stale = stale(&why, Some(&kept));
        assert_eq!(stale.reason, KnownReason::Stale.into());
        assert_eq!((stale.class, stale.ask_again_at), (Class::Missing, Some(7)));
        assert_eq!(
            stale.message,
            "s is kept until k is gone; GuestTimedOut: too slow"
        );
        assert_eq!(stale.objects, kept.objects);
        assert_eq!(withdrawn(&why).message, "GuestTimedOut: too slow");
    }

    #[test]
    fn what_is_kept_is_bounded_and_names_nothing() {
        let mut failing = Failing::default();
        for at in 0..KEPT + 10 {
            let at = i64::try_from(at).unwrap();
            failing.failed(&primary(&format!("secret-{at}")), at);
        }
        let text = failing.text().unwrap();
        assert!(text.len() < 256 * 1024 && !text.contains("secret"));
        let mut again = restarted(&failing, 9_000);
        assert_eq!(again.failed(&primary("secret-0"), 9_000), 0);
        assert_eq!(
            again.failed(&primary(&format!("secret-{KEPT}")), 9_000),
            9_000
        );
    }

    proptest! {
        /// Killed at any point, with what was written last: never earlier than it failed, and no time begins anew for
        /// what was written.
        #[test]
        fn a_kill_at_any_instant_never_shortens_the_time(
            steps in prop::collection::vec((0u8..3, 0u8..4, 1i64..50), 1..60)
        ) {
            let (mut failing, mut kept, mut now) = (Failing::default(), None::<String>, 0);
            let mut began: BTreeMap<u8, i64> = BTreeMap::new();
            failing.found(None, now).unwrap();
            for (what, who, later) in steps {
                now += later;
                let one = primary(&who.to_string());
                match what {
                    0 => {
                        let since = failing.failed(&one, now);
                        prop_assert!(since >= *began.entry(who).or_insert(now));
                    }
                    1 => {
                        failing.answered(&one);
                        began.remove(&who);
                        // Killed before this is written, it asks again at once, and the guest answers again.
                        kept = failing.text();
                    }
                    _ => {
                        if later % 2 == 0 {
                            kept = failing.text();
                            failing.saved(kept.as_deref());
                        }
                        failing = Failing::default();
                        failing.found(kept.as_deref(), now).unwrap();
                    }
                }
            }
        }
    }
}
