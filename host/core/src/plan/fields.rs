//! Plans fields of an object that others made. Of a list whose elements have several owners only the owned ones
//! become as wanted; every other one keeps place, time and form. An owned element that is right but has no time gets
//! one, unless the cluster sets times.

use super::contention::{Contentions, FieldFingerprints};
use super::desired::{Elements, Field, Fields};
use super::kept::KeptForms;
use super::{PlanInput, PlannedFields, Step, TimeAdded, conditions, unnamed};
use crate::digest::Digest;
use crate::failure::{Failure, InvalidField};
use crate::object::Object;
use crate::object::field::FieldPlace;
use crate::policy::Target;
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use crate::time;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use transom_api::KnownReason;

/// Plans fields of the primary, or of an object that others made: no step when all are as wanted. For an object of
/// others that is being deleted, plans only its status, which others read until the object is gone.
pub(super) fn plan(
    wanting: &PlanInput<'_>,
    desired: &Fields,
    contentions: &Contentions,
) -> Result<PlannedFields, Failure> {
    if desired.fields.is_empty() {
        return Ok(PlannedFields::Step(None));
    }
    let rule = wanting.policy.fields(&desired.object, &wanting.data)?;
    let Some(object) = existing(wanting, &desired.object)? else {
        return Ok(PlannedFields::Absent);
    };
    let leaves = object.deleting() && rule.target != Target::Primary;
    let forms = contentions.forms(wanting.key, &object.reference);
    let (mut changed, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for (path, field) in &desired.fields {
        if !rule.fields.iter().any(|field| field.grants(path)) {
            let message = format!(
                "the policy does not grant writing `{path}` of {}",
                desired.object
            );
            return Err(Failure::known(KnownReason::WriteNotGranted, message));
        }
        if leaves && !path.is_of_status() {
            continue;
        }
        let change = change(object, (path, field), (wanting, &forms))?;
        before.extend(change.before);
        after.extend(change.after);
        let value = change.value;
        changed.extend(value.map(|value| (path.to_string(), value)));
    }
    let said = |places: Vec<(Box<str>, Digest)>| places.into_iter().collect::<FieldFingerprints>();
    let (before, after) = (said(before), said(after));
    contentions.agree(wanting.key, &object.reference, &before, &after);
    if changed.is_empty() {
        return Ok(PlannedFields::Step(None));
    }
    contentions.of_fields(wanting.key, &object.reference, |contention| {
        contention.permit(&object.reference, before, after, wanting.now_seconds)
    })?;
    Ok(PlannedFields::Step(Some(Step::Patch {
        reference: object.reference.clone(),
        version: object.version.clone(),
        fields: changed,
    })))
}

/// What becomes of one field.
struct FieldChange {
    /// The new value; `None` when the field is as wanted.
    value: Option<Value>,
    /// Digests of what it says before and after, by place.
    before: Vec<(Box<str>, Digest)>,
    after: Vec<(Box<str>, Digest)>,
}

/// Compares a field of an object with what is wanted.
fn change(
    object: &Object,
    (path, field): (&Path, &Field),
    (wanting, forms): (&PlanInput<'_>, &KeptForms),
) -> Result<FieldChange, Failure> {
    let invalid = |invalid: InvalidField| Failure::invalid_object(object, &invalid);
    let place = place(object, path).map_err(invalid)?;
    let at = || path.to_string().into();
    Ok(match field {
        Field::Value(value) => {
            let there = place.value().cloned().unwrap_or_default();
            // The form in which the server keeps the value is right.
            let kept = there == *value || forms.has(&path.to_string(), value, Some(&there));
            let after = if kept { &there } else { value };
            FieldChange {
                before: vec![(at(), Digest::of(&there))],
                after: vec![(at(), Digest::of(after))],
                value: (!kept).then(|| value.clone()),
            }
        }
        Field::Elements(elements) => {
            let there = list(&place, elements.key).map_err(invalid)?;
            let merged = merge(&there, elements, wanting.time_added);
            let at = || of_elements(path).into();
            let said = |list: &[Value]| (at(), fingerprint(list, elements, wanting.time_added));
            FieldChange {
                before: vec![said(&there)],
                after: vec![said(&merged)],
                value: (merged != there).then(|| match merged.is_empty() {
                    true => Value::Null,
                    false => merged.into(),
                }),
            }
        }
        Field::Conditions(wanted) => {
            let there = list(&place, "type").map_err(invalid)?;
            let merged = wanted.merged(&there, wanting.now_seconds);
            FieldChange {
                before: wanted.fingerprints(&there).collect(),
                after: wanted.fingerprints(&merged).collect(),
                value: conditions::differ(&merged, &there).then(|| merged.into()),
            }
        }
    })
}

/// The place of the owned elements of a list.
pub(super) fn of_elements(path: &Path) -> String {
    format!("{path}[]")
}

/// A fingerprint of what a place says that an answer does not name. Of a list whose elements have several owners, those
/// of the policy count.
pub(super) fn said(wanting: &PlanInput<'_>, object: &Object, at: &str) -> Option<Digest> {
    if let Some(path) = at.strip_suffix("[]") {
        let rule = wanting.policy.fields(&object.reference, &wanting.data);
        let elements = Elements::of_taints(rule.ok()?.taint_keys.clone(), Vec::new());
        let list = list(&place(object, &Path::parse(path).ok()?).ok()?, elements.key).ok()?;
        return Some(fingerprint(&list, &elements, wanting.time_added));
    }
    if let Some(kind) = conditions::of_place(at) {
        let path = Path::parse("status.conditions").ok()?;
        let list = list(&place(object, &path).ok()?, "type").ok()?;
        return Some(conditions::fingerprint(&list, kind));
    }
    let place = place(object, &Path::parse(at).ok()?).ok()?;
    Some(Digest::of(place.value().unwrap_or(&Value::Null)))
}

/// The object as it was read; `None` when it is not there.
pub(super) fn existing<'a>(
    wanting: &PlanInput<'a>,
    object: &ObjectRef,
) -> Result<Option<&'a Object>, Failure> {
    if *object == wanting.primary.reference {
        return Ok(Some(wanting.primary));
    }
    let mut others = wanting.others.iter();
    match others.find(|other| other.object == *object) {
        Some(other) => Ok(other.existing.as_deref()),
        None => Err(unnamed("wants fields of", object)),
    }
}

