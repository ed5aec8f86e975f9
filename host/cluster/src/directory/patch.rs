//! Fields that the agent lays over a user's object, each with the user's value from which it was computed.
//! A later change by the user takes effect, and stays in effect when the user takes it back.

use super::merge::merge;
use super::names::digest;
use serde_json::{Map, Value, json};
use transom_core::document::emit::to_yaml_in_order;
use transom_core::projection::Paths;
use transom_core::projection::path::{at, keys};
use transom_core::reference::ObjectRef;

/// Start of the first line of a patch's file, followed by the digest of the rest. Without this check, values of a
/// damaged file would pass for the user's, and stay.
const SEAL: &str = "# transom ";

/// The fields laid over one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Patch {
    /// The uid of the user's object, if it has one. Another object of the same name is not meant: what was decided
    /// about one request for a certificate says nothing about the next one.
    pub(super) uid: Option<String>,
    /// In the order in which they are applied.
    pub(super) fields: Vec<FieldPatch>,
}

/// One field of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FieldPatch {
    /// Dotted path.
    pub(super) path: String,
    /// The user's value when `value` was computed; `None` if the user's object did not have the field.
    pub(super) base: Option<Value>,
    /// The value laid over it; `None` removes the field.
    pub(super) value: Option<Value>,
}

impl Patch {
    /// Lays every field over `body`, the user's object as of the last [`Patch::rebased`].
    pub(super) fn lay(&self, body: &mut Value) {
        for field in &self.fields {
            set(body, &field.path, field.value.clone());
        }
    }

    /// What is left of the patch after `body` was read, the user's object; `None` if the user changed none of its
    /// fields. What gave way to a change is over for good: the values that the user has now are the new bases.
    pub(super) fn rebased(&self, body: &Value) -> Option<Self> {
        let is_of_another = self.is_of_another(body);
        let now = |field: &FieldPatch| get(body, &field.path).cloned();
        let mut fields = self.fields.iter();
        if !is_of_another && fields.all(|field| field.base == now(field)) {
            return None;
        }
        let fields = self.fields.iter().filter(|_| !is_of_another);
        let fields = fields.map(|field| field.rebased(now(field)));
        Some(Self {
            uid: self.uid.clone(),
            fields: fields.filter(|field| field.base != field.value).collect(),
        })
    }

    /// The paths of its fields; `None` if one cannot be read apart from the rest of an object.
    pub(super) fn paths(&self) -> Option<Paths> {
        let paths: Vec<&str> = self.fields.iter().map(|field| &*field.path).collect();
        Paths::parse(&paths).ok()
    }

    fn is_of_another(&self, body: &Value) -> bool {
        self.uid.is_some() && self.uid.as_deref() != uid(body)
    }

    /// Sets one field over `body`, the user's own object. A field that equals the user's value is dropped, and so is
    /// what was computed for another object.
    pub(super) fn take(&mut self, body: &Value, path: &str, value: &Value) {
        if self.is_of_another(body) {
            self.fields.clear();
        }
        self.uid = uid(body).map(str::to_owned);
        let base = get(body, path).cloned();
        let value = Some(value.clone()).filter(|value| !value.is_null());
        let keep = base != value;
        let taken = FieldPatch {
            path: path.to_owned(),
            base,
            value,
        };
        match self.fields.iter().position(|field| field.path == path) {
            Some(index) if keep => {
                if let Some(field) = self.fields.get_mut(index) {
                    *field = taken;
                }
            }
            Some(index) => drop(self.fields.remove(index)),
            None if keep => self.fields.push(taken),
            None => {}
        }
    }

