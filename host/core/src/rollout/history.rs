//! The kept revisions of a policy, as objects of kind ControllerRevision. As for a DaemonSet, the one with the highest
//! number is active, unless it is barred; one with number 0 never was.

mod patch;

use crate::catalogue::Revision;
use crate::digest::Digest;
use crate::object::Object;
use crate::plan::Step;
use crate::policy::Policy;
use crate::policy::check;
use crate::policy::manifest::{Manifest, PolicyError};
use crate::projection::path;
use crate::reference::ObjectRef;
use crate::rollout::{Probation, identity, short};
pub use patch::{leaves, merge_patch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::policy::PolicySpec;
use transom_api::{API_VERSION, KIND, labels};

/// Group and version of the objects.
pub const OBJECT_API_VERSION: &str = "apps/v1";
/// Kind of the objects.
pub const OBJECT_KIND: &str = "ControllerRevision";
/// Maximum length of a message that is kept, in bytes.
const MESSAGE: usize = 1024;

/// One kept revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Name of its policy.
    pub policy: String,
    /// Digest of the revision.
    pub id: Digest,
    /// The larger, the later it became active; 0 when it never was.
    pub number: i64,
    /// The policy's `spec`, as it was.
    pub spec: Arc<PolicySpec>,
    /// Digest of the component that decides what to write.
    pub decide: String,
    /// Digest of the component that decides when to reconcile.
    pub trigger: Option<String>,
    /// Why it may not become active again.
    pub barred: Option<String>,
    /// When it was first kept.
    pub created: Option<String>,
    /// What is watched since it became active.
    pub probation: Option<Probation>,
    /// The object's version; empty for one that is not kept yet.
    version: String,
}

impl Record {
    /// The record of a revision.
    pub fn of(revision: &Revision) -> Self {
        Self {
            policy: revision.policy.name.to_string(),
            id: revision.id(),
            number: 0,
            spec: Arc::clone(&revision.policy.spec),
            decide: revision.decide.digest.to_string(),
            trigger: (revision.trigger.as_ref()).map(|guest| guest.digest.to_string()),
            barred: None,
            created: None,
            probation: None,
            version: String::new(),
        }
    }

    /// The record in an object; `None` if it is not one of ours, or was changed.
    pub fn read(object: &Object) -> Option<Self> {
        if (object.reference.kind.as_str(), object.deleting()) != (OBJECT_KIND, false) {
            return None;
        }
        let text = |pointer: &str| Some(object.body.pointer(pointer)?.as_str()?.to_owned());
        let spec: PolicySpec =
            serde_json::from_value(object.body.pointer("/data/spec")?.clone()).ok()?;
        let decide = text("/data/components/decide")?;
        let trigger = text("/data/components/trigger");
        Some(Self {
            policy: object.label(labels::POLICY)?.to_owned(),
            id: id(&identity(&spec), &decide, trigger.as_deref()),
            number: object.body.get("revision")?.as_i64()?,
            spec: Arc::new(spec),
            decide,
            trigger,
            barred: object.annotation(labels::BARRED).map(str::to_owned),
            created: object.meta("creationTimestamp").map(str::to_owned),
            probation: (object.annotation(labels::PROBATION))
                .and_then(|text| serde_json::from_str(text).ok()),
            version: object.version.clone(),
        })
        .filter(|record| object.reference.name == record.name())
    }

