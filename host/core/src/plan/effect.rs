//! What a step changes, for people and for limits: objects that are made, replaced or removed, and elements and fields
//! of objects that others made.

use super::{Step, finalizer};
use crate::object::Object;
use crate::projection::path;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The fields of an element that identify it, the first one that every element has.
pub(super) const KEYS: [&str; 3] = ["key", "type", "name"];
/// The fields of an element that hold a time. A new time alone does not replace an element.
pub(super) const TIMES: [&str; 3] = ["timeAdded", "lastTransitionTime", "lastUpdateTime"];

/// One thing that a step changes. Holds no value of an object. Kept plans, and their order, depend on the order of the
/// fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Effect {
    /// Kind of the object.
    pub kind: String,
    /// Path of the field in an object that others made; empty for a whole object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Key of the element, such as that of a taint; empty for anything but an element of a list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub element: String,
    /// What happens to it.
    pub verb: EffectVerb,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [&self.kind, &self.path, &self.element].into_iter();
        for word in words.filter(|word| !word.is_empty()) {
            write!(f, "{word} ")?;
        }
        f.write_str(self.verb.as_str())
    }
}

transom_api::words! {
    /// What happens to an object, an element or a field.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum EffectVerb {
        /// An object that the policy makes.
        Created = "created",
        /// An object that the policy made, with other content.
        Updated = "updated",
        /// An object that the policy made.
        Deleted = "deleted",
        /// A new element of a list of an object that others made.
        Added = "added",
        /// An element of such a list.
        Removed = "removed",
        /// An element of such a list, with other content.
        Replaced = "replaced",
        /// A field of an object that others made, or a list whose elements only get a time.
        Set = "set",
    }
}

/// What a step changes; `before` is the object as it was read, `None` when it does not exist or is not known. Every
/// step changes something.
pub fn of(step: &Step, before: Option<&Object>) -> Vec<Effect> {
    let whole = |verb| {
        vec![Effect {
            verb,
            kind: step.target().kind.to_string(),
            path: String::new(),
            element: String::new(),
        }]
    };
    match step {
        Step::Create { .. } => whole(EffectVerb::Created),
        Step::Update { .. } => whole(EffectVerb::Updated),
        Step::Delete { .. } => whole(EffectVerb::Deleted),
        Step::Patch { fields, .. } => {
            let each = fields.iter().flat_map(|(path, value)| {
                let there = before.and_then(|before| path::at(&before.body, path));
                let changed = elements(there, value);
                let changed = match changed.is_empty() {
                    true => vec![(EffectVerb::Set, String::new())],
                    false => changed,
                };
                changed.into_iter().map(|(verb, element)| Effect {
                    verb,
                    kind: step.target().kind.to_string(),
                    path: path.clone(),
                    element,
                })
            });
            each.collect()
        }
    }
}

/// The object of a step among some that were read.
pub fn target<'a>(step: &Step, read: &'a [Arc<Object>]) -> Option<&'a Object> {
    let mut read = read.iter();
    let there = read.find(|object| object.reference == *step.target());
    there.map(Arc::as_ref)
}

/// An object as a step leaves it, where nothing else is changed; `before` is what is there. `None` when it is gone
/// then: what is being deleted goes with its last finalizer.
pub fn after(step: &Step, before: Option<Object>) -> Option<Object> {
    match step {
        Step::Create { desired } | Step::Update { desired, .. } => Some(desired.clone()),
        Step::Delete { .. } => None,
        Step::Patch { fields, .. } => {
            let mut object = before?;
            for (dotted, value) in fields {
                put(&mut object.body, &path::keys(dotted), value);
            }
            let is_gone = object.deleting() && !finalizer::bears_any(&object);
            (!is_gone).then_some(object)
        }
    }
}

/// Sets the value at a path; null removes it.
pub(crate) fn put<K: AsRef<str>>(body: &mut Value, path: &[K], value: &Value) {
    let Some((key, rest)) = path.split_first() else {
        *body = value.clone();
        return;
    };
    if !body.is_object() {
        *body = Map::new().into();
    }
    let Some(map) = body.as_object_mut() else {
        return;
    };
    match rest.is_empty() && value.is_null() {
        true => drop(map.remove(key.as_ref())),
        false => put(map.entry(key.as_ref()).or_insert(Value::Null), rest, value),
    }
}

/// The field that identifies the elements of some lists; `None` if an element has none of them.
pub fn key_of<'a>(elements: impl Iterator<Item = &'a Value> + Clone) -> Option<&'static str> {
    let named = |key: &&str| {
        let mut names = elements.clone().map(|element| element.get(*key));
        names.all(|name| name.is_some_and(Value::is_string))
    };
    KEYS.into_iter().find(named)
}

/// The elements that differ, if both values are lists of maps with a key; an absent list is an empty one.
fn elements(before: Option<&Value>, after: &Value) -> Vec<(EffectVerb, String)> {
    let lists = list(before.unwrap_or(&Value::Null)).zip(list(after));
    let Some((before, after)) = lists else {
        return Vec::new();
    };
    let Some(key) = key_of(before.iter().chain(after)) else {
        return Vec::new();
    };
    let (before, after) = (by_key(before, key), by_key(after, key));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let verb = |name: &str| match (before.get(name), after.get(name)) {
        (None, _) => Some(EffectVerb::Added),
        (_, None) => Some(EffectVerb::Removed),
        (one, other) => (one != other).then_some(EffectVerb::Replaced),
    };
    let changed = |name: &&str| Some((verb(name)?, (*name).to_owned()));
    names.into_iter().filter_map(changed).collect()
}

/// The elements of a list; null is an empty one.
fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        Value::Array(elements) => Some(elements),
        _ => None,
    }
}