/// The place of a field in an object; its parents must be maps, or absent.
fn place<'a>(object: &'a Object, path: &Path) -> Result<FieldPlace<'a>, InvalidField> {
    let mut place = FieldPlace::top(&object.body);
    let keys = path.keys().unwrap_or_default();
    for (index, key) in keys.iter().enumerate() {
        place = if index + 1 < keys.len() {
            place.map(key)?
        } else {
            place.get(key)
        };
    }
    Ok(place)
}

/// The elements of a list; each must be a map with a text under the key.
fn list(place: &FieldPlace<'_>, key: &str) -> Result<Vec<Value>, InvalidField> {
    for element in place.list()? {
        element.as_map()?.get(key).required_text()?;
    }
    Ok(place
        .value()
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default())
}

/// A fingerprint of the owned elements: what the policy writes of the list, and nothing else. The time counts only
/// where the agent sets it, and only whether there is one.
fn fingerprint(list: &[Value], elements: &Elements, added: TimeAdded) -> Digest {
    let owned = list.iter().filter(|element| elements.owns(element));
    let said = owned.map(|element| {
        let compared = elements.compared.iter().map(|field| text(element, field));
        let timed = matches!(added, TimeAdded::SetByUs(_)) && elements.has_time(element);
        json!([
            text(element, elements.key),
            compared.collect::<Vec<_>>(),
            timed
        ])
    });
    Digest::of(&Value::Array(said.collect()))
}

