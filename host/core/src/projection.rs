//! Which fields of an object a guest declared: cut out what crosses, and say which of it differs.
//! Never lets an undeclared value through; never gives out the value of a path of which only changes were declared.

pub mod path;

use crate::contract::Subject;
use crate::contract::description::Read;
use crate::digest::Digest;
use crate::object::Object;
use path::{Path, PathError, Segment};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Declared paths, compiled once when a guest is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    list: Vec<Path>,
    root: Node,
}

/// What is selected below one place.
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
    /// At the first text that is no path.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, PathError> {
        let mut paths = Self::default();
        for text in texts {
            paths.add(Path::parse(text.as_ref())?);
        }
        Ok(paths)
    }

    fn add(&mut self, path: Path) {
        let mut node = &mut self.root;
        for segment in path.segments() {
            node = match segment {
                Segment::Field(key) => node.fields.entry(key.clone()).or_default(),
                Segment::Element(element) => node.elements.entry(element.clone()).or_default(),
            };
        }
        node.whole = true;
        if !self.list.contains(&path) {
            self.list.push(path);
        }
    }

    /// The paths, in the order in which they were declared, each once.
    pub fn list(&self) -> &[Path] {
        &self.list
    }

    /// The declared fields of a value, nested as they are there; lists keep the order of what is left of them.
    pub fn project(&self, value: &Value) -> Value {
        select(&self.root, value).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// Where a value has another shape than a declared path needs: a map or a list was expected and is something else.
    pub fn misfit(&self, value: &Value) -> Option<String> {
        self.list.iter().find_map(|path| misfit(path, value))
    }
}

/// What is left of a value under a node; nothing when nothing of it is selected.
fn select(node: &Node, value: &Value) -> Option<Value> {
    if node.whole {
        return Some(value.clone());
    }
    match value {
        Value::Object(map) => {
            let kept: Map<_, _> = node
                .fields
                .iter()
                .filter_map(|(key, below)| Some((key.to_string(), select(below, map.get(&**key)?)?)))
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<_> = items.iter().filter_map(|item| select_element(node, item)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// What is left of an element of a list; its `type` always stays, because it names the element.
fn select_element(node: &Node, item: &Value) -> Option<Value> {
    let kind = item.get("type")?.as_str()?;
    let mut kept = select(node.elements.get(kind)?, item).unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(map) = kept.as_object_mut() {
        map.insert("type".to_owned(), Value::from(kind));
    }
    Some(kept)
}

/// The first place of a path at which a value has the wrong shape.
fn misfit(path: &Path, value: &Value) -> Option<String> {
    let mut here = value;
    let mut place = String::new();
    for segment in path.segments() {
        let next = match (segment, here) {
            (_, Value::Null) => return None,
            (Segment::Field(key), Value::Object(map)) => map.get(&**key),
            (Segment::Element(element), Value::Array(items)) => items.iter().find(|item| is_of_type(item, element)),
            _ => return Some(place),
        };
        here = next?;
        place = extend(&place, segment);
    }
    None
}

/// A place as text, one segment further.
fn extend(place: &str, segment: &Segment) -> String {
    match segment {
        Segment::Element(element) => format!("{place}[{element}]"),
        Segment::Field(key) if place.is_empty() => key.to_string(),
        Segment::Field(key) => format!("{place}.{key}"),
    }
}

fn is_of_type(item: &Value, kind: &str) -> bool {
    item.get("type").and_then(Value::as_str) == Some(kind)
}

/// All values at a path, null counting as nothing: several only where a list names one type twice.
fn at<'a>(path: &Path, value: &'a Value) -> Vec<&'a Value> {
    path.segments().iter().fold(vec![value], |found, segment| {
        found
            .into_iter()
            .flat_map(|value| match (segment, value) {
                (Segment::Field(key), Value::Object(map)) => map.get(&**key).into_iter().collect(),
                (Segment::Element(element), Value::Array(items)) => {
                    items.iter().filter(|item| is_of_type(item, element)).collect()
                }
                _ => Vec::new(),
            })
            .filter(|value| !value.is_null())
            .collect()
    })
}

/// The declared paths at which two values differ, sorted; where both sides are maps or nothing, one path per key.
pub fn changed(before: &Value, after: &Value, paths: &Paths) -> Vec<String> {
    let mut differing = BTreeSet::new();
    for path in paths.list() {
        let (old, new) = (at(path, before), at(path, after));
        if old != new {
            differing.extend(differing_keys(path, &old, &new));
        }
    }
    differing.into_iter().collect()
}

/// The paths of the keys that differ, or the path itself where no single key does.
fn differing_keys(path: &Path, old: &[&Value], new: &[&Value]) -> Vec<String> {
    let empty = Map::new();
    let map_of = |found: &[&Value]| match found {
        [] => Some(empty.clone()),
        [Value::Object(map)] => Some(map.clone()),
        _ => None,
    };
    let (Some(old), Some(new)) = (map_of(old), map_of(new)) else { return vec![path.to_string()] };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing: Vec<_> =
        keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).map(|key| path.child(key).to_string()).collect();
    if differing.is_empty() { vec![path.to_string()] } else { differing }
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
    /// Compiles what a guest says it reads.
    ///
    /// # Errors
    /// At the first text that is no path.
    pub fn compile(read: &Read) -> Result<Self, PathError> {
        Ok(Self { fields: Paths::parse(&read.fields)?, changes: Paths::parse(&read.changes)? })
    }

    /// An object as its guest sees it.
    pub fn subject(&self, object: &Object) -> Subject {
        Subject {
            reference: object.reference.clone(),
            uid: object.uid().to_owned(),
            created_seconds: object.created_seconds(),
            deleting: object.deleting(),
            fields: self.fields.project(&object.body),
        }
    }

    /// Where an object has another shape than a declared path needs.
    pub fn misfit(&self, object: &Object) -> Option<String> {
        self.fields.misfit(&object.body)
    }

    /// Marks of what is under the paths of which only changes were declared, one for each key of a map.
    /// The values themselves are not kept.
    pub fn marks(&self, object: &Object) -> BTreeMap<String, Digest> {
        let mut marks = BTreeMap::new();
        for path in self.changes.list() {
            match at(path, &object.body).as_slice() {
                [] => {}
                [Value::Object(map)] => {
                    marks.extend(map.iter().map(|(key, value)| (path.child(key).to_string(), Digest::of(value))));
                }
                found => {
                    let all = Value::Array(found.iter().map(|value| (*value).clone()).collect());
                    marks.insert(path.to_string(), Digest::of(&all));
                }
            }
        }
        marks
    }
}
