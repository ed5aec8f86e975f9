//! Counts how often another writer changed what we wrote: a whole object, or fields of a user's object. Stops the
//! writes of a policy to an object that another writer keeps changing.

mod all;

use super::kept::{Kept, KeptForms};
use crate::digest::Digest;
use crate::failure::Failure;
use crate::managed_keys;
use crate::object::Object;
use crate::reference::ObjectRef;
use crate::stamp::Stamp;
pub use all::Contentions;
use serde_json::{Value, json};
use transom_api::KnownReason;

/// Foreign changes within this many seconds count together.
const WINDOW_SECONDS: i64 = 600;
/// This many foreign changes are too many.
const MAX_CHANGES: usize = 3;
/// So often the object may be gone: making it anew overwrites nothing, and people delete what they want made anew.
const MAX_LOSSES: usize = 10;

/// The most places of one object that are remembered, and in how many of them the server keeps another form: a guest
/// chooses how many there are, and all are kept for each of its primaries.
pub(super) const MAX_PLACES: usize = 1_024;

/// Fingerprints of what a policy writes of an object, by place: by field, or one for a whole object. It must not leave
/// the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldFingerprints(Vec<(Box<str>, Digest)>);

impl From<Digest> for FieldFingerprints {
    fn from(whole: Digest) -> Self {
        Self(vec![("".into(), whole)])
    }
}

impl FromIterator<(Box<str>, Digest)> for FieldFingerprints {
    fn from_iter<T: IntoIterator<Item = (Box<str>, Digest)>>(places: T) -> Self {
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_unstable();
        Self(places)
    }
}

impl FieldFingerprints {
    fn of(&self, place: &str) -> Option<Digest> {
        let there = self.at(place).and_then(|at| self.0.get(at));
        there.map(|(_, digest)| *digest)
    }

    fn at(&self, place: &str) -> Option<usize> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(place));
        at.ok()
    }

    /// The part that differs from what was said of the same places.
    fn unlike(&self, other: &Self) -> Self {
        let differs = |place: &str, digest| other.of(place).is_some_and(|said| said != digest);
        let unlike = self
            .0
            .iter()
            .filter(|(place, digest)| differs(place, *digest));
        Self(unlike.cloned().collect())
    }

    /// The part that is about some places.
    fn only(&self, is_of: impl Fn(&str) -> bool) -> Self {
        let of = self.0.iter().filter(|(place, _)| is_of(place));
        Self(of.cloned().collect())
    }

    /// Sets what is said of a place, if anything is.
    fn put(&mut self, place: &str, said: Digest) {
        let there = self.at(place).and_then(|at| self.0.get_mut(at));
        if let Some((_, there)) = there {
            *there = said;
        }
    }

    /// With what was said later. Of very many places only the first of the later ones are remembered.
    fn then(self, later: Self) -> Self {
        let earlier = self.0.into_iter();
        let earlier: Vec<_> = earlier
            .filter(|(place, _)| later.of(place).is_none())
            .collect();
        match earlier.len() + later.0.len() > MAX_PLACES {
            true => Self(later.0.into_iter().take(MAX_PLACES).collect()),
            false => earlier.into_iter().chain(later.0).collect(),
        }
    }
}

