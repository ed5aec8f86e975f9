//! The kept revisions of a policy, as objects of kind ControllerRevision. As for a DaemonSet, the one with the highest
//! number is active, unless it is barred; one with number 0 never was.

mod lost;
mod patch;
mod published;
mod record;

use crate::digest::Digest;
use crate::object::Object;
use crate::plan::Step;
use crate::projection::path;
pub use patch::merge_patch;
pub use record::{Manifests, RevisionRecord};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use transom_api::labels;
use transom_api::status::RevisionStatus;

/// Group and version of the objects.
pub const OBJECT_API_VERSION: &str = "apps/v1";
/// Kind of the objects.
pub const OBJECT_KIND: &str = "ControllerRevision";
/// Maximum length of a message that is kept, in bytes.
const MESSAGE: usize = 1024;
/// How much of the manifests of earlier revisions is kept, in bytes of JSON: an agent reads all of them at its start.
const KEPT_BYTES: usize = 1 << 20;

/// The digest of a revision.
pub(super) fn id(identity: &Digest, decide: &str, trigger: Option<&str>) -> Digest {
    Digest::of(&json!([identity.to_string(), decide, trigger]))
}

/// The kept revisions of one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The latest first.
    records: Vec<RevisionRecord>,
}

/// Where records are kept.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// The uid of the policy, if it is an object.
    pub uid: Option<&'a str>,
}

impl History {
    /// The records of a policy among objects.
    pub fn of(policy: &str, objects: &[Object]) -> Self {
        Self::by_policy(objects).remove(policy).unwrap_or_default()
    }

    /// The records of each policy among objects.
    pub fn by_policy(objects: &[Object]) -> BTreeMap<String, Self> {
        let mut by_policy: BTreeMap<String, Vec<RevisionRecord>> = BTreeMap::new();
        for record in objects.iter().filter_map(RevisionRecord::read) {
            let records = by_policy.entry(record.policy.clone()).or_default();
            records.push(record);
        }
        let ordered = |(policy, records)| (policy, Self::ordered(records));
        by_policy.into_iter().map(ordered).collect()
    }

