//! Which fields of an object a guest declared: extracts their values, and tells which of them differ. Undeclared
//! values do not cross, nor do the values of paths that were declared for changes only.

mod audience;
mod null;
pub mod path;
pub mod read;

use crate::contract::description::Read;
use crate::contract::{Change, Primary};
use crate::digest::Digest;
use crate::object::Object;
use audience::Audience;
use path::{Path, PathError, Segment};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Declared paths, compiled once when a guest is loaded. A copy is cheap: each watch of a kind has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Arc<PathTree>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PathTree {
    list: Vec<Path>,
    root: Node,
}

/// The selection below one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    whole: bool,
    fields: BTreeMap<Box<str>, Node>,
    elements: BTreeMap<Box<str>, Node>,
}

impl Paths {
    /// Reads paths.
    ///
    /// # Errors
    /// The first text that is not a path.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, PathError> {
        let mut paths = Self::default();
        for text in texts {
            paths.add(Path::parse(text.as_ref())?);
        }
        Ok(paths)
    }

    fn add(&mut self, path: Path) {
        if self.has(&path) {
            return;
        }
        let tree = Arc::make_mut(&mut self.0);
        let mut node = &mut tree.root;
        for segment in path.segments() {
            node = match segment {
                Segment::Field(key) => node.fields.entry(key.clone()).or_default(),
                Segment::Element(element) => node.elements.entry(element.clone()).or_default(),
            };
        }
        node.whole = true;
        tree.list.push(path);
    }

    /// Whether a path is one of these.
    fn has(&self, path: &Path) -> bool {
        let mut segments = path.segments().iter();
        let node = segments.try_fold(&self.0.root, |node, segment| match segment {
            Segment::Field(key) => node.fields.get(key),
            Segment::Element(element) => node.elements.get(element),
        });
        node.is_some_and(|node| node.whole)
    }

    /// Adds the paths of another set.
    pub fn extend(&mut self, other: &Self) {
        other.list().iter().for_each(|path| self.add(path.clone()));
    }

    /// The paths, in the order in which they were declared, each once.
    pub fn list(&self) -> &[Path] {
        &self.0.list
    }

    /// The declared fields of a value, nested as in the value, without those that are null; lists keep their order.
    pub fn project(&self, value: &Value) -> Value {
        select(&self.0.root, value, Audience::Guest).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// As [`Paths::project`], but a value of another shape than a path needs becomes an empty map, list or string.
    /// Every decision by these paths is then the same as for the whole value.
    pub fn retain(&self, value: &Value) -> Value {
        select(&self.0.root, value, Audience::Host).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The union of several sets of paths.
    pub fn union<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut union = Self::default();
        all.into_iter().for_each(|paths| union.extend(paths));
        union
    }

    /// The first place where a declared path needs a map or a list and the value has something else.
    pub fn misfit(&self, value: &Value) -> Option<String> {
        self.list().iter().find_map(|path| misfit(path, value))
    }
}

/// The selected part of a value; `None` when nothing of it is selected.
fn select(node: &Node, value: &Value, audience: Audience) -> Option<Value> {
    if node.whole {
        return audience.whole(value);
    }
    match value {
        Value::Object(map) => {
            let kept: Map<_, _> = node
                .fields
                .iter()
                .filter_map(|(key, below)| {
                    Some((key.to_string(), select(below, map.get(&**key)?, audience)?))
                })
                .collect();
            let odd = audience == Audience::Host && !node.elements.is_empty();
            (!kept.is_empty() || odd).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<_> = items
                .iter()
                .filter_map(|item| select_element(node, item, audience))
                .collect();
            let odd = audience == Audience::Host && !node.fields.is_empty();
            (!kept.is_empty() || odd).then_some(Value::Array(kept))
        }
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            (audience == Audience::Host).then(|| Value::String(String::new()))
        }
    }
}

/// The selected part of an element of a list; its `type` always stays, because it names the element.
fn select_element(node: &Node, item: &Value, audience: Audience) -> Option<Value> {
    let Some(kind) = type_of(item) else {
        // Without a `type` it may be any element, so the fact that it is there must stay.
        return (audience == Audience::Host && !node.elements.is_empty()).then_some(Value::Null);
    };
    let mut kept = select(node.elements.get(kind)?, item, audience)
        .unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(map) = kept.as_object_mut() {
        map.insert("type".to_owned(), Value::from(kind));
    }
    Some(kept)
}