/// One policy's writes to one object since the agent's start. In memory only. A change by others that the policy
/// accepts is no contention: a later write of the field is a new decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    left: FieldFingerprints,
    planned: Option<FieldFingerprints>,
    seen: FieldFingerprints,
    /// When others changed it.
    changed_at: Vec<i64>,
    /// When it was gone.
    lost_at: Vec<i64>,
    /// When a write was planned last, in seconds since 1970.
    at: i64,
    /// What the server made of the fields that were written of an object of others.
    forms: KeptForms,
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
        before: impl Into<FieldFingerprints>,
        after: impl Into<FieldFingerprints>,
        now_seconds: i64,
    ) -> Result<(), Failure> {
        let before = before.into();
        self.settle(&before);
        self.observe(&before, now_seconds);
        self.at = now_seconds;
        self.planned = Some(after.into());
        let Some(until) = self.until() else {
            return Ok(());
        };
        let (did, times) = match self.lost_at.len() < MAX_LOSSES {
            true => ("changed", "three"),
            false => ("removed", "ten"),
        };
        let message = format!(
            "another writer {did} {target} {times} times in ten minutes; the agent leaves it as it is"
        );
        let failure = Failure::known(KnownReason::Contended, message);
        Err(failure.about([target.clone()]).until(Some(until)))
    }

    /// A write whose answer was lost, and which is found in place, is no change by others.
    fn settle(&mut self, there: &FieldFingerprints) {
        if self.planned.as_ref() == Some(there) {
            self.written();
        }
    }

    /// Counts a change when a place is not as we left it; each foreign state counts once. A place that is written for
    /// the first time does not count.
    fn observe(&mut self, before: &FieldFingerprints, now_seconds: i64) {
        let foreign = before.unlike(&self.left);
        if !foreign.0.is_empty() && self.seen != foreign {
            let times = match foreign.of("") == Some(whole(None)) {
                true => &mut self.lost_at,
                false => &mut self.changed_at,
            };
            times.push(now_seconds);
            self.seen = foreign;
        }
        // Changes in the future are dropped: the clock was set back, and their age is unknown.
        for times in [&mut self.changed_at, &mut self.lost_at] {
            times.retain(|at| (0..WINDOW_SECONDS).contains(&now_seconds.saturating_sub(*at)));
        }
    }

    /// Records that the permitted write is in place. Call it after every successful write.
    pub fn written(&mut self) {
        if let Some(planned) = self.planned.take() {
            self.left = std::mem::take(&mut self.left).then(planned);
            self.seen = FieldFingerprints::default();
        }
    }

    /// The same, with what the server made of it: that is how the object was left.
    fn written_as(&mut self, kept: &Kept) {
        self.written();
        self.keep(kept);
    }

    /// Records that these fields of the permitted write are in place, and that the rest of it failed: what others did
    /// to the rest stays counted.
    fn part_written_as(&mut self, fields: &[(String, Value)], kept: &Kept) {
        let is_of = |place: &str| fields.iter().any(|(path, _)| is_place_of(place, path));
        if let Some(planned) = &self.planned {
            let part = planned.only(is_of);
            self.left = std::mem::take(&mut self.left).then(part);
            self.seen.0.retain(|(place, _)| !is_of(place));
        }
        self.keep(kept);
    }

    /// Takes in what the server made of a write.
    fn keep(&mut self, kept: &Kept) {
        if let Some(whole) = kept.whole {
            self.left.put("", whole);
            return;
        }
        self.forms.then(kept);
        // Lists that are compared by their elements have places of other names.
        self.forms.retain(|path| self.left.of(path).is_some());
        for (place, there) in kept.places() {
            self.left.put(place, there);
        }
    }

    /// Takes in which places are as the policy wants them now, whoever wrote that.
    fn agree(&mut self, before: &FieldFingerprints, after: &FieldFingerprints) {
        for (place, left) in &mut self.left.0 {
            let there = before.of(place);
            if let Some(there) = there.filter(|_| there == after.of(place)) {
                *left = there;
            }
        }
    }

    /// Forgets what was left of places.
    pub(super) fn forget(&mut self, is_past: impl Fn(&str, Digest) -> bool) {
        self.left.0.retain(|(place, left)| !is_past(place, *left));
    }

    /// Until when to leave the target alone, in seconds since 1970; `None` when it is not contended.
    fn until(&self) -> Option<i64> {
        let of = |times: &[i64], most| {
            let oldest = times.len().checked_sub(most)?;
            Some(times.get(oldest)?.saturating_add(WINDOW_SECONDS))
        };
        let changed = of(&self.changed_at, MAX_CHANGES);
        changed.max(of(&self.lost_at, MAX_LOSSES))
    }
}

