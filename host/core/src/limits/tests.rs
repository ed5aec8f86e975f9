//! The limits of a fleet as values: what passes, what is withheld, and what outlives an agent that ends at any point.

use super::*;
use crate::object::Object;
use crate::plan::Step;
use crate::sample::hosted;
use serde_json::{Value, json};
use std::collections::BTreeSet;

mod property;

const ADDED: Limited = Limited::ElementsAdded;
const REMOVED: Limited = Limited::ElementsRemoved;
const PRUNED: Limited = Limited::ObjectsPruned;

/// A fleet under one policy, and what outlives its agent.
pub(super) struct Fleet {
    pub(super) ledger: Ledger,
    kept: Option<LimitRecord>,
    /// How often the record was written.
    writes: usize,
    pub(super) limits: PolicyLimits,
    pub(super) primaries: u32,
    revision: Digest,
    pub(super) now: i64,
    /// How often what was approved ended with its revision, of each kind.
    ended: BTreeMap<Limited, u32>,
    /// Who was changed, in which interval, and how often an approval had ended by then.
    changed: BTreeSet<(i64, u32, Limited, String)>,
}

impl Fleet {
    pub(super) fn new(primaries: u32, limits: Value) -> Self {
        Self {
            ledger: Ledger::found(None),
            kept: None,
            writes: 0,
            limits: PolicyLimits::of(limits),
            primaries,
            revision: Digest::of_bytes(b"one"),
            now: 1_000,
            ended: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// What a reconcile does: records when that is asked for, and changes what is admitted.
    fn ask(&mut self, name: &str, kinds: &[Limited]) -> Result<LimitedKinds, Failure> {
        let (primary, kinds) = (Arc::new(hosted(name)), kinds.iter().copied().collect());
        loop {
            let verdict = self.ledger.admit(&Ask {
                primary: &primary,
                kinds: &kinds,
                limits: &self.limits,
                revision: self.revision,
                primaries: self.primaries,
                now_seconds: self.now,
            });
            match verdict {
                LimitVerdict::Admitted(counted) => {
                    let since = self
                        .ledger
                        .record()
                        .map_or(0, |record| record.started_seconds);
                    // One that counted before may be changed again.
                    let is_new = |kind: &&Limited| {
                        let is_limited = self.limits.is_limited(**kind, self.primaries);
                        let same = |one: &(i64, u32, Limited, String)| {
                            (one.0, one.2, &*one.3) == (since, **kind, name)
                        };
                        counted.contains(kind) || is_limited && !self.changed.iter().any(same)
                    };
                    let each = kinds.iter().filter(is_new);
                    let each: Vec<_> = each
                        .map(|kind| (since, of(&self.ended, *kind), *kind, name.to_owned()))
                        .collect();
                    self.changed.extend(each);
                    return Ok(counted);
                }
                LimitVerdict::Withheld(failure) => return Err(failure),
                LimitVerdict::Reserve(record) => {
                    assert_ne!(Some(&record), self.ledger.record(), "it would ask for ever");
                    self.kept = Some(record.clone());
                    self.writes += 1;
                    self.ledger.recorded(record);
                }
            }
        }
    }

    /// How many of these primaries are admitted.
    pub(super) fn add(&mut self, names: std::ops::Range<u32>) -> usize {
        self.change(names, ADDED)
    }

    /// The same for another kind of change.
    pub(super) fn change(&mut self, names: std::ops::Range<u32>, kind: Limited) -> usize {
        let admitted = names.filter(|name| self.ask(&name.to_string(), &[kind]).is_ok());
        admitted.count()
    }

    pub(super) fn look(&mut self, approved: Option<&str>) -> LimitResult {
        self.ledger.check(&LimitCheck {
            policy: "p",
            limits: &self.limits,
            revision: self.revision,
            approved,
            complete: true,
            primaries: self.primaries,
            listed: true,
            now_seconds: self.now,
        })
    }

    fn let_pass(&mut self, more: u32) {
        let (more, limits) = ([(ADDED, more)].into(), self.limits.clone());
        self.ledger
            .let_pass(&more, &self.revision, &limits, self.now);
    }

    /// Another revision becomes active; that an approval ended is recorded, and returned.
    pub(super) fn swap(&mut self, name: &[u8]) -> Option<LimitRecord> {
        let approved = self.ledger.record().map(|record| record.approved.clone());
        self.revision = Digest::of_bytes(name);
        self.ledger.begin(&self.revision, &self.limits);
        let ended = self.ledger.unrecorded && self.ledger.is_stopping();
        let over = self.look(None).over.filter(|_| ended);
        self.kept = over.clone().or(self.kept.take());
        if over.as_ref().is_some_and(|record| !record.reached) {
            let approved = approved.unwrap_or_default().into_iter();
            for (kind, _) in approved.filter(|(_, more)| *more > 0) {
                *self.ended.entry(kind).or_default() += 1;
            }
        }
        over
    }

    fn restart(&mut self) {
        self.ledger = Ledger::found(self.kept.clone());
    }

    /// The agent ends in order, and starts; returns the kinds with a mark if that was recorded.
    pub(super) fn end(&mut self) -> Vec<String> {
        let settled = self.ledger.settle(self.now);
        let written = settled.clone();
        self.kept = settled.or(self.kept.take());
        self.restart();
        let marks = written.map(|record| json!(record)["marks"].take());
        let marks = marks.and_then(|marks| marks.as_object().cloned());
        marks
            .unwrap_or_default()
            .into_iter()
            .map(|(kind, _)| kind)
            .collect()
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += seconds;
    }

    pub(super) fn status(&self) -> &LimitsStatus {
        self.ledger.status().unwrap()
    }
}

fn object(body: Value) -> Object {
    let reference = hosted("a");
    Object {
        reference,
        version: String::new(),
        body,
    }
}

fn update(changed: &[&str]) -> Step {
    Step::Update {
        desired: object(json!({})),
        changed: changed.iter().map(|path| (*path).to_owned()).collect(),
    }
}

fn patch(before: &Value, after: &Value) -> LimitedKinds {
    let step = Step::Patch {
        reference: hosted("a"),
        version: String::new(),
        fields: vec![("spec.taints".to_owned(), after.clone())],
    };
    kinds(
        &[step],
        &[object(json!({"spec": {"taints": before}})).into()],
    )
}

#[test]
fn new_objects_and_new_labels_have_no_limit() {
    let create = Step::Create {
        desired: object(json!({})),
    };
    let labels = update(&["metadata.labels.a", "metadata.annotations.b", "metadata"]);
    assert_eq!(kinds(&[create, labels], &[]), LimitedKinds::new());
    assert_eq!(
        kinds(&[update(&["metadata.labels.a", "data.k"])], &[]),
        [Limited::ObjectsChanged].into()
    );
    let delete = Step::Delete {
        reference: hosted("a"),
        version: String::new(),
        uid: String::new(),
        why: String::new(),
    };
    assert_eq!(
        kinds(&[delete, update(&["data.k"])], &[]),
        [Limited::ObjectsChanged, PRUNED].into()
    );
}

#[test]
fn fields_of_objects_of_others_count_as_those_of_the_primary_do() {
    let other = Object {
        reference: hosted("b"),
        ..object(json!({"spec": {"taints": [{"key": "a"}]}}))
    };
    let step = Step::Patch {
        reference: hosted("b"),
        version: String::new(),
        fields: vec![("spec.taints".to_owned(), Value::Null)],
    };
    let before = [object(json!({"spec": {}})).into(), other.into()];
    assert_eq!(kinds(&[step], &before), [REMOVED].into());
}

#[test]
fn a_replaced_element_counts_as_added() {
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let one = json!([taint("a", "NoSelect")]);
    assert_eq!(patch(&json!(null), &one), [ADDED].into());
    assert_eq!(patch(&one, &json!(null)), [REMOVED].into());
    assert_eq!(
        patch(&one, &json!([taint("a", "NoSelectIfNew")])),
        [ADDED].into()
    );
    assert_eq!(
        patch(&one, &json!([taint("b", "NoSelect")])),
        [ADDED, REMOVED].into()
    );
}

#[test]
fn withholds_what_is_beyond_the_larger_of_count_and_share() {
    for (primaries, most) in [(40, 12), (20, 10), (11, 10)] {
        let mut fleet = Fleet::new(primaries, json!({}));
        assert_eq!(fleet.add(0..primaries), most, "of {primaries}");
        let failure = fleet.ask("late", &[ADDED]).unwrap_err();
        assert_eq!(failure.reason, KnownReason::LimitReached.into());
        assert!(
            failure
                .message
                .contains(&format!("elementsAdded {most} of {most}, for {primaries}")),
            "{failure}"
        );
        assert_eq!(failure.ask_again_at, Some(1_600));
    }
}

#[test]
fn a_fleet_no_larger_than_the_number_is_not_limited_and_nothing_is_recorded() {
    for (primaries, limits) in [
        (10, json!({})),
        (5_000, json!({"elementsAdded": {"percent": 100}})),
        (5_000, json!({"elementsAdded": {"count": 5_000}})),
    ] {
        let mut fleet = Fleet::new(primaries, limits);
        assert_eq!(fleet.add(0..primaries), primaries as usize);
        assert_eq!((fleet.writes, fleet.ledger.record()), (0, None));
    }
    let off = PolicyLimits::of(json!({"elementsAdded": {"percent": 100}}));
    assert!(off.are_off(&[ADDED].into()) && !off.are_off(&[ADDED, REMOVED].into()));
    let mut none = Fleet::new(0, json!({"elementsAdded": {}}));
    assert_eq!(none.add(0..1), 0, "no share of nothing");
}

#[test]
fn a_primary_counts_once_in_an_interval_for_each_kind() {
    let mut fleet = Fleet::new(40, json!({}));
    for _ in 0..50 {
        assert!(fleet.ask("a", &[ADDED]).is_ok());
        assert!(fleet.ask("a", &[ADDED, REMOVED]).is_ok());
    }
    assert_eq!(fleet.add(0..40), 11);
}

#[test]
fn all_of_a_plan_is_withheld_or_nothing() {
    let mut fleet = Fleet::new(40, json!({"objectsPruned": {"count": 1}}));
    assert!(fleet.ask("a", &[PRUNED]).is_ok());
    assert!(fleet.ask("b", &[ADDED, PRUNED]).is_err());
    assert_eq!(fleet.add(0..40), 12, "b took nothing");
    assert!(
        fleet.ask("b", &[]).is_ok(),
        "what is no longer wanted is not withheld"
    );
    assert!(fleet.ask("c", &[ADDED]).is_err());
    fleet.look(None);
    assert_eq!(
        (fleet.status().withheld, fleet.status().primaries.len()),
        (29, 10)
    );
}

#[test]
fn a_limit_is_recorded_in_few_parts_before_it_is_used() {
    let mut fleet = Fleet::new(10_000, json!({}));
    for name in 0..4_000 {
        if fleet.add(name..name + 1) == 1 {
            let reserved = fleet.kept.as_ref().unwrap().reserved[&ADDED];
            assert!(reserved > name, "{name} before it was recorded");
        }
    }
    assert_eq!((fleet.changed.len(), fleet.writes), (3_000, 6));
}

#[test]
fn another_interval_begins_with_the_first_change_after_the_last() {
    let mut fleet = Fleet::new(40, json!({"intervalSeconds": 60}));
    assert_eq!(fleet.add(0..12), 12);
    fleet.now += 59;
    assert_eq!(fleet.add(0..12), 12, "these count already");
    fleet.now += 41;
    assert_eq!(fleet.add(12..24), 12);
    assert_eq!(fleet.kept.as_ref().unwrap().started_seconds, 1_100);
}

#[test]
fn an_accident_does_not_go_on_in_another_interval() {
    let mut fleet = Fleet::new(40, json!({}));
    assert_eq!(fleet.add(0..32), 12);
    for _ in 0..10 {
        fleet.now += 600;
        assert!(fleet.look(None).released.is_empty());
        assert_eq!(fleet.add(0..32), 12);
    }
    assert_eq!(fleet.changed.len(), 12);
    // The hub sees most of them again.
    for name in 0..30 {
        let undone: &[_] = if name < 12 { &[REMOVED] } else { &[] };
        assert!(fleet.ask(&name.to_string(), undone).is_ok());
    }
    let released = fleet.look(None).released;
    assert_eq!(released.len(), 2, "the rest goes on by itself");
    assert_eq!((fleet.add(30..32), fleet.ledger.withholds()), (2, false));
}

#[test]
fn within_the_interval_room_is_used_at_once() {
    let mut fleet = Fleet::new(40, json!({}));
    assert_eq!(fleet.add(0..13), 12);
    assert!(fleet.look(None).released.is_empty(), "there is no room");
    fleet
        .ledger
        .give_back(&Arc::new(hosted("3")), &[ADDED].into());
    assert_eq!(fleet.look(None).released.len(), 1);
    assert!(fleet.look(None).released.is_empty(), "once");
    assert_eq!(fleet.add(12..13), 1);
    fleet.limits = PolicyLimits::of(json!({"elementsAdded": {"count": 10, "percent": 50}}));
    assert_eq!(fleet.add(13..40), 8, "the limit was raised");
}

#[test]
fn an_approved_plan_passes_beside_the_limit_and_once() {
    let mut fleet = Fleet::new(100, json!({}));
    fleet.let_pass(50);
    assert_eq!(fleet.add(0..100), 80, "the plan and the limit");
    fleet.restart();
    assert_eq!(fleet.add(80..100), 0, "it is recorded");
    let mut fleet = Fleet::new(100, json!({}));
    fleet.let_pass(50);
    fleet.add(0..10);
    fleet.now += 601;
    assert_eq!(fleet.add(0..100), 30, "not in another interval");
}

#[test]
fn what_was_approved_for_a_revision_ends_with_it() {
    let approved = || {
        let mut fleet = Fleet::new(100, json!({}));
        fleet.let_pass(50);
        assert_eq!(fleet.add(0..20), 20);
        fleet
    };
    // Rolled back: the limit, without what was approved and what was changed under it.
    let mut fleet = approved();
    let ended = fleet.swap(b"two").unwrap();
    assert_eq!((ended.approved.len(), &ended.approved_for), (0, &None));
    assert_eq!(fleet.swap(b"two"), None, "once");
    assert_eq!(fleet.add(20..100), 30);
    // It comes back: nobody approved it again.
    assert_eq!(fleet.swap(b"one"), None);
    assert_eq!(fleet.add(20..100), 30, "these count already");
    // Killed at once: the record still names the revision that it was approved for.
    let mut fleet = approved();
    fleet.revision = Digest::of_bytes(b"two");
    fleet.restart();
    assert_eq!(fleet.add(20..100), 30);
    // Another plan is approved: that much passes beside the limit, no more.
    let mut fleet = approved();
    fleet.swap(b"two");
    fleet.let_pass(10);
    assert_eq!(fleet.add(20..100), 40);
}

#[test]
fn an_accident_goes_on_under_another_revision_and_needs_an_approval_of_its_own() {
    let mut fleet = Fleet::new(100, json!({}));
    fleet.let_pass(20);
    assert_eq!(fleet.add(0..100), 50);
    fleet.look(None);
    let digest = fleet.status().approve.clone();
    let ended = fleet.swap(b"two").unwrap();
    assert_eq!((ended.reached, ended.reserved[&ADDED]), (true, 30));
    assert_eq!(fleet.add(50..100), 0, "the limit is used up");
    assert_eq!(
        fleet.look(Some(&digest)).approved,
        None,
        "approved for the revision before"
    );
    fleet.now += 6_000;
    assert!(fleet.look(None).released.is_empty());
    let digest = fleet.status().approve.clone();
    assert_eq!(fleet.look(Some(&digest)).approved, Some(digest));
    assert_eq!(fleet.add(50..100), 50);
}

#[test]
fn an_approval_lets_exactly_so_many_more_pass_once() {
    let mut fleet = Fleet::new(40, json!({}));
    fleet.add(0..32);
    let looked = fleet.look(None);
    assert!(looked.reached && !fleet.look(None).reached, "reached once");
    let digest = fleet.status().approve.clone();
    assert_eq!(fleet.look(Some("sha256:0")).approved, None);
    fleet.now += 6_000;
    let looked = fleet.look(Some(&digest));
    assert_eq!(
        (looked.approved.as_ref(), looked.released.len()),
        (Some(&digest), 20)
    );
    // Others are first, and eight more come: twenty pass.
    assert_eq!(fleet.add(32..40), 8);
    assert_eq!(fleet.add(12..32), 12);
    assert_eq!(fleet.look(Some(&digest)).approved, None);
    assert_eq!(fleet.add(12..32), 12, "not again");
    assert_ne!(fleet.status().approve, digest);
    fleet.restart();
    assert_eq!(fleet.add(0..40), 0);
    assert_eq!(
        fleet.look(Some(&digest)).approved,
        None,
        "not after a restart"
    );
    fleet.kept = None;
    fleet.restart();
    fleet.add(0..32);
    fleet.look(None);
    let looked = fleet.look(Some(&digest));
    assert_eq!(looked.approved, None, "not for another interval");
}

#[test]
fn what_was_approved_while_no_agent_ran_passes_at_the_next_start() {
    let mut fleet = Fleet::new(40, json!({}));
    fleet.add(0..32);
    fleet.look(None);
    let digest = fleet.status().approve.clone();
    fleet.restart();
    assert_eq!(fleet.add(12..32), 0);
    assert_eq!(fleet.look(Some(&digest)).released.len(), 20);
    assert_eq!(fleet.add(12..40), 20);
}

#[test]
fn the_digest_is_that_of_what_the_status_shows() {
    let mut fleet = Fleet::new(40, json!({}));
    let mut digests = BTreeSet::new();
    for end in 13..40 {
        fleet.add(0..end);
        fleet.look(None);
        let status = fleet.status();
        let change = &status.changes[0];
        assert_eq!(
            (change.done, change.most, change.withheld),
            (12, 12, end - 12)
        );
        digests.insert(status.approve.clone());
    }
    assert_eq!(digests.len(), 27);
    assert!(!fleet.ledger.offers("sha256:0") && fleet.ledger.offers(&fleet.status().approve));
}

#[test]
fn a_reached_limit_stays_reached_over_a_restart() {
    let mut fleet = Fleet::new(40, json!({}));
    fleet.add(0..32);
    fleet.now += 6_000;
    fleet.restart();
    assert_eq!(fleet.add(0..32), 0, "it is not known yet what is withheld");
    fleet.look(None);
    assert_eq!((fleet.add(0..32), fleet.status().withheld), (0, 32));
    // The same, but nothing is withheld any more.
    fleet.restart();
    let over = fleet.look(None).over.unwrap();
    assert!(!over.reached);
    assert_eq!(fleet.add(0..3), 3);
}

#[test]
fn a_limit_that_was_used_up_withholds_nothing_after_a_restart() {
    let mut fleet = Fleet::new(40, json!({}));
    assert_eq!(fleet.add(0..12), 12);
    fleet.restart();
    fleet.now += 600;
    assert_eq!(fleet.add(0..12), 12);
}

#[test]
fn that_nothing_is_withheld_any_more_is_recorded() {
    let mut fleet = Fleet::new(40, json!({}));
    assert_eq!(fleet.add(0..13), 12);
    assert_eq!(fleet.look(None).over, None);
    assert!(fleet.ask("12", &[]).is_ok());
    let over = fleet.look(None).over;
    assert_eq!(over.as_ref(), fleet.ledger.record(), "the interval goes on");
    assert!(!over.unwrap().reached && fleet.kept.as_ref().unwrap().reached);
    assert_eq!(fleet.look(None).over, None, "once");
}

#[test]
fn a_killed_agent_loses_at_most_a_part_of_the_limit() {
    let mut fleet = Fleet::new(1_000, json!({}));
    assert_eq!(fleet.add(0..61), 61);
    fleet.restart();
    assert_eq!(fleet.add(61..1_000), 300 - 120);
}

#[test]
fn what_another_replica_recorded_counts() {
    let mut fleet = Fleet::new(40, json!({}));
    fleet.add(0..3);
    let mut other = fleet.kept.clone().unwrap();
    fleet.ledger.found_again(other.clone(), fleet.now);
    assert_eq!(fleet.add(0..3), 3, "it is our own");
    other.reserved.insert(ADDED, 10);
    fleet.ledger.found_again(other.clone(), fleet.now);
    assert_eq!(fleet.add(3..40), 2);
    other.started_seconds -= 1;
    other.reserved.clear();
    fleet.ledger.found_again(other.clone(), fleet.now);
    // Our own write of it got no answer, and another interval began since.
    fleet.ledger.recorded(other);
    assert_eq!(fleet.add(5..6), 0, "it gives nothing back");
}

#[test]
fn a_record_reads_back_and_holds_no_name() {
    let mut fleet = Fleet::new(40, json!({}));
    fleet.add(0..13);
    let mut record = fleet.kept.unwrap();
    assert_eq!(LimitRecord::parse(&record.text()), Ok(record.clone()));
    assert_eq!(
        record.text(),
        r#"{"startedSeconds":1000,"endsSeconds":1600,"primaries":40,"reserved":{"elementsAdded":12},"approved":{},"reached":true}"#
    );
    assert!(LimitRecord::parse("{}").is_err() && LimitRecord::parse("").is_err());
    assert!(!record.is_old(90_000) && record.is_old(3_000_000));
    record.reached = false;
    assert!(!record.is_old(1_600) && record.is_old(90_000));
}

#[test]
fn a_record_without_room_for_its_marks_keeps_its_numbers_and_makes_no_limit_wider() {
    // A hundred were changed, and two hundred more may be.
    let mut fleet = Fleet::new(1_000, json!({}));
    fleet.add(0..100);
    fleet.end();
    let record = fleet.kept.unwrap();
    let whole = record.text().len();
    for (room, admitted) in [(whole, 300), (whole - 1, 299), (whole - 16, 298), (0, 200)] {
        let text = record.text_within(room);
        assert!(text.len() <= room || !text.contains("marks"), "{text}");
        let kept = LimitRecord::parse(&text).unwrap();
        assert_eq!((&kept.reserved, kept.reached), (&record.reserved, false));
        let mut fleet = Fleet::new(1_000, json!({}));
        fleet.ledger = Ledger::found(Some(kept));
        assert_eq!(fleet.add(0..300), admitted, "{room}");
    }
}
