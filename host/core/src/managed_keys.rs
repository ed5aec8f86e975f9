//! The labels and annotations of `spec.own`, and the fields that a guest wants, on an object that a policy makes
//! (beside the stamp and the data that the policy owns wholly). An annotation of the object lists them, so that the
//! agent removes those that are no longer wanted, and no others.

use crate::object::Object;
use crate::plan::desired::holds;
use crate::plan::effect;
use crate::plan::finalizer::{bears_any, is_on};
use crate::plan::kept::KeptForms;
use crate::policy::{WriteRule, values};
use crate::projection::path::{self, Path};
use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use transom_api::labels;
use transom_api::policy::{OwnSpec, WriteVerb};

/// The fields of a manifest that are no content.
const NO_CONTENT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What a policy wants on an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WantedKeys<'a> {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    /// Fields outside the metadata, by the text of their path.
    fields: BTreeMap<String, (Path, &'a Value)>,
    /// The fields that are granted: no other one is removed, whatever the annotation lists.
    granted: &'a [Path],
    /// The finalizers that the policy put there, or puts there now.
    finalizers: BTreeSet<String>,
    /// What the server made of these fields when they were written.
    forms: KeptForms,
}

impl<'a> WantedKeys<'a> {
    /// What `spec.own` and the checked content for an object want. For a key that both name, `spec.own` decides.
    pub(crate) fn of(own: &OwnSpec, content: &'a Map<String, Value>, granted: &'a [Path]) -> Self {
        let texts = |field: &str| -> BTreeMap<String, String> {
            let map = content
                .get("metadata")
                .and_then(|metadata| metadata.get(field));
            let entries = map.and_then(Value::as_object).into_iter().flatten();
            let texts = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?)));
            texts.map(|(key, value)| (key, value.to_owned())).collect()
        };
        let mut labels = texts("labels");
        labels.extend(own.labels.clone());
        let mut annotations = texts("annotations");
        annotations.extend(own.annotations.clone());
        let content = content.iter();
        let content = content.filter(|(key, _)| !NO_CONTENT.contains(&key.as_str()));
        let fields = values::fields(content).into_iter();
        let fields = fields.filter(|field| !values::says_nothing(field, granted));
        Self {
            labels,
            annotations,
            fields: fields.map(|field| (field.0.to_string(), field)).collect(),
            granted,
            finalizers: BTreeSet::new(),
            forms: KeptForms::default(),
        }
    }

    /// Adds the finalizers that the grant names, except those that others put on the object.
    pub(crate) fn bearing(mut self, rule: &WriteRule, existing: Option<&Object>) -> Self {
        let wanted = rule.finalizers().into_iter().flatten();
        let ours = wanted.filter(|name| existing.is_none_or(|there| puts(there, name)));
        self.finalizers = ours.cloned().collect();
        self
    }

    /// The same, where the server keeps some of the fields in a form of its own.
    pub(crate) fn kept_as(mut self, forms: &KeptForms) -> Self {
        self.forms = forms.clone();
        self
    }

    /// Whether a field of an object has the wanted value; defaults that the API server added are no difference.
    fn is_right(&self, text: &str, (path, wanted): &(Path, &Value), body: &Value) -> bool {
        let there = path.value(body);
        there.is_some_and(|there| holds(there, wanted)) || self.forms.has(text, wanted, there)
    }

    /// Whether an object has all of it already.
    pub(crate) fn is_in(&self, object: &Object) -> bool {
        let has = |field: &str, wanted: &BTreeMap<String, String>| {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| at(object, field, key) == Some(&Value::from(value.as_str())))
        };
        has("labels", &self.labels)
            && has("annotations", &self.annotations)
            && self.wrong_fields(object).next().is_none()
    }

    fn wrong_fields(&self, object: &Object) -> impl Iterator<Item = &String> {
        let fields = self.fields.iter();
        fields
            .filter(|(text, field)| !self.is_right(text, field, &object.body))
            .map(|(text, _)| text)
    }
}

/// Keys and fields that a policy put on an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Keys {
    #[serde(default)]
    labels: BTreeSet<String>,
    #[serde(default)]
    annotations: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    fields: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    finalizers: BTreeSet<String>,
}

/// Whether a policy put a finalizer on an object, or would have to.
fn puts(existing: &Object, finalizer: &str) -> bool {
    !is_on(existing, finalizer) || Keys::of(existing).finalizers.contains(finalizer)
}