    /// The policy of the revision.
    ///
    /// # Errors
    /// When this agent no longer takes such a policy.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        check::policy(Manifest {
            name: self.policy.clone(),
            spec: (*self.spec).clone(),
        })
    }

    /// The `spec`, with the digests that the components had, so that it is this revision whatever lies at their places now.
    pub fn pinned(&self) -> Value {
        let mut spec = json!(&*self.spec);
        for (guest, digest) in [
            ("decide", Some(&self.decide)),
            ("trigger", self.trigger.as_ref()),
        ] {
            let place = spec.pointer_mut(&format!("/guests/{guest}"));
            if let (Some(place), Some(digest)) = (place, digest) {
                place["digest"] = json!(digest);
            }
        }
        spec
    }

    /// The name of the object.
    pub fn name(&self) -> String {
        format!("{}-{}", self.policy, short(&self.id))
    }

    fn reference(&self, namespace: &str) -> ObjectRef {
        ObjectRef::local(
            OBJECT_API_VERSION,
            OBJECT_KIND,
            Some(namespace),
            &self.name(),
        )
    }

    /// The whole object. It goes with the policy object if there is one.
    fn object(&self, namespace: &str, uid: Option<&str>) -> Object {
        let reference = self.reference(namespace);
        let owner = uid.map(|uid| {
            json!([{"apiVersion": API_VERSION, "kind": KIND, "name": self.policy, "uid": uid}])
        });
        let mut body = json!({
            "apiVersion": OBJECT_API_VERSION,
            "kind": OBJECT_KIND,
            "metadata": {
                "name": reference.name,
                "namespace": namespace,
                "labels": {
                    labels::MANAGED_BY: labels::MANAGER,
                    labels::POLICY: self.policy,
                },
            },
            "revision": self.number,
            "data": {
                "spec": &*self.spec,
                "components": {"decide": self.decide},
            },
        });
        let mut set = |at: &str, field: &str, value: Option<Value>| {
            if let (Some(place), Some(value)) = (body.pointer_mut(at), value) {
                place[field] = value;
            }
        };
        set("/metadata", "ownerReferences", owner);
        let barred = self
            .barred
            .as_ref()
            .map(|why| (labels::BARRED, why.clone()));
        let probation = self.probation.map(|one| (labels::PROBATION, one.text()));
        let annotations: BTreeMap<_, _> = barred.into_iter().chain(probation).collect();
        let annotations = Some(annotations).filter(|all| !all.is_empty());
        set(
            "/metadata",
            "annotations",
            annotations.map(|all| json!(all)),
        );
        let trigger = self.trigger.as_ref().map(|digest| json!(digest));
        set("/data/components", "trigger", trigger);
        Object {
            reference,
            version: String::new(),
            body,
        }
    }
}

/// The digest of a revision.
pub(super) fn id(identity: &Digest, decide: &str, trigger: Option<&str>) -> Digest {
    Digest::of(&json!([identity.to_string(), decide, trigger]))
}

/// The kept revisions of one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The latest first.
    records: Vec<Record>,
}

/// Where records are kept.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
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
        let mut by_policy: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for record in objects.iter().filter_map(Record::read) {
            let records = by_policy.entry(record.policy.clone()).or_default();
            records.push(record);
        }
        let ordered = |(policy, records)| (policy, Self::ordered(records));
        by_policy.into_iter().map(ordered).collect()
    }

    fn ordered(mut records: Vec<Record>) -> Self {
        records.sort_by(|one, other| {
            let order = |one: &Record| (one.number, one.created.clone(), one.id);
            order(other).cmp(&order(one))
        });
        Self { records }
    }

    /// The latest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Replaces the record of this name; `None` removes it.
    pub fn put(&mut self, name: &str, record: Option<Record>) {
        let mut records = std::mem::take(&mut self.records);
        records.retain(|one| one.name() != name);
        records.extend(record);
        *self = Self::ordered(records);
    }

    /// The revisions that are active or were, and may be so again, the latest first.
    pub fn usable(&self) -> impl Iterator<Item = &Record> {
        let records = self.records.iter();
        records.filter(|record| record.number > 0 && record.barred.is_none())
    }

    /// The revision that is active: one that is barred is not, so that a bar alone takes it back.
    pub fn active(&self) -> Option<&Record> {
        self.usable().next()
    }

    /// The record of a revision.
    pub fn find(&self, id: &Digest) -> Option<&Record> {
        self.records.iter().find(|record| record.id == *id)
    }

    /// The revision before the active one that may become active again.
    pub fn previous(&self) -> Option<&Record> {
        self.usable().nth(1)
    }

    /// The steps that record a revision as the active one, and remove the oldest beyond `keep`. No step when it is so
    /// already. Carried out in their order, so that the revision before is active until the first one is done.
    pub fn activate(&self, record: &Record, place: Place<'_>, keep: u32) -> Vec<Step> {
        if self.active().is_some_and(|active| active.id == record.id) {
            return Vec::new();
        }
        let number = self.records.first().map_or(0, |latest| latest.number) + 1;
        let known = self.find(&record.id);
        let mut steps = vec![match known {
            Some(known) => {
                let mut fields = vec![("revision".to_owned(), json!(number))];
                let probation = record.probation.map(Probation::text);
                fields.extend(probation.map(|text| (annotation(labels::PROBATION), json!(text))));
                patch(known, place, fields)
            }
            None => Step::Create {
                desired: Record {
                    number,
                    ..record.clone()
                }
                .object(place.namespace, place.uid),
            },
        }];
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(2);
        let others = self.records.iter().filter(|one| one.id != record.id);
        steps.extend(others.skip(keep - 1).map(|one| Step::Delete {
            reference: one.reference(place.namespace),
            version: one.version.clone(),
            uid: String::new(),
            why: "the history is full".to_owned(),
        }));
        steps
    }

    /// The steps that bar a revision from becoming active, and say why.
    pub fn bar(&self, record: &Record, why: &str, place: Place<'_>) -> Vec<Step> {
        let why = why
            .get(..why.floor_char_boundary(MESSAGE))
            .unwrap_or_default();
        let path = annotation(labels::BARRED);
        debug_assert_eq!(path::keys(&path).len(), 3);
        match self.find(&record.id) {
            Some(known) if known.barred.is_some() => Vec::new(),
            Some(known) => vec![patch(known, place, vec![(path, json!(why))])],
            None => vec![Step::Create {
                desired: Record {
                    barred: Some(why.to_owned()),
                    ..record.clone()
                }
                .object(place.namespace, place.uid),
            }],
        }
    }
}