/// The elements with each key, without their times.
fn by_key<'a>(
    elements: &'a [Value],
    key: &str,
) -> BTreeMap<&'a str, Vec<BTreeMap<&'a String, &'a Value>>> {
    let mut by_key: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for element in elements {
        let fields = element.as_object().into_iter().flatten();
        let timeless = fields.filter(|(field, _)| !TIMES.contains(&field.as_str()));
        let name = element.get(key).and_then(Value::as_str).unwrap_or_default();
        by_key.entry(name).or_default().push(timeless.collect());
    }
    by_key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use serde_json::json;

    fn object(body: Value) -> Object {
        Object {
            reference: ObjectRef::local("v1", "ManagedCluster", None, "c"),
            version: "1".to_owned(),
            body,
        }
    }

    #[test]
    fn a_patch_sets_and_removes_fields_and_leaves_the_rest() {
        let before = object(json!({"spec": {"taints": [], "a": 1}, "metadata": {"name": "c"}}));
        let mut step = patch("spec.taints", json!([{"key": "k"}]));
        if let Step::Patch { fields, .. } = &mut step {
            fields.push(("spec.a".to_owned(), Value::Null));
            fields.push(("metadata.labels[\"x.y/z\"]".to_owned(), json!("v")));
        }
        let labels = json!({"name": "c", "labels": {"x.y/z": "v"}});
        assert_eq!(
            after(&step, Some(before)),
            Some(object(
                json!({"spec": {"taints": [{"key": "k"}]}, "metadata": labels})
            ))
        );
        assert_eq!(after(&step, None), None);
    }

    #[test]
    fn what_is_being_deleted_goes_with_its_last_finalizer() {
        let going = |finalizers: Value| {
            object(json!({"metadata": {"deletionTimestamp": "now", "finalizers": finalizers}}))
        };
        let step = |left: &Value| patch("metadata.finalizers", left.clone());
        let held = going(json!(["a", "b"]));
        let left = json!(["b"]);
        assert_eq!(
            after(&step(&left), Some(held.clone())),
            Some(going(left.clone()))
        );
        for none in [json!([]), Value::Null] {
            assert_eq!(after(&step(&none), Some(held.clone())), None);
        }
        let stays = object(json!({"metadata": {"finalizers": ["a"]}}));
        assert!(after(&step(&json!([])), Some(stays)).is_some());
    }

    fn patch(path: &str, value: Value) -> Step {
        Step::Patch {
            reference: object(json!({})).reference,
            version: "1".to_owned(),
            fields: vec![(path.to_owned(), value)],
        }
    }

    fn told(step: &Step, before: &Value) -> Vec<String> {
        let effects = of(step, Some(&object(before.clone())));
        let text = |one: &Effect| format!("{} {} {}", one.path, one.element, one.verb.as_str());
        effects.iter().map(text).collect()
    }

    #[test]
    fn a_step_on_a_whole_object_is_one_effect() {
        let desired = object(json!({}));
        let reference = desired.reference.clone();
        for (step, verb) in [
            (
                Step::Create {
                    desired: desired.clone(),
                },
                EffectVerb::Created,
            ),
            (
                Step::Update {
                    desired,
                    changed: vec!["a".into(), "b".into()],
                },
                EffectVerb::Updated,
            ),
            (
                Step::Delete {
                    reference,
                    version: String::new(),
                    uid: String::new(),
                    why: String::new(),
                },
                EffectVerb::Deleted,
            ),
        ] {
            let effects = of(&step, None);
            assert_eq!(effects.len(), 1);
            assert_eq!(
                (effects[0].verb, effects[0].kind.as_str()),
                (verb, "ManagedCluster")
            );
        }
    }

    #[test]
    fn elements_are_added_removed_and_replaced_by_key() {
        let taint = |key: &str, effect: &str, time: &str| json!({"key": key, "effect": effect, "timeAdded": time});
        let before = json!({"spec": {"taints": [taint("a", "NoSelect", "1"), taint("b", "NoSelect", "1"), taint("c", "NoSelect", "1")]}});
        let after = json!([
            taint("a", "NoSelect", "2"),
            taint("b", "NoSelectIfNew", "1"),
            taint("d", "NoSelect", "1")
        ]);
        assert_eq!(
            told(&patch("spec.taints", after), &before),
            [
                "spec.taints b replaced",
                "spec.taints c removed",
                "spec.taints d added"
            ]
        );
        // Null removes the list.
        assert_eq!(told(&patch("spec.taints", Value::Null), &before).len(), 3);
        assert_eq!(
            told(
                &patch("spec.taints", json!([taint("a", "NoSelect", "1")])),
                &json!({})
            ),
            ["spec.taints a added"]
        );
        // A second element with the key changes what the key means.
        let twice = json!([
            taint("a", "NoSelect", "1"),
            taint("a", "PreferNoSelect", "1")
        ]);
        let once = json!({"spec": {"taints": [taint("a", "NoSelect", "1")]}});
        assert_eq!(
            told(&patch("spec.taints", twice), &once),
            ["spec.taints a replaced"]
        );
    }

    #[test]
    fn every_patch_has_an_effect() {
        let taint = |time: &str| json!([{"key": "a", "timeAdded": time}]);
        let before = json!({"spec": {"taints": taint("1"), "accepted": true, "list": [1]}});
        for (path, after) in [
            ("spec.taints", taint("2")),
            ("spec.accepted", json!(false)),
            ("spec.list", json!([2])),
            ("spec.absent", json!([{"x": 1}])),
            ("spec.taints", json!("text")),
        ] {
            assert_eq!(told(&patch(path, after), &before), [format!("{path}  set")]);
        }
    }
}