/// The finalizers that a policy put on an object, and that its grant names no longer.
pub(crate) fn finalizers_left(rule: &WriteRule, existing: &Object) -> BTreeSet<String> {
    let names = |name: &String| rule.finalizers().is_some_and(|names| names.contains(name));
    if !rule.verbs.contains(&WriteVerb::Update) || !bears_any(existing) {
        return BTreeSet::new();
    }
    let mut left = Keys::of(existing).finalizers;
    left.retain(|name| is_on(existing, name) && !names(name));
    left
}

impl Keys {
    /// The keys that a policy wants.
    fn wanted(wanted: &WantedKeys<'_>) -> Self {
        Self {
            labels: wanted.labels.keys().cloned().collect(),
            annotations: wanted.annotations.keys().cloned().collect(),
            fields: wanted.fields.keys().cloned().collect(),
            finalizers: wanted.finalizers.clone(),
        }
    }

    /// The keys that a policy put on an object; none on an object without a stamp, whatever its annotation lists.
    fn of(object: &Object) -> Self {
        let said = object
            .annotation(labels::MANAGED_KEYS)
            .filter(|_| Stamp::read(object).is_some());
        let mut keys: Self = said
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        keys.labels.retain(|key| !labels::is_reserved(key));
        keys.annotations.retain(|key| !labels::is_reserved(key));
        let is_content = |path: &String| {
            let first = path::keys(path).into_iter().next();
            first.is_some_and(|first| !NO_CONTENT.contains(&first.as_str()))
        };
        keys.fields.retain(is_content);
        keys
    }

    fn is_empty(&self) -> bool {
        let keys = [
            &self.labels,
            &self.annotations,
            &self.fields,
            &self.finalizers,
        ];
        keys.iter().all(|keys| keys.is_empty())
    }
}

/// The paths at which an object lacks what the policy wants, or still carries what an earlier revision wanted.
pub(crate) fn changed(wanted: &WantedKeys<'_>, existing: &Object) -> Vec<String> {
    let had = Keys::of(existing);
    let mut changed = Vec::new();
    for (field, wanted, had) in fields(wanted, &had) {
        let wrong = wanted
            .iter()
            .filter(|(key, value)| at(existing, field, key) != Some(&Value::from(value.as_str())));
        let left = had
            .iter()
            .filter(|key| !wanted.contains_key(*key) && at(existing, field, key).is_some());
        changed.extend(
            wrong
                .map(|(key, _)| key)
                .chain(left)
                .map(|key| path::of(&["metadata", field, key])),
        );
    }
    changed.extend(wanted.wrong_fields(existing).cloned());
    let there = |path: &&String| is_as_put(&existing.body, path);
    changed.extend(dropped(wanted, &had).filter(there).cloned());
    let mut noted = Keys::wanted(wanted);
    if had.finalizers.is_empty() {
        // An older agent added finalizers without noting them: a missing note alone is no reason for a write.
        noted.finalizers.clear();
    }
    if had != noted {
        changed.push(path::of(&["metadata", "annotations", labels::MANAGED_KEYS]));
    }
    changed
}

/// Puts what is wanted on a body with the list of its keys, and removes what an earlier revision put on the existing
/// object.
pub(crate) fn put(wanted: &WantedKeys<'_>, existing: Option<&Object>, body: &mut Value) {
    put_keys(wanted, existing, &Keys::wanted(wanted), body);
}

/// Puts what is wanted on the body of a new object that is made once, and then left to others: without the list.
pub(crate) fn put_once(wanted: &WantedKeys<'_>, body: &mut Value) {
    put_keys(wanted, None, &Keys::default(), body);
}

fn put_keys(wanted: &WantedKeys<'_>, existing: Option<&Object>, noted: &Keys, body: &mut Value) {
    let had = existing.map(Keys::of).unwrap_or_default();
    for (field, wanted_keys, had) in fields(wanted, &had) {
        let mut map = body
            .pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        map.retain(|key, _| !had.contains(key));
        map.extend(
            wanted_keys
                .iter()
                .map(|(key, value)| (key.clone(), Value::from(value.as_str()))),
        );
        if field == "annotations" {
            note(noted, &mut map);
        }
        if existing.is_none() && map.is_empty() {
            continue;
        }
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), map.into());
        }
    }
    for path in dropped(wanted, &had) {
        if is_as_put(body, path) {
            effect::put(body, &path::keys(path), &Value::Null);
        }
    }
    for (text, field) in &wanted.fields {
        if !wanted.is_right(text, field, body) {
            effect::put(body, &path::keys(text), field.1);
        }
    }
}