    /// The text of a patch's file.
    pub(super) fn file(&self, reference: &ObjectRef) -> String {
        let fields: Vec<Value> = self.fields.iter().map(FieldPatch::document).collect();
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), json!(reference.name));
        if let Some(namespace) = &reference.namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        if let Some(uid) = &self.uid {
            metadata.insert("uid".to_owned(), json!(uid));
        }
        let document = json!({
            "apiVersion": reference.api_version, "kind": reference.kind, "metadata": metadata, "fields": fields,
        });
        let text = to_yaml_in_order(&document, &["apiVersion", "kind", "metadata"]);
        let text = format!(
            "# Fields that transom sets on an object of yours, and the values that your file had then.\n{text}"
        );
        format!("{SEAL}{}\n{text}", digest(text.as_bytes()))
    }

    /// Whether the bytes of a patch's file are unchanged since they were written.
    pub(super) fn is_whole(bytes: &[u8]) -> bool {
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(bytes.len());
        let (first, rest) = bytes.split_at(end);
        let seal = first.strip_prefix(SEAL.as_bytes());
        rest.get(1..)
            .is_some_and(|rest| seal == Some(digest(rest).as_bytes()))
    }

    /// The patch in a parsed file; `None` if it is none.
    pub(super) fn from_document(document: &Value) -> Option<Self> {
        let fields = document
            .get("fields")?
            .as_array()?
            .iter()
            .map(FieldPatch::from_document);
        Some(Self {
            uid: uid(document).map(str::to_owned),
            fields: fields.collect::<Option<_>>()?,
        })
    }
}

/// The uid of an object.
fn uid(body: &Value) -> Option<&str> {
    body.pointer("/metadata/uid").and_then(Value::as_str)
}

impl FieldPatch {
    /// The field over the value that the user has now: a three-way merge of what the user had, what the agent made of
    /// it, and what the user has now. Lists merge by element, so that new elements of both are kept; for any other
    /// conflict, also that of an element, the user's value counts.
    fn rebased(&self, now: Option<Value>) -> Self {
        let lists = [&self.base, &self.value, &now].map(|list| elements(list.as_ref()));
        let value = match lists {
            _ if now == self.base => self.value.clone(),
            [Some(base), Some(value), Some(list)] => {
                let merged = merge(base, value, list);
                (now.is_some() || !merged.is_empty()).then_some(Value::Array(merged))
            }
            _ => now.clone(),
        };
        Self {
            path: self.path.clone(),
            base: now,
            value,
        }
    }

    /// The form in a file.
    fn document(&self) -> Value {
        let mut field = Map::new();
        field.insert("path".to_owned(), json!(self.path));
        for (key, value) in [("base", &self.base), ("value", &self.value)] {
            if let Some(value) = value {
                field.insert(key.to_owned(), value.clone());
            }
        }
        Value::Object(field)
    }

    /// Reads the form in a file.
    fn from_document(field: &Value) -> Option<Self> {
        let part = |key| field.get(key).filter(|value| !value.is_null()).cloned();
        Some(Self {
            path: field.get("path")?.as_str()?.to_owned(),
            base: part("base"),
            value: part("value"),
        })
    }
}

/// The elements of a list, none for an absent one; `None` for any other value.
fn elements(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None => Some(&[]),
        Some(Value::Array(elements)) => Some(elements),
        Some(_) => None,
    }
}

/// The value under a dotted path; null counts as absent.
pub(super) fn get<'a>(body: &'a Value, path: &str) -> Option<&'a Value> {
    at(body, path)
        .filter(|_| !keys(path).is_empty())
        .filter(|value| !value.is_null())
}