/// The path of an annotation.
fn annotation(key: &str) -> String {
    format!("metadata.annotations[\"{key}\"]")
}

fn patch(record: &Record, place: Place<'_>, fields: Vec<(String, Value)>) -> Step {
    Step::Patch {
        reference: record.reference(place.namespace),
        version: record.version.clone(),
        fields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::manifest;
    use crate::sample::kubeconfig_manifest;

    const PLACE: Place<'_> = Place {
        namespace: "transom",
        uid: Some("u"),
    };

    fn record(settings: i64) -> Record {
        let mut manifest = kubeconfig_manifest();
        manifest["spec"]["guests"]["decide"]["settings"] = json!({"n": settings});
        let spec = manifest::parse(&manifest).unwrap().spec;
        let (decide, trigger) = ("sha256:1".to_owned(), Some("sha256:2".to_owned()));
        Record {
            policy: "external".to_owned(),
            id: id(&identity(&spec), &decide, trigger.as_deref()),
            number: 0,
            spec: Arc::new(spec),
            decide,
            trigger,
            barred: None,
            created: None,
            probation: None,
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
    fn a_probation_is_kept_and_that_of_the_last_activation_counts() {
        let mut objects = Vec::new();
        for (settings, faults) in [(1, 3), (2, 4), (1, 5)] {
            let new = Record {
                probation: Some(Probation::new(1_000, faults)),
                ..record(settings)
            };
            let steps = History::of("external", &objects).activate(&new, PLACE, 10);
            apply(&mut objects, steps);
            let history = History::of("external", &objects);
            let kept = history.active().unwrap().probation;
            assert_eq!(kept, new.probation);
        }
        let probation = Probation::new(1_000, 0);
        assert!(!probation.is_over(1_000) && !probation.is_over(1_599));
        assert!(
            probation.is_over(1_600) && probation.is_over(900),
            "the clock was set back"
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
    fn a_barred_revision_says_why_and_is_not_the_previous_one() {
        let mut objects = Vec::new();
        for settings in [1, 2, 3] {
            let steps = History::of("external", &objects).activate(&record(settings), PLACE, 10);
            apply(&mut objects, steps);
        }
        for (settings, why) in [(2, "it trapped"), (7, "two answers")] {
            let steps = History::of("external", &objects).bar(&record(settings), why, PLACE);
            apply(&mut objects, steps);
        }
        let history = History::of("external", &objects);
        assert!(history.bar(&record(2), "again", PLACE).is_empty());
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
        let steps = history(&objects).bar(&record(3), "it trapped", PLACE);
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
    fn an_object_that_was_changed_or_is_not_ours_is_no_record() {
        let whole = Record {
            number: 1,
            ..record(1)
        }
        .object("transom", Some("u"));
        assert_eq!(Record::read(&whole).unwrap().name(), whole.reference.name);
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
            ("/metadata/labels", json!({})),
            ("/metadata/labels", json!({labels::POLICY: "other"})),
        ] {
            assert_eq!(
                Record::read(&changed(pointer, value.clone())),
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
    fn a_patch_has_its_leaves_as_fields() {
        let patch = json!({"own": {"annotations": null}, "settings": {"a.b": {}, "c": [1]}});
        let fields = leaves("spec", &patch);
        let keys: Vec<_> = fields.iter().map(|(path, _)| path::keys(path)).collect();
        assert_eq!(keys[0], ["spec", "own", "annotations"]);
        assert_eq!(keys[1], ["spec", "settings", "a.b"]);
        assert_eq!((fields.len(), &fields[2].1), (3, &json!([1])));
    }

    #[test]
    fn a_pinned_spec_is_the_same_revision() {
        let record = record(1);
        let spec: PolicySpec = serde_json::from_value(record.pinned()).unwrap();
        assert_eq!(spec.guests.decide.digest.as_deref(), Some("sha256:1"));
        assert_eq!(identity(&spec), identity(&record.spec));
    }

    #[test]
    fn a_record_gives_its_policy_back() {
        let record = record(1);
        assert_eq!(record.policy().unwrap().identity, identity(&record.spec));
    }
}