/// The elements in the order of the list, with the owned ones as wanted; new ones at the end.
fn merge(current: &[Value], elements: &Elements, added: TimeAdded) -> Vec<Value> {
    let mut place: BTreeMap<&str, usize> = BTreeMap::new();
    for want in &elements.wanted {
        let key = field(want, elements.key);
        let of_key = |element: &&Value| text(element, elements.key) == key;
        let right = current
            .iter()
            .position(|element| of_key(&element) && elements.is(element, want));
        if let Some(index) = right.or_else(|| current.iter().position(|element| of_key(&element))) {
            place.insert(key, index);
        }
    }
    let mut merged = Vec::with_capacity(current.len() + elements.wanted.len());
    for (index, element) in current.iter().enumerate() {
        let key = text(element, elements.key);
        if !elements.owns(element) {
            merged.push(element.clone());
        } else if place.get(key) == Some(&index) {
            let mut wanted = elements.wanted.iter();
            let want =
                wanted.find(|want| field(want, elements.key) == key && !elements.is(element, want));
            merged.push(want.map_or_else(
                || elements.timed(element, added),
                |want| elements.added(want, added),
            ));
        }
    }
    let wanted = elements.wanted.iter();
    let new = wanted.filter(|want| !place.contains_key(field(want, elements.key)));
    merged.extend(new.map(|want| elements.added(want, added)));
    merged
}

impl Fields {
    /// Whether an owned element in the object has no time.
    pub fn untimed(&self, object: &Object) -> bool {
        let untimed = |(path, field): &(Path, Field)| {
            let Field::Elements(elements) = field else {
                return false;
            };
            let list = place(object, path).and_then(|place| list(&place, elements.key));
            let without = |element: &Value| elements.owns(element) && !elements.has_time(element);
            list.is_ok_and(|list| list.iter().any(without))
        };
        self.fields.iter().any(untimed)
    }
}

impl Elements {
    fn owns(&self, element: &Value) -> bool {
        self.owned.contains(text(element, self.key))
    }

    fn has_time(&self, element: &Value) -> bool {
        element.get(self.time).is_some_and(|time| !time.is_null())
    }

    /// Whether an element says what is wanted, whatever its time.
    fn is(&self, element: &Value, want: &Map<String, Value>) -> bool {
        let mut fields = self.compared.iter().chain([&self.key]);
        fields.all(|name| text(element, name) == field(want, name))
    }

    /// An element that is right, with a time if the agent sets times.
    fn timed(&self, element: &Value, added: TimeAdded) -> Value {
        let mut element = element.clone();
        if let (TimeAdded::SetByUs(now_seconds), false, Some(map)) =
            (added, self.has_time(&element), element.as_object_mut())
        {
            map.insert(
                self.time.to_owned(),
                time::format_rfc3339(now_seconds).into(),
            );
        }
        element
    }

    /// A new element.
    fn added(&self, want: &Map<String, Value>, added: TimeAdded) -> Value {
        self.timed(&Value::Object(want.clone()), added)
    }
}