/// Sets or removes the value under a dotted path. Makes missing maps on the way; does nothing if a value on the way is
/// no map.
pub(super) fn set(body: &mut Value, path: &str, value: Option<Value>) {
    let keys = keys(path);
    let Some((last, parents)) = keys.split_last() else {
        return;
    };
    let mut at = body;
    for key in parents {
        let Some(map) = at.as_object_mut() else {
            return;
        };
        if value.is_none() && !map.contains_key(key) {
            return;
        }
        let next = map.entry(key).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        at = next;
    }
    if let Some(map) = at.as_object_mut() {
        match value {
            Some(value) => drop(map.insert(last.clone(), value)),
            None => drop(map.remove(last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(base: Value, value: Value, now: Value) -> Value {
        let mut patch = Patch::default();
        patch.take(&json!({"spec": {"taints": base}}), "spec.taints", &value);
        let body = json!({"spec": {"taints": now}});
        let seen = read(&mut patch, body);
        seen.pointer("/spec/taints").cloned().unwrap_or_default()
    }

    /// The object with the patch over it, after the user's object was read.
    fn read(patch: &mut Patch, mut body: Value) -> Value {
        if let Some(rebased) = patch.rebased(&body) {
            let left = Some(rebased).filter(|rebased| !rebased.fields.is_empty());
            *patch = left.unwrap_or_default();
        }
        assert_eq!(patch.rebased(&body), None, "it is over nothing else now");
        patch.lay(&mut body);
        body
    }

    #[test]
    fn an_unchanged_field_gets_the_value() {
        assert_eq!(seen(json!([1]), json!([1, 2]), json!([1])), json!([1, 2]));
        assert_eq!(seen(Value::Null, json!([2]), Value::Null), json!([2]));
        assert_eq!(seen(json!([1]), Value::Null, json!([1])), Value::Null);
        assert_eq!(seen(json!("a"), json!("b"), json!("a")), json!("b"));
    }

    #[test]
    fn fields_of_one_object_are_not_laid_over_another_one_of_its_name() {
        let object = |uid: Value| json!({"metadata": {"name": "a", "uid": uid}});
        let (first, second) = (object(json!("1")), object(json!("2")));
        let mut patch = Patch::default();
        patch.take(&first, "status.x", &json!("decided"));
        let reference = ObjectRef::local("v1", "ConfigMap", None, "a");
        let document = serde_yaml::from_str(&patch.file(&reference)).unwrap();
        assert_eq!(Patch::from_document(&document).as_ref(), Some(&patch));
        for (body, is_laid) in [
            (first.clone(), true),
            (second.clone(), false),
            (object(Value::Null), false),
        ] {
            let body = read(&mut patch.clone(), body);
            assert_eq!(body.pointer("/status/x").is_some(), is_laid, "{body}");
        }
        let mut other = patch.clone();
        other.take(&second, "status.y", &json!("else"));
        assert_eq!(
            read(&mut other, second.clone())["status"],
            json!({"y": "else"})
        );
        read(&mut patch, second);
        assert_eq!(
            read(&mut patch, first.clone()),
            first,
            "it is over for good"
        );
        // Without a uid the name is all that there is.
        let mut patch = Patch::default();
        patch.take(&object(Value::Null), "status.x", &json!("decided"));
        assert_eq!(read(&mut patch, first)["status"], json!({"x": "decided"}));
    }

    #[test]
    fn a_list_that_the_user_changed_keeps_both_changes() {
        assert_eq!(
            seen(json!([1]), json!([1, 9]), json!([1, 2])),
            json!([1, 2, 9]),
            "both added"
        );
        assert_eq!(
            seen(json!([1, 2]), json!([1, 2, 9]), json!([2])),
            json!([2, 9]),
            "the user removed"
        );
        assert_eq!(
            seen(json!([1, 8]), json!([1]), json!([1, 8, 2])),
            json!([1, 2]),
            "we removed"
        );
        assert_eq!(
            seen(json!([1]), json!([1, 9]), json!([1, 9])),
            json!([1, 9]),
            "both added the same"
        );
        assert_eq!(
            seen(json!([1]), json!([1, 9]), Value::Null),
            json!([9]),
            "the user removed the field"
        );
        assert_eq!(
            seen(Value::Null, json!([9]), json!([1])),
            json!([1, 9]),
            "the user added the field"
        );
    }

    /// A taint, with a time if the agent set one.
    fn taint(key: &str, effect: &str, time: Option<&str>) -> Value {
        let mut taint = json!({"key": key, "effect": effect});
        if let Some(time) = time {
            taint["timeAdded"] = json!(time);
        }
        taint
    }

    #[test]
    fn a_taint_that_only_got_a_time_follows_the_users() {
        let a = |time| taint("a/b", "NoSelect", time);
        let (edited, other) = (taint("a/b", "Prefer", None), taint("c/d", "NoSelect", None));
        let own = || taint("own", "NoSelect", Some("1"));
        let seen = |now: Value| seen(json!([a(None)]), json!([a(Some("1")), own()]), now);
        for (now, expected, what) in [
            (json!([]), json!([own()]), "removed"),
            (Value::Null, json!([own()]), "removed with the field"),
            (json!([edited]), json!([edited, own()]), "another effect"),
            (json!([other]), json!([other, own()]), "another key"),
            (
                json!([other, a(None)]),
                json!([other, a(Some("1")), own()]),
                "one more",
            ),
            (
                json!([a(None), edited]),
                json!([a(Some("1")), edited, own()]),
                "one more effect",
            ),
        ] {
            assert_eq!(seen(now), expected, "{what}");
        }
    }

    #[test]
    fn of_two_effects_of_one_key_each_is_found_again() {
        let of = |effect, time| taint("a", effect, time);
        let base = json!([of("NoSelect", None), of("Prefer", None)]);
        let one = json!([of("Prefer", None)]);
        let timed = json!([of("NoSelect", Some("1")), of("Prefer", Some("2"))]);
        assert_eq!(
            seen(base.clone(), timed, one.clone()),
            json!([of("Prefer", Some("2"))])
        );
        // The agent removed the first one.
        let timed = json!([of("Prefer", Some("2"))]);
        assert_eq!(seen(base.clone(), timed.clone(), one), timed);
        assert_eq!(seen(base, timed, json!([of("NoSelect", None)])), json!([]));
    }

    #[test]
    fn a_condition_is_there_once() {
        let of = |kind: &str, status: &str, time: u8| json!({"type": kind, "status": status, "lastTransitionTime": time});
        let ours = json!([of("Available", "Unknown", 2), of("Synced", "True", 2)]);
        let newer = of("Available", "True", 3);
        for base in [json!([of("Available", "True", 1)]), json!([])] {
            assert_eq!(
                seen(base, ours.clone(), json!([newer])),
                json!([newer, of("Synced", "True", 2)]),
                "the user's is newer"
            );
        }
        let base = json!([of("Available", "True", 1), of("Joined", "True", 1)]);
        let dropped = json!([of("Joined", "True", 1)]);
        assert_eq!(
            seen(
                base,
                json!([of("Available", "Unknown", 2), of("Joined", "True", 1)]),
                dropped.clone()
            ),
            dropped,
            "the user's is gone"
        );
    }

    #[test]
    fn elements_without_a_key_are_told_by_content_or_by_order() {
        let rule = |kind: &str, verbs: Value| json!({"resources": [kind], "verbs": verbs});
        let (get, all) = (json!(["get"]), json!(["get", "list"]));
        let base = json!([rule("a", get.clone()), rule("b", get.clone())]);
        let more = json!([
            rule("a", all.clone()),
            rule("b", all.clone()),
            rule("own", get.clone())
        ]);
        let now = json!([rule("b", get.clone())]);
        assert_eq!(
            seen(base, more, now),
            json!([rule("b", all), rule("own", get)])
        );
        // A text is itself: what took the place of another one was added.
        assert_eq!(
            seen(json!(["a", "b"]), json!(["own", "b"]), json!(["b"])),
            json!(["b", "own"])
        );
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn what_gave_way_to_the_user_is_over_for_good() {
        let of = |key: &str, time| taint(key, "NoSelect", time);
        let (a, timed, own) = (of("a", None), of("a", Some("1")), of("own", Some("1")));
        for (base, value, edited, expected, what) in [
            (json!("a"), json!("b"), json!("c"), json!("a"), "a value"),
            (
                json!("a"),
                json!("b"),
                json!("b"),
                json!("a"),
                "the agent's value",
            ),
            (json!("a"), json!("b"), Value::Null, json!("a"), "no value"),
            (
                Value::Null,
                json!("b"),
                json!("c"),
                Value::Null,
                "a value for none",
            ),
            (
                json!([a]),
                json!([timed]),
                json!([]),
                json!([a]),
                "a timed element",
            ),
            (
                json!([a]),
                json!([timed, own]),
                Value::Null,
                json!([a, own]),
                "no list",
            ),
            (
                json!([a]),
                json!([]),
                json!([]),
                json!([a]),
                "an element that the agent removed",
            ),
            (
                json!([a]),
                json!([a, own]),
                json!([a, own]),
                json!([a]),
                "the agent's element",
            ),
            (
                json!([a]),
                json!([timed, own]),
                json!([a, of("b", None)]),
                json!([timed, own]),
                "one more",
            ),
        ] {
            let body = |value: &Value| json!({"spec": {"x": value}});
            let mut patch = Patch::default();
            patch.take(&body(&base), "spec.x", &value);
            read(&mut patch, body(&edited));
            let seen = read(&mut patch, body(&base));
            assert_eq!(seen["spec"]["x"], expected, "{what}");
            let is_over = expected == base;
            assert_eq!(patch.fields.is_empty(), is_over, "{what}: {patch:?}");
        }
    }

    #[test]
    fn fields_end_one_by_one() {
        let users = |x: u8, y: u8| json!({"metadata": {"labels": {"x": x}}, "status": {"y": y}});
        let mut patch = Patch::default();
        patch.take(&users(0, 0), "metadata.labels.x", &json!(9));
        patch.take(&users(0, 0), "status.y", &json!(9));
        assert_eq!(read(&mut patch, users(1, 0)), users(1, 9));
        assert_eq!(read(&mut patch, users(0, 0)), users(0, 9));
        assert_eq!(read(&mut patch, users(0, 1)), users(0, 1));
        assert_eq!(patch.fields, []);
    }

    #[test]
    fn other_user_changes_win() {
        assert_eq!(seen(json!("a"), json!("b"), json!("c")), json!("c"));
        assert_eq!(seen(json!([1]), json!([1, 9]), json!("c")), json!("c"));
        assert_eq!(seen(json!("a"), json!("b"), Value::Null), Value::Null);
    }

    #[test]
    fn forgets_a_field_that_the_user_set_to_the_same_value() {
        let mut patch = Patch::default();
        let body = json!({"spec": {"taints": [1]}});
        patch.take(&body, "spec.taints", &json!([1, 2]));
        patch.take(&body, "spec.other", &Value::Null);
        assert_eq!(patch.fields.len(), 1);
        patch.take(&body, "spec.taints", &json!([1]));
        assert_eq!(patch, Patch::default());
    }

    #[test]
    fn a_file_reads_back() {
        let mut patch = Patch::default();
        let body = json!({"spec": {"taints": [{"key": "yes"}]}});
        patch.take(
            &body,
            "spec.taints",
            &json!([{"key": "yes"}, {"key": "012"}]),
        );
        patch.take(&body, "spec.hubAcceptsClient", &json!(true));
        let text = patch.file(&ObjectRef::local("v1", "A", Some("n"), "a"));
        let document: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(Patch::from_document(&document), Some(patch));
        assert_eq!(document["metadata"], json!({"name": "a", "namespace": "n"}));
        for broken in [
            json!(null),
            json!({"fields": 1}),
            json!({"fields": [{"value": 1}]}),
        ] {
            assert_eq!(Patch::from_document(&broken), None);
        }
    }

    #[test]
    fn a_parent_that_is_not_a_map_stays() {
        let mut body = json!({"spec": "text"});
        set(&mut body, "spec.taints", Some(json!([1])));
        assert_eq!(body, json!({"spec": "text"}));
        set(&mut body, "a.b.c", Some(json!(1)));
        set(&mut body, "x.y", None);
        assert_eq!(body, json!({"spec": "text", "a": {"b": {"c": 1}}}));
    }
}