/// Whether a place is that of a field, or of elements of it.
fn is_place_of(place: &str, path: &str) -> bool {
    let rest = place.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
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
    use super::all::{CountedWrite, SWEPT_FROM};
    use super::*;
    use crate::plan::Step;
    use crate::sample::{key, object, target};
    use crate::work::Key;

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
        assert_eq!(after(&[(None, 0), (None, 1), (Some("x"), 2)]), None);
        let lost = |times: i64| (0..times).map(|at| (None, at)).collect::<Vec<_>>();
        assert_eq!(
            after(&lost(9)),
            None,
            "people delete what is to be made anew"
        );
        assert_eq!(after(&lost(10)), Some(600));
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

    /// Fingerprints of fields and their values.
    fn said(fields: &[(&str, &str)]) -> FieldFingerprints {
        let one = |(place, value): &(&str, &str)| ((*place).into(), Digest::of(&json!(value)));
        fields.iter().map(one).collect()
    }

    #[test]
    fn a_field_that_is_written_for_the_first_time_is_no_change_of_others() {
        let mut contention = Contention::default();
        let mut put = |before: &[(&str, &str)], after: &[(&str, &str)], at| {
            let permitted = contention.permit(&target("demo"), said(before), said(after), at);
            contention.written();
            permitted.is_ok()
        };
        // Each answer names another field, and some are named again later.
        for at in 0..20 {
            let place = (at / 2).to_string();
            let (before, after) = match at % 2 {
                0 => ("", "a"),
                _ => ("a", "b"),
            };
            assert!(put(&[(&place, before)], &[(&place, after)], at));
        }
        // What others do to one of them counts, whatever is named beside it.
        for (beside, permitted) in [("x", true), ("y", true), ("z", false)] {
            let (before, after) = ([("0", beside), (beside, "")], [("0", "b"), (beside, "c")]);
            assert_eq!(put(&before, &after, 30), permitted, "{beside}");
        }
    }

    #[test]
    fn each_primary_has_its_own_fields_of_one_object() {
        let (one, other) = (key("one"), key("other"));
        let contentions = Contentions::default();
        let put = |key: &Key, place: &str, value: &str, there: &str| {
            let (before, after) = (said(&[(place, there)]), said(&[(place, value)]));
            contentions.of_fields(key, &target("shared"), |contention| {
                let permitted = contention.permit(&target("shared"), before, after, 0);
                contention.written();
                permitted.is_ok()
            })
        };
        let fields = || contentions.counted().fields.len();
        for _ in 0..10 {
            assert!(put(&one, "a", "1", "1") && put(&other, "b", "2", "2"));
        }
        // Of one field that both want, one of them lets go.
        let fights = (0..10).take_while(|_| put(&one, "c", "1", "2") && put(&other, "c", "2", "1"));
        assert_eq!(fights.count(), 3);
        // An object that went and came back is a new one.
        contentions.gone(&one, &target("shared"));
        assert_eq!(fields(), 1);
        contentions.of_fields(&one, &target("shared"), |_| {});
        contentions.remove(&one);
        assert_eq!(fields(), 1);
        contentions.remove_policy("external");
        assert_eq!(fields(), 0);
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_no_change_by_others() {
        let (key, target) = (key("one"), target("demo"));
        let there = object(target.clone(), json!({"data": {"kubeconfig": "newer"}}));
        for is_seen in [true, false] {
            let contentions = Contentions::default();
            let put = |before: Option<&str>, after: &str| {
                contentions.of_whole(&key, &target, |contention| {
                    let (before, after) = (fingerprint(before), fingerprint(Some(after)));
                    contention.permit(&target, before, after, 0).unwrap();
                    contention.changed_at.len()
                })
            };
            assert_eq!(put(None, "ours"), 0);
            contentions.of_whole(&key, &target, Contention::written);
            // This one is in place, but nobody was told.
            assert_eq!(put(Some("ours"), "newer"), 0);
            if is_seen {
                contentions.settle(&key, &target, Some(&there));
            }
            assert_eq!(put(Some("newer"), "newest"), 0);
            assert_eq!(put(Some("of others"), "newest"), 1);
        }
    }

    #[test]
    fn of_a_write_that_failed_in_part_only_what_was_written_is_ours() {
        let (key, target) = (key("one"), target("demo"));
        let contentions = Contentions::default();
        let (label, condition) = ("metadata.labels[\"x\"]", "status.conditions[Ours]");
        let put = |there: [&str; 2], ours: &str| {
            contentions.of_fields(&key, &target, |contention| {
                let before = said(&[(label, there[0]), (condition, there[1])]);
                let after = said(&[(label, ours), (condition, ours)]);
                let permitted = contention.permit(&target, before, after, 0);
                permitted.is_ok().then_some(contention.changed_at.len())
            })
        };
        let wrote = |fields: &[&str], is_whole: bool| {
            let fields = fields.iter().map(|path| ((*path).to_owned(), json!(0)));
            let step = Step::Patch {
                reference: target.clone(),
                version: "1".to_owned(),
                fields: fields.collect(),
            };
            match is_whole {
                true => contentions.wrote(&key, &step, &Kept::default()),
                false => contentions.wrote_part(&key, &step, &Kept::default()),
            }
        };
        assert_eq!(put(["", ""], "a"), Some(0));
        wrote(&[label, "status.conditions"], true);
        // Again and again the guest wants something else, and only the label is written. Nobody else changes anything.
        let mut there = "a".to_owned();
        for at in 0..5 {
            let wanted = at.to_string();
            assert_eq!(put([&there, "a"], &wanted), Some(0), "{wanted}");
            wrote(&[label], false);
            there = wanted;
        }
        // What another writer did to the condition counts once, also when the label is written again.
        for _ in 0..5 {
            assert_eq!(put([&there, "theirs"], "b"), Some(1));
            wrote(&[label], false);
            "b".clone_into(&mut there);
        }
        // So does each change of the label, although the condition fails every time.
        assert_eq!(put(["theirs", "theirs"], "b"), Some(2));
        wrote(&[label], false);
        assert_eq!(put(["theirs", "theirs"], "b"), None);
    }

    #[test]
    fn a_primary_that_is_made_anew_starts_from_nothing() {
        let (one, other) = (key("one"), key("other"));
        let contentions = Contentions::default();
        // Each time the agent made the object, and finds that it was removed.
        let remade = |key: &Key| {
            contentions.of_whole(key, &target("demo"), |contention| {
                contention.written();
                let (before, after) = (fingerprint(None), fingerprint(Some("ours")));
                contention.permit(&target("demo"), before, after, 0).is_ok()
            })
        };
        for primary in [&one, &other] {
            let made = (0..20).take_while(|_| remade(primary)).count();
            assert_eq!(made, MAX_LOSSES);
        }
        contentions.remove(&one);
        assert!(remade(&one) && !remade(&other));
    }

    #[test]
    fn forgets_fields_that_nobody_else_changed_when_there_are_many() {
        let mut contentions = CountedWrite::default();
        for at in 0..10_000 {
            let contention = contentions.fields.of(&key("one"), &target(&at.to_string()));
            let permitted = contention.permit(&target("x"), said(&[]), said(&[("a", "b")]), 0);
            assert!(permitted.is_ok());
            contention.written();
        }
        assert!(contentions.fields.len() <= SWEPT_FROM);
    }

    #[test]
    fn forgets_writes_that_never_succeed_when_there_are_many_and_they_are_quiet() {
        let mut contentions = CountedWrite::default();
        for at in 0..10_000_u32 {
            // Of each object one write is tried, and fails.
            let (object, now) = (target(&at.to_string()), i64::from(at));
            let (before, after) = (said(&[]), said(&[("a", "b")]));
            let fields = contentions.fields.of(&key("one"), &object);
            assert!(fields.permit(&object, before, after, now).is_ok());
            let whole = contentions.whole.of(&key("one"), &object);
            let (before, after) = (fingerprint(None), fingerprint(Some("ours")));
            assert!(whole.permit(&object, before, after, now).is_ok());
        }
        let most = SWEPT_FROM + 2 * usize::try_from(WINDOW_SECONDS).unwrap();
        assert!(contentions.fields.len() <= most && contentions.whole.len() <= most);
    }

    #[test]
    fn what_is_contended_stays_so_although_many_others_are_written() {
        let mut contentions = CountedWrite::default();
        let (key, contended) = (key("one"), target("contended"));
        for at in 0..4 {
            planned(contentions.whole.of(&key, &contended), Some("x"), at);
            planned(contentions.whole.of(&key, &contended), Some("y"), at);
        }
        for at in 0..10_000 {
            planned(
                contentions.whole.of(&key, &target(&at.to_string())),
                None,
                500,
            );
        }
        assert!(planned(contentions.whole.of(&key, &contended), Some("x"), 590).is_some());
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