fn text<'a>(element: &'a Value, field: &str) -> &'a str {
    element
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn field<'a>(want: &'a Map<String, Value>, field: &str) -> &'a str {
    want.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::taints::{Decision, MANAGED_CLUSTER, TaintEffect, WantedTaint};
    use crate::plan::contention::Contention;
    use crate::policy::Policy;
    use crate::sample::{object, planned, policy, taints_manifest};
    use crate::work::Key;
    use proptest::prelude::*;

    fn managed_cluster() -> ObjectRef {
        ObjectRef::local(MANAGED_CLUSTER.0, MANAGED_CLUSTER.1, None, "c")
    }

    /// The answer that wants one taint.
    fn one(value: &str) -> Decision {
        Decision::Own(vec![WantedTaint {
            key: "a/one".to_owned(),
            value: value.to_owned(),
            effect: TaintEffect::NoSelect,
        }])
    }

    /// Whether a taint says what is wanted.
    fn is(taint: &Value, want: &WantedTaint) -> bool {
        let effect = format!("{:?}", want.effect);
        [
            ("key", &want.key),
            ("value", &want.value),
            ("effect", &effect),
        ]
        .iter()
        .all(|(name, said)| text(taint, name) == **said)
    }

    fn has_time(taint: &Value) -> bool {
        taint.get("timeAdded").is_some_and(|time| !time.is_null())
    }

    fn timed(taint: &Value, added: TimeAdded) -> Value {
        let elements = Elements::of_taints(Default::default(), Vec::new());
        elements.timed(taint, added)
    }

    /// Taints of few keys, two of them owned, so that they collide.
    fn taints() -> impl Strategy<Value = Vec<Value>> {
        let key = prop_oneof!["a/one", "a/two", "user", "other"];
        let effect = prop_oneof![
            Just("NoSelect"),
            Just("PreferNoSelect"),
            Just("NoSelectIfNew")
        ];
        let value = prop_oneof![Just(None), Just(Some("")), Just(Some("v"))];
        let taint = (key, effect, value, 0..100u32).prop_map(|(key, effect, value, n)| {
            let time = (n % 3 > 0).then(|| format!("2020-01-01T00:00:{:02}Z", n % 60));
            json!({"key": key, "effect": effect, "value": value, "timeAdded": time, "n": n})
        });
        proptest::collection::vec(taint, 0..8)
    }

    fn wanted() -> impl Strategy<Value = Vec<WantedTaint>> {
        let effect = prop_oneof![
            Just(TaintEffect::NoSelect),
            Just(TaintEffect::PreferNoSelect)
        ];
        let one = |key: &'static str| {
            let taint = (effect.clone(), prop_oneof![Just(""), Just("v")]).prop_map(
                move |(effect, value)| WantedTaint {
                    key: key.to_owned(),
                    value: value.to_owned(),
                    effect,
                },
            );
            proptest::option::of(taint)
        };
        (one("a/one"), one("a/two")).prop_map(|(one, two)| one.into_iter().chain(two).collect())
    }

    /// The list after the plan is applied, and whether there was a step.
    fn applied_by(
        current: &[Value],
        wanted: &[WantedTaint],
        added: TimeAdded,
    ) -> (Vec<Value>, bool) {
        let policy = policy(&taints_manifest());
        let primary = object(managed_cluster(), json!({"spec": {"taints": current}}));
        let contentions = &Contentions::default();
        let answer = Decision::Own(wanted.to_vec());
        let plan = planned(&policy, &primary, &answer, added, (contentions, 0)).unwrap();
        match plan.steps.as_slice() {
            [] => (current.to_vec(), false),
            [Step::Patch { fields, .. }] => {
                (fields[0].1.as_array().cloned().unwrap_or_default(), true)
            }
            other => panic!("{other:?}"),
        }
    }

    fn written(contentions: &Contentions, policy: &Policy) {
        let key = Key::new(&policy.name, &managed_cluster());
        contentions.of_fields(&key, &managed_cluster(), Contention::written);
    }

    fn applied(current: &[Value], wanted: &[WantedTaint]) -> (Vec<Value>, bool) {
        applied_by(current, wanted, TimeAdded::SetByUs(0))
    }

    fn owned(taint: &Value) -> bool {
        text(taint, "key").starts_with("a/")
    }

    /// The results of plans while another writer writes `theirs`, each time at another second; ours is written when
    /// permitted.
    fn contended(policy: &Policy, theirs: &[Value], times: i64) -> Vec<Option<i64>> {
        contended_by(policy, theirs, times, TimeAdded::SetByCluster)
    }

    fn contended_by(
        policy: &Policy,
        theirs: &[Value],
        times: i64,
        added: TimeAdded,
    ) -> Vec<Option<i64>> {
        let answer = one("");
        let contentions = Contentions::default();
        let plan = |taints: &[Value], at| {
            let primary = object(managed_cluster(), json!({"spec": {"taints": taints}}));
            let plan = planned(policy, &primary, &answer, added, (&contentions, at));
            written(&contentions, policy);
            plan.err().and_then(|failure| failure.ask_again_at)
        };
        plan(&[], 0);
        (1..=times).map(|at| plan(theirs, at)).collect()
    }

    #[test]
    fn stops_after_owned_taints_were_undone_three_times() {
        let policy = policy(&taints_manifest());
        let user = json!({"key": "user", "effect": "NoSelect"});
        let other = json!({"key": "a/one", "effect": "PreferNoSelect"});
        let ours =
            json!({"key": "a/one", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"});
        let stopped = vec![None, None, Some(601)];
        assert_eq!(contended(&policy, &[], 3), stopped, "removed");
        assert_eq!(
            contended(&policy, std::slice::from_ref(&other), 3),
            stopped,
            "given another effect"
        );
        assert_eq!(
            contended(&policy, &[ours.clone(), other], 3),
            stopped,
            "doubled"
        );
        assert_eq!(
            contended(&policy, &[user.clone(), ours.clone(), user], 100),
            vec![None; 100],
            "others come and go"
        );
        let untimed = json!({"key": "a/one", "effect": "NoSelect"});
        assert_eq!(
            contended_by(&policy, &[untimed], 3, TimeAdded::SetByUs(9)),
            stopped,
            "the time was taken away"
        );
        assert_eq!(
            contended(&policy, &[ours], 100),
            vec![None; 100],
            "a webhook set the time"
        );
    }

    #[test]
    fn a_changing_answer_is_no_conflict() {
        let policy = policy(&taints_manifest());
        let (contentions, mut taints) = (Contentions::default(), json!([]));
        for at in 0..100 {
            let answer = one(&at.to_string());
            let primary = object(managed_cluster(), json!({"spec": {"taints": taints}}));
            let added = TimeAdded::SetByCluster;
            let plan = planned(&policy, &primary, &answer, added, (&contentions, at)).unwrap();
            let [Step::Patch { fields, .. }] = plan.steps.as_slice() else {
                panic!("{plan:?}")
            };
            taints = fields[0].1.clone();
            written(&contentions, &policy);
        }
    }

    proptest! {
        #[test]
        fn leaves_other_taints_alone_and_sets_owned_keys(current in taints(), wanted in wanted()) {
            let (after, _) = applied(&current, &wanted);
            let others = |list: &[Value]| list.iter().filter(|taint| !owned(taint)).cloned().collect::<Vec<_>>();
            prop_assert_eq!(others(&current), others(&after));
            let ours: Vec<&Value> = after.iter().filter(|taint| owned(taint)).collect();
            prop_assert_eq!(ours.len(), wanted.len(), "no key is doubled or missing");
            for want in &wanted {
                prop_assert!(ours.iter().any(|taint| is(taint, want)));
            }
        }

        #[test]
        fn keeps_the_time_of_correct_taints_and_a_second_plan_is_empty(
            current in taints(), wanted in wanted(), ours in any::<bool>(),
        ) {
            let added = if ours { TimeAdded::SetByUs(0) } else { TimeAdded::SetByCluster };
            let (after, _) = applied_by(&current, &wanted, added);
            for want in &wanted {
                let right = current.iter().find(|taint| is(taint, want));
                let there = after.iter().find(|taint| is(taint, want));
                prop_assert!(right.is_none_or(|right| there == Some(&timed(right, added))));
                prop_assert!(right.is_none_or(|right| !has_time(right) || there == Some(right)));
                prop_assert!(!ours || there.is_some_and(has_time));
            }
            prop_assert_eq!(applied_by(&after, &wanted, added), (after.clone(), false));
        }
    }
}