    /// The history as an agent goes by it that has these builtin components and a policy object with this uid; no uid
    /// for a policy that is no object. For an object only its own records count: those of an earlier object of the same
    /// name go with that, and one without owner may be left of such an object.
    #[must_use]
    pub fn for_agent<'a>(
        mut self,
        uid: Option<&str>,
        builtin: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        self.records
            .retain(|record| uid.is_none() || record.owner.as_deref() == uid);
        self.under(builtin)
    }

    /// What the agent could go on with only as a revision that is barred is barred for it, too. So the revision before
    /// is active, until an agent of another version comes.
    fn under<'a>(mut self, builtin: impl Fn(&str) -> Option<&'a str>) -> Self {
        let bar = |record: &RevisionRecord| {
            let own = || self.find(&record.id_under(&builtin))?.barred.clone();
            record.barred.clone().or_else(own)
        };
        let bars: Vec<_> = self.records.iter().map(bar).collect();
        for (record, bar) in self.records.iter_mut().zip(bars) {
            record.barred = bar;
        }
        self
    }

    /// The digests of the builtin components, by name, of the agent that published this revision as the active one: it
    /// may have another version than this one.
    pub fn builtin_of(&self, published: &RevisionStatus) -> BTreeMap<String, String> {
        let RevisionStatus {
            id,
            decide,
            trigger,
            ..
        } = published;
        let is = |record: &&RevisionRecord| record.is_published_as(id, decide, trigger.as_deref());
        let digests = [Some(decide), trigger.as_ref()].into_iter().flatten();
        let record = self.records.iter().find(is);
        let guests = record.into_iter().flat_map(RevisionRecord::guests);
        let named = guests.zip(digests).filter_map(|((_, guest, _), digest)| {
            Some((record::builtin_name(guest)?, digest.clone()))
        });
        named.collect()
    }

    fn ordered(mut records: Vec<RevisionRecord>) -> Self {
        records.sort_by(|one, other| {
            let order = |one: &RevisionRecord| (one.number, one.created.clone(), one.id);
            order(other).cmp(&order(one))
        });
        Self { records }
    }

    /// The latest first.
    pub fn records(&self) -> &[RevisionRecord] {
        &self.records
    }

    /// Replaces the record of this name; `None` removes it.
    pub fn put(&mut self, name: &str, record: Option<RevisionRecord>) {
        let mut records = std::mem::take(&mut self.records);
        records.retain(|one| one.name() != name);
        records.extend(record);
        *self = Self::ordered(records);
    }

    /// The revisions that are active or were, and may be so again, the latest first.
    pub fn usable(&self) -> impl Iterator<Item = &RevisionRecord> {
        let records = self.records.iter();
        records.filter(|record| record.number > 0 && record.barred.is_none())
    }

    /// The revision that is active: one that is barred is not, so that a bar alone takes it back.
    pub fn active(&self) -> Option<&RevisionRecord> {
        self.usable().next()
    }

    /// The record of a revision.
    pub fn find(&self, id: &Digest) -> Option<&RevisionRecord> {
        self.records.iter().find(|record| record.id == *id)
    }

    /// Whether a revision is barred.
    pub fn is_barred(&self, id: &Digest) -> bool {
        self.find(id).is_some_and(|known| known.barred.is_some())
    }

    /// The revision before the active one that may become active again. Skips what is the active one but for the
    /// version of the agent.
    pub fn previous(&self) -> Option<&RevisionRecord> {
        let active = self.active()?;
        self.usable().find(|record| !record.continues_as(active))
    }

    /// The steps that record a revision as the active one, and remove the oldest beyond `keep`. No step when it is so
    /// already. Carried out in their order, so that the revision before is active until the first one is done.
    pub fn activate(
        &self,
        record: &RevisionRecord,
        place: RecordPlace<'_>,
        keep: u32,
    ) -> Vec<Step> {
        if self.active().is_some_and(|active| active.id == record.id) {
            return Vec::new();
        }
        let number = self.records.first().map_or(0, |latest| latest.number) + 1;
        let known = self.find(&record.id);
        let mut steps = vec![match known {
            Some(known) => {
                let mut fields = vec![("revision".to_owned(), json!(number))];
                let probation = record.probation.map(|one| json!(one.text()));
                fields.extend(probation.map(|text| (annotation(labels::PROBATION), text)));
                if let Some(plan) = &record.plan {
                    fields.push((annotation(labels::PLAN), json!(**plan)));
                    let expected = record.expected.as_deref();
                    fields.push((annotation(labels::EXPECTED), json!(expected)));
                }
                patch(known, place, fields)
            }
            None => Step::Create {
                desired: RevisionRecord {
                    number,
                    ..record.clone()
                }
                .object(place.namespace, place.uid),
            },
        }];
        steps.extend(self.surplus(record, false, place, keep));
        steps
    }

    /// The steps that record what the tags of a kept revision meant when its components were pulled, where that is not
    /// known yet. A tag keeps the meaning that it had first.
    pub fn learn(&self, record: &RevisionRecord, place: RecordPlace<'_>) -> Vec<Step> {
        let known = self.find(&record.id);
        let text = known.and_then(|known| Some((known, known.learns(record)?.text()?)));
        let step = |(known, text): (&RevisionRecord, String)| {
            patch(
                known,
                place,
                vec![(annotation(labels::MANIFESTS), json!(text))],
            )
        };
        text.map(step).into_iter().collect()
    }

    /// Whether the faults of the active revision are still watched at a time in seconds since 1970.
    pub fn is_watched(&self, now_seconds: i64) -> bool {
        let probation = self.active().and_then(|active| active.probation);
        probation.is_some_and(|probation| !probation.is_over(now_seconds))
    }

    /// The steps that forget what was planned for each primary, of all revisions but the active one while that is
    /// watched: it is large, and compared only then.
    pub fn forget_expected(&self, now_seconds: i64, place: RecordPlace<'_>) -> Vec<Step> {
        let watched = self.active().filter(|_| self.is_watched(now_seconds));
        let watched = watched.map(|active| &active.id);
        let all = self.records.iter();
        let surplus = all.filter(|one| one.expected.is_some() && watched != Some(&one.id));
        let forget = |one| {
            patch(
                one,
                place,
                vec![(annotation(labels::EXPECTED), Value::Null)],
            )
        };
        surplus.map(forget).collect()
    }

    /// The steps that make room for a record: they delete the oldest records beyond `keep` or [`KEPT_BYTES`], of the
    /// barred ones or of the others. The record before this one stays, whatever its size. The active one is the latest
    /// that is not barred, so it stays however many are barred. What this one continues is no revision to go back to.
    fn surplus(
        &self,
        record: &RevisionRecord,
        barred: bool,
        place: RecordPlace<'_>,
        keep: u32,
    ) -> Vec<Step> {
        let keep = kept_at_most(keep);
        let others = self.records.iter();
        let others = others.filter(|one| one.id != record.id && one.barred.is_some() == barred);
        let (mut kept, mut bytes) = (0, 0);
        // Without the bar of one version, what another one goes on with would be active again under the first.
        let holds = |one: &RevisionRecord| {
            let mut later = self.records.iter().filter(|later| later.number > 0);
            barred && later.any(|later| later.id != one.id && one.continues_as(later))
        };
        let others = others.filter(|one| !holds(one));
        let surplus = others.filter_map(|one| {
            if !barred && one.continues_as(record) {
                return Some((one, "another version of the agent goes on with it"));
            }
            bytes += json!(&*one.spec).to_string().len();
            kept += 1;
            let is_surplus = kept >= keep || (kept > 1 && bytes > KEPT_BYTES);
            is_surplus.then_some((one, "the history is full"))
        });
        surplus
            .map(|(one, why)| one.delete(place.namespace, why))
            .collect()
    }

    /// The steps that remove these records, if they have no owner: those of a policy that was no object, and what is
    /// left of an object. The others go with their object.
    pub fn delete(&self, namespace: &str, is: impl Fn(&RevisionRecord) -> bool) -> Vec<Step> {
        let mut all: Vec<_> = self.records.iter().collect();
        all.retain(|one| one.owner.is_none() && is(one));
        let steps = all.into_iter();
        steps
            .map(|one| one.delete(namespace, "its policy is gone"))
            .collect()
    }

    /// The steps that bar a revision from becoming active, and say why; and remove the oldest barred ones beyond
    /// `keep`.
    pub fn bar(
        &self,
        record: &RevisionRecord,
        why: &str,
        place: RecordPlace<'_>,
        keep: u32,
    ) -> Vec<Step> {
        let why = why
            .get(..why.floor_char_boundary(MESSAGE))
            .unwrap_or_default();
        let path = annotation(labels::BARRED);
        debug_assert_eq!(path::keys(&path).len(), 3);
        let bar = match self.find(&record.id) {
            Some(known) if known.barred.is_some() => return Vec::new(),
            Some(known) => patch(known, place, vec![(path, json!(why))]),
            None => {
                let barred = RevisionRecord {
                    barred: Some(why.to_owned()),
                    ..record.clone()
                };
                Step::Create {
                    desired: barred.object(place.namespace, place.uid),
                }
            }
        };
        let mut steps = vec![bar];
        steps.extend(self.surplus(record, true, place, keep));
        steps
    }
}