/// Whether a field that the policy put on an object is still there. A map was empty then: if it has fields by now, it
/// is of those who added them.
fn is_as_put(body: &Value, path: &str) -> bool {
    match path::at(body, path) {
        Some(Value::Object(map)) => map.is_empty(),
        there => there.is_some(),
    }
}

/// The fields that an earlier revision put on an object, and that are not wanted any more.
fn dropped<'a>(wanted: &'a WantedKeys<'_>, had: &'a Keys) -> impl Iterator<Item = &'a String> {
    let is_granted = |path: &String| {
        let path = Path::parse(path).ok();
        path.is_some_and(|path| wanted.granted.iter().any(|granted| granted.grants(&path)))
    };
    // In order, so that the fields below another one follow it: there may be thousands, now and before. Each with
    // whether it replaces what is below it: an empty map does not. Mostly none of them is needed.
    let new = LazyCell::new(|| -> BTreeMap<Vec<&str>, bool> {
        let fields = wanted.fields.values();
        let field = |(path, value): &'a (Path, &Value)| Some((path.keys()?, !value.is_object()));
        fields.filter_map(field).collect()
    });
    let is_wanted = move |path: &String| {
        let old = path::keys(path);
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        // A field that is part of a wanted one, or above one, is replaced with it.
        let mut above = (0..=old.len()).filter_map(|length| old.get(..length));
        let mut below = new.range(old.clone()..);
        above.any(|part| new.get(part) == Some(&true))
            || below
                .next()
                .is_some_and(|(first, _)| first.starts_with(&old))
    };
    let left = had.fields.iter();
    left.filter(|path| !wanted.fields.contains_key(*path))
        .filter(move |path| is_granted(path) && !is_wanted(path))
}

/// What an object carries because of the policy, to compare by; null when there is nothing.
pub(crate) fn view(object: &Object) -> Value {
    let keys = Keys::of(object);
    if keys.is_empty() {
        return Value::Null;
    }
    let values = |field, keys: &BTreeSet<String>| {
        keys.iter()
            .map(|key| json!([key, at(object, field, key)]))
            .collect::<Vec<_>>()
    };
    let fields = keys.fields.iter();
    let fields = fields.map(|path| match path::at(&object.body, path) {
        // It was empty: what is in it is of others.
        Some(Value::Object(_)) => json!([path, {}]),
        there => json!([path, there]),
    });
    json!([
        values("labels", &keys.labels),
        values("annotations", &keys.annotations),
        fields.collect::<Vec<_>>(),
    ])
}

fn fields<'a>(
    wanted: &'a WantedKeys<'_>,
    had: &'a Keys,
) -> [(
    &'static str,
    &'a BTreeMap<String, String>,
    &'a BTreeSet<String>,
); 2] {
    [
        ("labels", &wanted.labels, &had.labels),
        ("annotations", &wanted.annotations, &had.annotations),
    ]
}

fn at<'a>(object: &'a Object, field: &str, key: &str) -> Option<&'a Value> {
    object.body.get("metadata")?.get(field)?.get(key)
}