/// The first place of a path where the value has the wrong shape.
fn misfit(path: &Path, value: &Value) -> Option<String> {
    let mut here = value;
    for (at, segment) in path.segments().iter().enumerate() {
        // As text only where it does not fit.
        let place = || place(path.segments().iter().take(at));
        let next = match (segment, here) {
            (_, Value::Null) => return None,
            (Segment::Field(key), Value::Object(map)) => map.get(&**key),
            (Segment::Element(element), Value::Array(items)) => {
                let found = items.iter().find(|item| type_of(item) == Some(element));
                if found.is_none() && items.iter().any(|item| type_of(item).is_none()) {
                    return Some(place());
                }
                found
            }
            _ => return Some(place()),
        };
        here = next?;
    }
    None
}

/// A place as text.
fn place<'a>(segments: impl Iterator<Item = &'a Segment>) -> String {
    segments.fold(String::new(), |place, segment| match segment {
        Segment::Element(element) => format!("{place}[{element}]"),
        Segment::Field(key) if place.is_empty() => key.to_string(),
        Segment::Field(key) => format!("{place}.{key}"),
    })
}

/// The `type` that names an element of a list.
fn type_of(item: &Value) -> Option<&str> {
    item.get("type").and_then(Value::as_str)
}

/// All values at a path except null: several only where a list names one type twice.
fn at<'a>(path: &Path, value: &'a Value) -> Vec<&'a Value> {
    path.segments().iter().fold(vec![value], |found, segment| {
        found
            .into_iter()
            .flat_map(|value| match (segment, value) {
                (Segment::Field(key), Value::Object(map)) => map.get(&**key).into_iter().collect(),
                (Segment::Element(element), Value::Array(items)) => items
                    .iter()
                    .filter(|item| type_of(item) == Some(element))
                    .collect(),
                _ => Vec::new(),
            })
            .filter(|value| !value.is_null())
            .collect()
    })
}

/// The declared paths at which two values differ, sorted; one path per key where both sides are maps or absent.
pub fn changed(before: &Value, after: &Value, paths: &Paths) -> Vec<String> {
    let mut differing = BTreeSet::new();
    for path in paths.list() {
        let (old, new) = (at(path, before), at(path, after));
        let is_same = |(old, new): (&&Value, &&Value)| null::same(old, new);
        if old.len() != new.len() || !old.iter().zip(&new).all(is_same) {
            differing.extend(differing_keys(path, &old, &new));
        }
    }
    differing.into_iter().collect()
}

/// The paths of the keys that differ, or the path itself where no single key does.
fn differing_keys(path: &Path, old: &[&Value], new: &[&Value]) -> Vec<String> {
    let map_of = |found: &[&Value]| match found {
        [] => Some(Map::new()),
        [Value::Object(map)] => Some(map.clone()),
        _ => None,
    };
    let (Some(old), Some(new)) = (map_of(old), map_of(new)) else {
        return vec![path.to_string()];
    };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing: Vec<_> = keys
        .into_iter()
        .filter(|key| !null::same_field(old.get(*key), new.get(*key)))
        .map(|key| path.child(key).to_string())
        .collect();
    match differing.is_empty() {
        true => vec![path.to_string()],
        false => differing,
    }
}

/// What one guest declared of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Paths whose values cross.
    pub fields: Paths,
    /// Paths of which only the fact of a change crosses.
    pub changes: Paths,
}

impl Declared {
    /// Compiles the paths that a guest declares.
    ///
    /// # Errors
    /// The first text that is not a path.
    pub fn compile(read: &Read) -> Result<Self, PathError> {
        Ok(Self {
            fields: Paths::parse(&read.fields)?,
            changes: Paths::parse(&read.changes)?,
        })
    }

    /// An object as its guest sees it.
    pub fn primary(&self, object: &Object) -> Primary {
        Primary {
            reference: object.reference.clone(),
            uid: object.uid().to_owned(),
            created_seconds: object.created_seconds(),
            deleting: object.deleting(),
            fields: self.fields.project(&object.body),
        }
    }