/// How many records are kept, of the barred ones and of the others.
fn kept_at_most(keep: u32) -> usize {
    usize::try_from(keep).unwrap_or(usize::MAX).max(2)
}

/// The path of an annotation.
fn annotation(key: &str) -> String {
    format!("metadata.annotations[\"{key}\"]")
}

fn patch(record: &RevisionRecord, place: RecordPlace<'_>, fields: Vec<(String, Value)>) -> Step {
    Step::Patch {
        reference: record.reference(place.namespace),
        version: record.version.clone(),
        fields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fleet::{FleetPlan, Listed};
    use crate::policy::manifest;
    use crate::rollout::expected::{Expected, Expecting, Mark};
    use crate::rollout::{Probation, identity, short};
    use crate::sample::kubeconfig_manifest;
    use std::sync::Arc;
    use transom_api::policy::{PolicySpec, RollbackSpec};

    const PLACE: RecordPlace<'_> = RecordPlace {
        namespace: "transom",
        uid: Some("u"),
    };

    fn record(settings: i64) -> RevisionRecord {
        record_of(json!({"n": settings}))
    }

    fn record_of(settings: Value) -> RevisionRecord {
        let mut manifest = kubeconfig_manifest();
        manifest["spec"]["guests"]["decide"]["settings"] = settings;
        let spec = manifest::parse(&manifest).unwrap().spec;
        let (decide, trigger) = ("sha256:1".to_owned(), Some("sha256:2".to_owned()));
        RevisionRecord {
            policy: "external".to_owned(),
            id: id(&identity(&spec), &decide, trigger.as_deref()),
            number: 0,
            spec: Arc::new(spec),
            decide,
            trigger,
            manifests: Manifests::default(),
            barred: None,
            created: None,
            probation: None,
            plan: None,
            expected: None,
            owner: None,
            version: String::new(),
        }
    }

    /// Carries out steps on objects.
    fn apply(objects: &mut Vec<Object>, steps: Vec<Step>) {
        for step in steps {
            let target = step.target().clone();
            let at = objects.iter().position(|one| one.reference == target);
            match (step, at) {
                (Step::Create { mut desired }, None) => {
                    desired.version = "1".to_owned();
                    objects.push(desired);
                }
                (
                    Step::Patch {
                        fields, version, ..
                    },
                    Some(at),
                ) => {
                    assert_eq!(version, objects[at].version);
                    objects[at].version += "1";
                    for (path, value) in fields {
                        let mut keys = path::keys(&path);
                        let last = keys.pop().unwrap();
                        let place =
                            (keys.iter()).fold(&mut objects[at].body, |at, key| &mut at[key]);
                        place[last] = value;
                    }
                }
                (Step::Delete { .. }, Some(at)) => drop(objects.remove(at)),
                (step, at) => panic!("{step:?} {at:?}"),
            }
        }
    }

    #[test]
    fn only_bars_that_made_no_room_for_newer_ones_are_lost() {
        let of = |settings: &[i64]| {
            let barred = settings.iter().map(|settings| RevisionRecord {
                barred: Some("it failed".to_owned()),
                number: *settings,
                ..record(*settings)
            });
            History::ordered(barred.collect())
        };
        let lost = |newer: &[i64], keep| {
            let newer = of(newer);
            let before = of(&[1, 2, 3]);
            let lost = before.bars_lost_in(&newer, keep);
            lost.map(|one| one.number).collect::<Vec<_>>()
        };
        assert_eq!(lost(&[], 3), [3, 2, 1]);
        assert_eq!(lost(&[2], 2), [3]);
        assert_eq!(lost(&[2, 3, 4], 3), [0; 0], "the oldest made room");
        assert_eq!(lost(&[1, 2, 3], 9), [0; 0]);
    }

    #[test]
    fn a_probation_is_kept_and_that_of_the_last_activation_counts() {
        let mut objects = Vec::new();
        for (settings, faults) in [(1, 3), (2, 4), (1, 5)] {
            let new = RevisionRecord {
                probation: Some(Probation::new(1_000, faults, RollbackSpec::default())),
                ..record(settings)
            };
            let steps = History::of("external", &objects).activate(&new, PLACE, 10);
            apply(&mut objects, steps);
            let history = History::of("external", &objects);
            let kept = history.active().unwrap().probation;
            assert_eq!(kept, new.probation);
        }
    }

    #[test]
    fn a_plan_is_kept_with_its_revision_and_each_primary_only_while_it_is_watched() {
        let mut objects = Vec::new();
        let plan = FleetPlan::of("external", [], Listed::default());
        let history = |objects: &[Object]| History::of("external", objects);
        for (settings, asked) in [(1, 1), (2, 2), (1, 3)] {
            let mark = Mark { asked, planned: 7 };
            let expecting = Expecting {
                expected: Expected::of(1_000, [mark].into_iter()),
                probation: Probation::new(1_000, 0, RollbackSpec::default()),
            };
            let new = record(settings).with(&plan, &expecting);
            let steps = history(&objects).activate(&new, PLACE, 10);
            apply(&mut objects, steps);
            let steps = history(&objects).forget_expected(1_599, PLACE);
            apply(&mut objects, steps);
            let kept = history(&objects);
            assert_eq!(kept.active().unwrap().expecting(), Some(expecting));
            let others = kept.records().iter().filter(|one| one.id != new.id);
            assert!(
                others
                    .into_iter()
                    .all(|one| one.expecting().is_none() && one.plan.is_some())
            );
        }
        let steps = history(&objects).forget_expected(1_600, PLACE);
        assert_eq!(steps.len(), 1);
        apply(&mut objects, steps);
        assert_eq!(history(&objects).active().unwrap().expecting(), None);
        assert!(history(&objects).forget_expected(1_600, PLACE).is_empty());
    }

    #[test]
    fn what_a_tag_meant_first_is_kept_with_the_revision() {
        let pulled = |decide: Option<&str>, trigger: Option<&str>| RevisionRecord {
            manifests: Manifests {
                decide: decide.map(str::to_owned),
                trigger: trigger.map(str::to_owned),
            },
            ..record(1)
        };
        let mut objects = Vec::new();
        let mut learn = |record: &RevisionRecord| {
            let history = History::of("external", &objects);
            let mut steps = history.activate(record, PLACE, 10);
            steps.extend(history.learn(record, PLACE));
            apply(&mut objects, steps.clone());
            let history = History::of("external", &objects);
            assert!(history.learn(record, PLACE).is_empty());
            (steps.len(), history.active().unwrap().manifests.clone())
        };
        // One that an earlier agent has kept learns it, part by part, and never anew.
        let nothing = Manifests::default();
        assert_eq!(learn(&record(1)), (1, nothing));
        let half = pulled(Some("sha256:a"), None);
        assert_eq!(learn(&half), (1, half.manifests.clone()));
        let whole = pulled(Some("sha256:moved"), Some("sha256:b"));
        let known = pulled(Some("sha256:a"), Some("sha256:b")).manifests;
        assert_eq!(learn(&whole), (1, known.clone()));
        assert_eq!(learn(&record(1)), (0, known));
        // A new one is kept with it.
        let object = half.object("transom", None);
        assert_eq!(
            object.annotation(labels::MANIFESTS),
            Some(r#"{"decide":"sha256:a"}"#)
        );
        assert_eq!(
            record(1)
                .object("transom", None)
                .annotation(labels::MANIFESTS),
            None
        );
    }

    #[test]
    fn the_latest_activated_revision_is_active_and_the_oldest_goes() {
        let mut objects = Vec::new();
        let history = |objects: &[Object]| History::of("external", objects);
        let active = |objects: &[Object]| history(objects).active().map(|one| one.id);
        assert_eq!(active(&objects), None);
        for settings in [1, 2, 3, 1] {
            let steps = history(&objects).activate(&record(settings), PLACE, 10);
            apply(&mut objects, steps);
            assert_eq!(active(&objects), Some(record(settings).id));
            assert!(
                history(&objects)
                    .activate(&record(settings), PLACE, 10)
                    .is_empty()
            );
        }
        let numbers: Vec<_> = history(&objects)
            .records()
            .iter()
            .map(|one| one.number)
            .collect();
        assert_eq!(numbers, [4, 3, 2]);
        assert_eq!(
            history(&objects).previous().map(|one| one.id),
            Some(record(3).id)
        );
        let steps = history(&objects).activate(&record(4), PLACE, 2);
        apply(&mut objects, steps);
        let kept: Vec<_> = history(&objects)
            .records()
            .iter()
            .map(|one| one.id)
            .collect();
        assert_eq!(kept, [record(4).id, record(1).id]);
    }

    #[test]
    fn large_revisions_push_out_older_ones_but_not_the_one_before() {
        let mut objects = Vec::new();
        let mut kept = |text: usize| {
            let new = record_of(json!({"text": "x".repeat(text)}));
            let steps = History::of("external", &objects).activate(&new, PLACE, 10);
            apply(&mut objects, steps);
            History::of("external", &objects).records().len()
        };
        let third = KEPT_BYTES / 3;
        assert_eq!([1, third, third + 1].map(&mut kept), [1, 2, 3]);
        assert_eq!([third + 2, third + 3].map(&mut kept), [4, 3], "of three");
        assert_eq!([KEPT_BYTES, KEPT_BYTES + 1].map(&mut kept), [3, 2]);
    }

    #[test]
    fn a_barred_revision_says_why_and_is_not_the_previous_one() {
        let mut objects = Vec::new();
        for settings in [1, 2, 3] {
            let steps = History::of("external", &objects).activate(&record(settings), PLACE, 10);
            apply(&mut objects, steps);
        }
        for (settings, why) in [(2, "it trapped"), (7, "two answers")] {
            let steps = History::of("external", &objects).bar(&record(settings), why, PLACE, 10);
            apply(&mut objects, steps);
        }
        let history = History::of("external", &objects);
        assert!(history.bar(&record(2), "again", PLACE, 10).is_empty());
        let barred = |settings: i64| history.find(&record(settings).id).unwrap().barred.clone();
        assert_eq!(barred(2).as_deref(), Some("it trapped"));
        assert_eq!(barred(7).as_deref(), Some("two answers"));
        assert_eq!(history.previous().map(|one| one.id), Some(record(1).id));
        assert_eq!(history.active().map(|one| one.id), Some(record(3).id));
    }

    #[test]
    fn a_bar_alone_takes_the_active_revision_back() {
        let mut objects = Vec::new();
        let history = |objects: &[Object]| History::of("external", objects);
        for settings in [1, 2, 3] {
            let steps = history(&objects).activate(&record(settings), PLACE, 10);
            apply(&mut objects, steps);
        }
        let steps = history(&objects).bar(&record(3), "it trapped", PLACE, 10);
        apply(&mut objects, steps);
        let kept = history(&objects);
        assert_eq!(kept.active().map(|one| one.id), Some(record(2).id));
        assert_eq!(kept.previous().map(|one| one.id), Some(record(1).id));
        assert!(kept.activate(&record(2), PLACE, 10).is_empty());
        // The next one comes after the barred one.
        let steps = kept.activate(&record(4), PLACE, 10);
        apply(&mut objects, steps);
        let kept = history(&objects);
        assert_eq!(kept.active().map(|one| one.number), Some(4));
        assert_eq!(kept.previous().map(|one| one.id), Some(record(2).id));
    }

    #[test]
    fn bars_push_out_the_oldest_bars_and_no_revision_that_was_active() {
        let mut objects = Vec::new();
        let history = |objects: &[Object]| History::of("external", objects);
        for settings in [1, 2] {
            let steps = history(&objects).activate(&record(settings), PLACE, 2);
            apply(&mut objects, steps);
        }
        for (index, settings) in [11, 12, 13].into_iter().enumerate() {
            let steps = history(&objects).bar(&record(settings), "two answers", PLACE, 2);
            apply(&mut objects, steps);
            let last = objects.last_mut().unwrap();
            let time = format!("2026-01-01T00:00:{index:02}Z");
            last.body["metadata"]["creationTimestamp"] = json!(time);
        }
        let kept: Vec<_> = history(&objects)
            .records()
            .iter()
            .map(|one| one.id)
            .collect();
        let expected = [2, 1, 13, 12].map(|settings| record(settings).id);
        assert_eq!(kept, expected);
        // Another active revision pushes out one that was active.
        let steps = history(&objects).activate(&record(3), PLACE, 2);
        apply(&mut objects, steps);
        assert!(history(&objects).find(&record(13).id).is_some());
        assert!(history(&objects).find(&record(1).id).is_none());
    }

    #[test]
    fn the_active_revision_stays_however_many_after_it_are_barred() {
        let mut objects = Vec::new();
        let history = |objects: &[Object]| History::of("external", objects);
        for settings in [1, 2, 3, 4] {
            let steps = history(&objects).activate(&record(settings), PLACE, 2);
            apply(&mut objects, steps);
            if settings > 1 {
                let steps = history(&objects).bar(&record(settings), "it trapped", PLACE, 2);
                apply(&mut objects, steps);
            }
            let active = history(&objects).active().map(|one| one.id);
            assert_eq!(active, Some(record(1).id));
        }
        // The oldest bar went.
        assert!(history(&objects).find(&record(2).id).is_none());
        assert_eq!(history(&objects).records().len(), 3);
        let steps = history(&objects).activate(&record(5), PLACE, 2);
        apply(&mut objects, steps);
        let previous = history(&objects).previous().map(|one| one.id);
        assert_eq!(previous, Some(record(1).id));
    }

    #[test]
    fn a_policy_in_a_file_removes_no_record_of_an_object_of_the_same_name() {
        let mut objects = Vec::new();
        let steps = History::default().activate(&record(1), PLACE, 10);
        apply(&mut objects, steps);
        let of_file = RecordPlace { uid: None, ..PLACE };
        let steps = History::of("external", &objects).activate(&record(2), of_file, 10);
        apply(&mut objects, steps);
        let steps = History::of("external", &objects).delete(PLACE.namespace, |_| true);
        apply(&mut objects, steps);
        let left = History::of("external", &objects);
        let left: Vec<_> = left.records().iter().map(|one| one.id).collect();
        assert_eq!(left, [record(1).id]);
    }

    #[test]
    fn records_of_an_earlier_object_of_the_same_name_do_not_count() {
        let mut objects = Vec::new();
        let steps = History::default().activate(&record(1), PLACE, 10);
        apply(&mut objects, steps);
        let counts = |objects: &[Object], uid| {
            let history = History::of("external", objects).for_agent(uid, |_| None);
            history.active().is_some()
        };
        let of = |uid| counts(&objects, uid);
        assert_eq!(
            [PLACE.uid, None, Some("other")].map(of),
            [true, true, false]
        );
        // As `kubectl delete --cascade=orphan` leaves it, or a backup.
        let meta = objects[0].body["metadata"].as_object_mut().unwrap();
        meta.remove("ownerReferences").unwrap();
        let of = |uid| counts(&objects, uid);
        assert_eq!(
            [PLACE.uid, None, Some("other")].map(of),
            [false, true, false]
        );
    }

    #[test]
    fn an_object_that_was_changed_or_is_not_ours_is_no_record() {
        let whole = RevisionRecord {
            number: 1,
            ..record(1)
        }
        .object("transom", Some("u"));
        assert_eq!(
            RevisionRecord::read(&whole).unwrap().name(),
            whole.reference.name
        );
        assert_eq!(whole.body["metadata"]["ownerReferences"][0]["uid"], "u");
        let changed = |pointer: &str, value: Value| {
            let mut object = whole.clone();
            *object.body.pointer_mut(pointer).unwrap() = value;
            object
        };
        for (pointer, value) in [
            ("/data/spec/guests/decide/settings", json!({"n": 2})),
            ("/data/components/decide", json!("sha256:9")),
            ("/data/spec", json!({"x": 1})),
            ("/revision", json!("1")),
            ("/revision", json!(-1)),
            ("/revision", json!(i64::MAX)),
            ("/metadata/labels", json!({})),
            ("/metadata/labels", json!({labels::POLICY: "other"})),
        ] {
            assert_eq!(
                RevisionRecord::read(&changed(pointer, value.clone())),
                None,
                "{pointer} {value}"
            );
        }
        assert!(History::of("other", &[whole]).records().is_empty());
    }

    #[test]
    fn a_merge_patch_makes_one_value_of_the_other() {
        let from = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1], "same": {"x": 1}});
        let to = json!({"a": 2, "b": {"c": 2, "f": 4}, "e": [2], "same": {"x": 1}, "new": {}});
        let expected = json!({"a": 2, "b": {"d": null, "f": 4}, "e": [2], "new": {}});
        assert_eq!(merge_patch(&from, &to), expected);
        assert_eq!(merge_patch(&to, &to), Value::Null);
        assert_eq!(
            merge_patch(&json!({"a": {"b": 1}}), &json!({"a": {}})),
            json!({"a": {"b": null}})
        );
    }

    #[test]
    fn a_pinned_spec_is_the_same_revision() {
        let mut record = record(1);
        let mut spec = (*record.spec).clone();
        spec.guests.decide.component = "kubeconfig.wasm".to_owned();
        record.spec = Arc::new(spec);
        let spec: PolicySpec = serde_json::from_value(record.pinned()).unwrap();
        assert_eq!(spec.guests.decide.digest.as_deref(), Some("sha256:1"));
        assert_eq!(identity(&spec), identity(&record.spec));
    }

    #[test]
    fn a_revision_goes_on_with_the_builtin_components_of_another_agent() {
        let of_agent = |decide: &str, settings: i64, component: &str| {
            let mut record = record(settings);
            let mut spec = (*record.spec).clone();
            spec.guests.decide.component = component.to_owned();
            record.decide = decide.to_owned();
            record.id = id(&identity(&spec), decide, record.trigger.as_deref());
            record.spec = Arc::new(spec);
            record
        };
        let builtin = "builtin:kubeconfig";
        let active = of_agent("sha256:new", 1, builtin);
        for (other, goes_on) in [
            (of_agent("sha256:old", 1, builtin), true),
            (of_agent("sha256:old", 2, builtin), false),
            (of_agent("sha256:old", 1, "builtin:taints"), false),
            (of_agent("sha256:old", 1, "kubeconfig.wasm"), false),
            (of_agent("sha256:new", 1, "kubeconfig.wasm"), true),
        ] {
            assert_eq!(other.continues_as(&active), goes_on, "{other:?}");
        }
        // The status of a policy tells less of the revision.
        let published = |other: &RevisionRecord, this: &RevisionRecord| {
            let trigger = other.trigger.as_deref();
            this.is_published_as(&short(&other.id), &other.decide, trigger)
        };
        let old = of_agent("sha256:old", 1, builtin);
        assert!(published(&old, &active) && published(&active, &active));
        assert!(!published(&of_agent("sha256:old", 2, builtin), &active));
        let file = of_agent("sha256:new", 1, "kubeconfig.wasm");
        assert!(!published(&old, &file), "other bytes of a file");
        // What is put back holds the digests of the other components only.
        let mut pinned = of_agent("sha256:old", 1, builtin);
        let mut spec = (*pinned.spec).clone();
        spec.guests.decide.digest = Some("sha256:old".to_owned());
        pinned.spec = Arc::new(spec);
        let pinned = pinned.pinned();
        assert_eq!(pinned["guests"]["decide"].get("digest"), None);
        let pinned = of_agent("sha256:old", 1, "kubeconfig.wasm").pinned();
        assert_eq!(pinned["guests"]["decide"]["digest"], "sha256:old");
        // The same manifest under the agent before is nothing to go back to.
        let of = |number, record| RevisionRecord { number, ..record };
        let history = History::ordered(vec![
            of(1, of_agent("sha256:old", 2, builtin)),
            of(2, of_agent("sha256:old", 1, builtin)),
            of(3, active),
        ]);
        assert_eq!(history.previous().map(|one| one.number), Some(1));
        // Where the agent before barred it, the revision before works under that one.
        let barred = RevisionRecord {
            barred: Some("it failed".to_owned()),
            ..of(2, of_agent("sha256:old", 1, builtin))
        };
        let both = History::ordered(vec![
            of(1, of_agent("sha256:old", 2, builtin)),
            barred,
            of(3, of_agent("sha256:new", 1, builtin)),
        ]);
        for (agent, active) in [("sha256:old", 1), ("sha256:new", 3), ("sha256:newer", 3)] {
            let under = both
                .clone()
                .under(|name| (name == "kubeconfig").then_some(agent));
            assert_eq!(
                under.active().map(|one| one.number),
                Some(active),
                "{agent}"
            );
        }
        // Whoever asks from elsewhere goes by the components of the agent that published what is active.
        for (agent, active) in [("sha256:old", 1), ("sha256:new", 3)] {
            let record = both.records().iter().find(|one| one.number == active);
            let record = record.unwrap();
            let published = RevisionStatus {
                id: short(&record.id),
                decide: record.decide.clone(),
                trigger: record.trigger.clone(),
                ..RevisionStatus::default()
            };
            let builtin = both.builtin_of(&published);
            assert_eq!(builtin["kubeconfig"], agent);
            let here = |name: &str| builtin.get(name).map(String::as_str);
            let seen = both.clone().for_agent(None, here);
            assert_eq!(seen.active().map(|one| one.number), Some(active), "{agent}");
        }
        assert!(both.builtin_of(&RevisionStatus::default()).is_empty());
        // The bar stays as long as there is what it holds for.
        let under = both.under(|name| (name == "kubeconfig").then_some("sha256:old"));
        let failed = of_agent("sha256:old", 4, builtin);
        assert_eq!(under.bar(&failed, "it failed", PLACE, 2).len(), 1);
        // It makes room for what may work again.
        let next = of_agent("sha256:newer", 1, builtin);
        let steps = history.activate(&next, PLACE, 2);
        let targets: Vec<_> = steps
            .iter()
            .map(|step| step.target().name.clone())
            .collect();
        let of = |number| history.records().iter().find(|one| one.number == number);
        let [second, third] = [2, 3].map(|number| of(number).unwrap().name());
        assert_eq!(targets, [next.name(), third, second]);
    }

    #[test]
    fn a_record_gives_its_policy_back() {
        let record = record(1);
        assert_eq!(record.policy().unwrap().identity, identity(&record.spec));
    }
}