/// Lists the keys in the annotation, or removes the annotation when there are none.
fn note(keys: &Keys, annotations: &mut Map<String, Value>) {
    match serde_json::to_string(keys) {
        Ok(text) if !keys.is_empty() => {
            drop(annotations.insert(labels::MANAGED_KEYS.to_owned(), text.into()));
        }
        _ => drop(annotations.remove(labels::MANAGED_KEYS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that go from an object when these are wanted of it no longer, and others are.
    fn gone(had: &[&str], wanted: &[&str]) -> Vec<String> {
        let had = Keys {
            fields: had.iter().map(|path| (*path).to_owned()).collect(),
            ..Keys::default()
        };
        let one = json!(1);
        let granted = ["spec", "data"].map(|path| Path::parse(path).unwrap());
        let field = |path: &&str| ((*path).to_owned(), (Path::parse(path).unwrap(), &one));
        let wanted = WantedKeys {
            fields: wanted.iter().map(field).collect(),
            granted: &granted,
            ..WantedKeys::default()
        };
        dropped(&wanted, &had).cloned().collect()
    }

    #[test]
    fn a_field_goes_unless_one_above_or_below_it_is_wanted() {
        for (had, wanted, goes) in [
            ("spec.a", "spec.b", true),
            ("spec.a", "spec.a", false),
            ("spec.a", "spec.a.b", false),
            ("spec.a.b", "spec.a", false),
            ("spec.a.b", "spec.a.c", true),
            ("spec.a", "spec.aa", true),
            (r#"spec["a.b"]"#, "spec.a", true),
            ("other.a", "spec.b", false),
        ] {
            let expected: &[&str] = if goes { &[had] } else { &[] };
            assert_eq!(
                gone(&[had], &["data.a", wanted, "spec.z"]),
                expected,
                "{had} {wanted}"
            );
        }
    }

    /// What a policy makes of these contents, one after the other; between them others change it.
    fn made(contents: [Value; 2], others: impl Fn(&mut Value)) -> (Value, Vec<String>) {
        let granted = [Path::parse("spec.selector").unwrap()];
        let own = OwnSpec::default();
        let reference = crate::sample::target("demo");
        let [first, then] = contents.map(|content| content.as_object().cloned().unwrap());
        let (first, then) = (
            WantedKeys::of(&own, &first, &granted),
            WantedKeys::of(&own, &then, &granted),
        );
        let mut body = json!({"metadata": {}});
        put(&first, None, &mut body);
        crate::sample::stamp("a", "uid-a").put(&mut body);
        others(&mut body);
        let object = |body: &Value| Object {
            reference: reference.clone(),
            version: String::new(),
            body: body.clone(),
        };
        let there = object(&body);
        let changed = changed(&then, &there);
        put(&then, Some(&there), &mut body);
        assert!(super::changed(&then, &object(&body)).is_empty(), "{body}");
        (body["spec"].take(), changed)
    }

    #[test]
    fn what_others_put_into_an_empty_map_is_no_change_of_ours() {
        let keys = r#"{"fields": ["spec.selector", "spec.size"]}"#;
        let mut object = Object {
            reference: crate::sample::target("demo"),
            version: String::new(),
            body: json!({"metadata": {"annotations": {labels::MANAGED_KEYS: keys}}, "spec": {"selector": {}, "size": 1}}),
        };
        crate::sample::stamp("a", "uid-a").put(&mut object.body);
        let before = view(&object);
        object.body["spec"]["selector"]["x"] = json!(2);
        assert_eq!(view(&object), before);
        object.body["spec"]["size"] = json!({});
        assert_ne!(view(&object), before);
    }

    #[test]
    fn empty_data_says_nothing() {
        let content = json!({"data": {}, "binaryData": {}});
        let granted = ["data", "binaryData"].map(|path| Path::parse(path).unwrap());
        let own = OwnSpec::default();
        let wanted = WantedKeys::of(&own, content.as_object().unwrap(), &granted);
        let named: Vec<_> = wanted.fields.keys().collect();
        assert_eq!(named, ["binaryData"]);
    }

    #[test]
    fn an_empty_map_is_made_and_takes_nothing_from_others() {
        let selector = |content: Value| json!({"spec": {"selector": content}});
        let (none, empty) = (json!({"spec": {}}), selector(json!({})));
        let ours = selector(json!({"a": 1}));
        let nobody = |_: &mut Value| {};
        let fills = |body: &mut Value| body["spec"]["selector"]["x"] = json!(2);
        // A map that stands around what is granted is not made.
        assert_eq!(made([none.clone(), none.clone()], nobody).0, json!(null));
        let spec = |contents: [&Value; 2]| made(contents.map(Clone::clone), nobody).0;
        assert_eq!(spec([&none, &empty]), json!({"selector": {}}));
        assert_eq!(spec([&empty, &ours]), json!({"selector": {"a": 1}}));
        assert_eq!(spec([&ours, &empty]), json!({"selector": {}}));
        assert_eq!(spec([&empty, &none]), json!({}));
        let (filled, changed) = made([empty.clone(), empty.clone()], fills);
        assert_eq!((filled, changed), (json!({"selector": {"x": 2}}), vec![]));
        let (left, _) = made([empty.clone(), none], fills);
        assert_eq!(left, json!({"selector": {"x": 2}}), "it is of others now");
        let (both, _) = made([ours, empty], fills);
        assert_eq!(both, json!({"selector": {"x": 2}}));
    }

    #[test]
    fn thousands_of_other_fields_take_no_more_than_their_number() {
        let paths = |name: &str| -> Vec<String> {
            (0..20_000)
                .map(|number| format!("data.{name}{number}"))
                .collect()
        };
        let (had, wanted) = (paths("a"), paths("b"));
        let [had, wanted] = [&had, &wanted].map(|paths| {
            let texts = paths.iter().map(String::as_str);
            texts.collect::<Vec<_>>()
        });
        assert_eq!(gone(&had, &wanted).len(), had.len());
    }
}