    /// Cuts the primary of a case to what crosses.
    pub fn cut(&self, primary: Primary) -> Primary {
        Primary {
            fields: self.fields.project(&primary.fields),
            ..primary
        }
    }

    /// Cuts the change of a case to what crosses; `changed` keeps the paths that are declared or lie below a declared
    /// one.
    pub fn cut_change(&self, change: Change) -> Change {
        let Change {
            before,
            after,
            mut changed,
        } = change;
        changed.retain(|text| Path::parse(text).is_ok_and(|path| self.covers(&path)));
        Change {
            before: self.cut(before),
            after: self.cut(after),
            changed,
        }
    }

    fn covers(&self, path: &Path) -> bool {
        let mut declared = self.fields.list().iter().chain(self.changes.list());
        declared.any(|declared| path.segments().starts_with(declared.segments()))
    }

    /// The first place where an object has another shape than a declared path needs.
    pub fn misfit(&self, object: &Object) -> Option<String> {
        self.fields.misfit(&object.body)
    }

    /// Digests of the values at the paths that were declared for changes only. The values themselves are not kept.
    pub fn fingerprints(&self, object: &Object) -> BTreeMap<String, Digest> {
        fingerprints(self.changes.list(), object)
    }
}

/// Digests of the values at some paths, one for each key of a map.
pub fn fingerprints(paths: &[Path], object: &Object) -> BTreeMap<String, Digest> {
    let mut fingerprints = BTreeMap::new();
    for path in paths {
        let place = path.place();
        match at(&place, &object.body).as_slice() {
            [] => {}
            [Value::Object(map)] => {
                let begins = |key: &str| path.prefix().is_none_or(|prefix| key.starts_with(prefix));
                fingerprints.extend(
                    map.iter()
                        .filter(|(key, value)| begins(key) && !value.is_null())
                        .map(|(key, value)| {
                            let digest = Digest::of(&null::present(value));
                            (place.child(key).to_string(), digest)
                        }),
                );
            }
            found => {
                let all = Value::Array(found.iter().map(|value| null::present(value)).collect());
                fingerprints.insert(path.to_string(), Digest::of(&all));
            }
        }
    }
    fingerprints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{hosted, object};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn an_element_without_a_type_may_match_any_and_is_kept() {
        let paths = Paths::parse(&["status.conditions[Available].status"]).unwrap();
        let place = Some("status.conditions".to_owned());
        for odd in [
            json!("text"),
            json!(null),
            json!(["x"]),
            json!({"status": "True"}),
            json!({"type": 1}),
        ] {
            let mut body = json!({"status": {"conditions": [odd, {"type": "Other"}]}});
            assert_eq!(paths.misfit(&body), place, "{odd}");
            let kept = paths.retain(&body);
            assert_eq!(paths.misfit(&kept), place, "kept: {kept}");
            assert!(!kept.to_string().contains("text"), "{kept}");
            body["status"]["conditions"][1]["type"] = json!("Available");
            assert_eq!(paths.misfit(&body), None, "what is looked for is there");
        }
    }

    #[test]
    fn each_path_is_there_once_however_many_there_are() {
        let texts = |from: usize| -> Vec<String> {
            let numbers = from..from + 50_000;
            numbers.map(|number| format!("spec.a{number}")).collect()
        };
        let mut paths = Paths::parse(&texts(0)).unwrap();
        paths.extend(&Paths::parse(&texts(25_000)).unwrap());
        assert_eq!(paths.list().len(), 75_000);
        let near = ["a", "a.b", "a[b]", "a.b", "a", r#"["a"]"#];
        let near = Paths::parse(&near).unwrap();
        let near = near.list().iter().map(ToString::to_string);
        assert_eq!(near.collect::<Vec<_>>(), ["a", "a.b", "a[b]"]);
    }

    fn hosted_cluster() -> Value {
        json!({
            "metadata": {"name": "demo", "annotations": {"a.b/c": "1", "d": "2"}, "none": null},
            "spec": {"secret": "never", "none": null, "some": {"none": null}},
            "status": {
                "version": {"history": [{"state": "Completed"}], "desired": "x"},
                "conditions": [
                    {"type": "Available", "status": "True", "reason": "AsExpected"},
                    {"type": "Other", "status": "False"},
                ],
            },
        })
    }

    fn paths(texts: &[&str]) -> Paths {
        Paths::parse(texts).unwrap()
    }

    #[test]
    fn keeps_only_declared_fields() {
        for (declared, left) in [
            (vec![], json!({})),
            (vec!["status.nothing", "spec.secret.deeper"], json!({})),
            (
                vec!["metadata.annotations[\"a.b/c\"]"],
                json!({"metadata": {"annotations": {"a.b/c": "1"}}}),
            ),
            // Null is no value.
            (vec!["metadata.none", "spec.none"], json!({})),
            (vec!["spec.some"], json!({"spec": {"some": {}}})),
            (
                vec!["status.version.history", "metadata.name"],
                json!({"metadata": {"name": "demo"}, "status": {"version": {"history": [{"state": "Completed"}]}}}),
            ),
            (
                vec!["status.conditions[Available]"],
                json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "AsExpected"}]}}),
            ),
            (
                vec![
                    "status.conditions[Other].status",
                    "status.conditions[Available].reason",
                ],
                json!({"status": {"conditions": [{"type": "Available", "reason": "AsExpected"}, {"type": "Other", "status": "False"}]}}),
            ),
            (
                vec!["status.version", "status.version.desired"],
                json!({"status": {"version": {"history": [{"state": "Completed"}], "desired": "x"}}}),
            ),
        ] {
            assert_eq!(
                paths(&declared).project(&hosted_cluster()),
                left,
                "{declared:?}"
            );
        }
    }

    #[test]
    fn differences_are_named_by_key() {
        let declared = paths(&[
            "status.version.history",
            "metadata.annotations",
            "status.conditions[Available]",
            "spec.x",
        ]);
        let before = hosted_cluster();
        let (d, e, quoted) = (
            "metadata.annotations.d",
            "metadata.annotations.e",
            "metadata.annotations[\"a.b/c\"]",
        );
        let history = "status.version.history";
        let of_condition = |field: &str| format!("status.conditions[Available].{field}");
        let (reason, status, kind) = (
            of_condition("reason"),
            of_condition("status"),
            of_condition("type"),
        );
        let annotations = "/metadata/annotations";
        for (pointer, value, differing) in [
            ("/metadata/name", json!("x"), vec![]),
            ("/spec/secret", json!("x"), vec![]),
            (
                annotations,
                json!({"a.b/c": "2", "e": "1"}),
                vec![d, e, quoted],
            ),
            (annotations, json!(null), vec![d, quoted]),
            (annotations, json!("odd"), vec!["metadata.annotations"]),
            ("/status/version/history", json!([]), vec![history]),
            (
                "/status/conditions/0/status",
                json!("False"),
                vec![&*status],
            ),
            ("/status/conditions/1/status", json!("True"), vec![]),
            (
                "/status",
                json!(null),
                vec![&*reason, &*status, &*kind, history],
            ),
        ] {
            let mut after = before.clone();
            *after.pointer_mut(pointer).unwrap() = value;
            assert_eq!(changed(&before, &after, &declared), differing, "{pointer}");
            assert_eq!(
                changed(&after, &before, &declared),
                differing,
                "{pointer}, back"
            );
        }
    }

    #[test]
    fn a_duplicate_element_hides_no_difference() {
        let declared = paths(&["c[X].s"]);
        let twice = json!({"c": [{"type": "X", "s": 1}, {"type": "X", "s": 2}]});
        assert_eq!(declared.project(&twice), twice);
        assert_eq!(
            changed(&json!({"c": [{"type": "X", "s": 1}]}), &twice, &declared),
            ["c[X].s"]
        );
    }

    #[test]
    fn wrong_shapes_are_named() {
        let declared = paths(&[
            "status.conditions[Available].status",
            "status.version.history",
        ]);
        for (value, place) in [
            (json!({}), None),
            (json!({"status": null}), None),
            (
                json!({"status": {"conditions": [], "version": {"history": 3}}}),
                None,
            ),
            (json!({"status": "x"}), Some("status")),
            (
                json!({"status": {"conditions": {}}}),
                Some("status.conditions"),
            ),
            (json!({"status": {"version": []}}), Some("status.version")),
            (json!([]), Some("")),
        ] {
            assert_eq!(declared.misfit(&value).as_deref(), place, "{value}");
        }
    }

    #[test]
    fn keeps_only_fingerprints_of_change_fields() {
        let read = Read {
            api_version: "v1".to_owned(),
            kind: "X".to_owned(),
            fields: vec![],
            changes: vec![
                "metadata.annotations".to_owned(),
                "status.version.history".to_owned(),
            ],
        };
        let fingerprints = Declared::compile(&read)
            .unwrap()
            .fingerprints(&object(hosted("demo"), hosted_cluster()));
        let places: Vec<_> = fingerprints.keys().collect();
        assert_eq!(
            places,
            [
                "metadata.annotations.d",
                "metadata.annotations[\"a.b/c\"]",
                "status.version.history"
            ]
        );
    }

    /// JSON with few keys, so that paths hit.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!("")),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::btree_map("[abc]", inner.clone(), 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                proptest::collection::vec(
                    ("[XY]", inner).prop_map(|(kind, below)| json!({"type": kind, "a": below})),
                    0..3
                )
                .prop_map(Value::Array),
            ]
        })
    }

    fn declared() -> impl Strategy<Value = Vec<String>> {
        let tail = prop_oneof!["\\.[abc]", "\\[[XY]\\]"];
        let path = ("[abc]", proptest::collection::vec(tail, 0..3))
            .prop_map(|(head, tail)| head + &tail.concat());
        proptest::collection::vec(path, 0..4)
    }

    proptest! {
        #[test]
        fn projecting_twice_changes_nothing(value in value(), texts in declared()) {
            let declared = Paths::parse(&texts).unwrap();
            let once = declared.project(&value);
            prop_assert_eq!(declared.project(&once), once);
        }

        #[test]
        fn undeclared_fields_make_no_difference(before in value(), after in value(), texts in declared()) {
            let declared = Paths::parse(&texts).unwrap();
            let (old, new) = (declared.project(&before), declared.project(&after));
            prop_assert_eq!(changed(&before, &after, &declared), changed(&old, &new, &declared));
        }

        #[test]
        fn the_retained_part_gives_the_same_decision_as_the_whole(before in value(), after in value(), mine in declared(), others in declared()) {
            let declared = Declared { fields: Paths::parse(&mine).unwrap(), changes: Paths::parse(&mine).unwrap() };
            let all = Paths::union([&declared.fields, &Paths::parse(&others).unwrap()]);
            let [old, new] = [&before, &after].map(|value| all.retain(value));
            prop_assert_eq!(declared.fields.project(&new), declared.fields.project(&after));
            prop_assert_eq!(declared.fields.misfit(&new), declared.fields.misfit(&after));
            prop_assert_eq!(changed(&old, &new, &declared.fields), changed(&before, &after, &declared.fields));
            let fingerprints = |value: &Value| declared.fingerprints(&object(hosted("demo"), value.clone()));
            prop_assert_eq!(fingerprints(&new), fingerprints(&after));
            prop_assert_eq!(all.retain(&new), new);
        }

        #[test]
        fn a_partial_read_projects_like_the_whole(value in value(), managed in value(), texts in declared(), all in any::<bool>()) {
            let mut body = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "managedFields": managed, "labels": {"a": "b"}}});
            body.as_object_mut().unwrap().extend(value.as_object().cloned().unwrap_or_default());
            let fields = Paths::parse(&texts).unwrap();
            let keep = crate::watches::Keep { fields: (!all).then_some(fields), ..Default::default() };
            let read = read::object(&body.to_string(), keep.fields.as_ref()).unwrap();
            prop_assert!(read.pointer("/metadata/managedFields").is_none());
            prop_assert_eq!(keep.project(read), keep.project(body));
        }

        #[test]
        fn every_difference_has_a_name(before in value(), after in value(), texts in declared()) {
            let declared = Paths::parse(&texts).unwrap();
            let differing = changed(&before, &after, &declared);
            prop_assert_eq!(&differing, &changed(&after, &before, &declared));
            prop_assert!(changed(&before, &before, &declared).is_empty());
            for text in differing {
                prop_assert!(path::Path::parse(&text).is_ok());
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            if let Ok(path) = path::Path::parse(&text) {
                prop_assert_eq!(path::Path::parse(&path.to_string()).unwrap(), path);
            }
        }
    }
}
