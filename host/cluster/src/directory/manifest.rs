//! Parses the bytes of a manifest file into objects. An error contains no value of the file.

use super::{SizeLimits, compact};
use crate::parallel::in_batches;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use transom_api::KnownReason;
use transom_core::document::{
    self, DocumentError, List, Piece, list_of, of_kind, parse_each, parse_one,
};
use transom_core::reference::ObjectRef;
use transom_core::share::room;

/// Items of a large List that a thread parses at a time.
const BATCH: usize = 64;
/// Items of more bytes are parsed one at a time, because aliases can make them large in memory.
const COSTLY: usize = 16 << 10;
/// How deep Lists may be nested.
const LIST_DEPTH: usize = 4;
/// A List with more bytes than this is read item by item.
const LARGE: usize = 1 << 20;
/// The most values in one document.
const NODES: usize = 10_000_000;
/// The most objects in a file, whatever their size.
const MANY: usize = 10_000;
/// The least bytes per object, on average, for a file with more objects. The kept form of an object is larger than a
/// small object, and a file must not take more than eight times its bytes.
const LEAST: usize = 96;
/// The deepest nesting of maps and lists.
const DEPTH: usize = 100;

/// One object of a file: its reference, and all of it as compact JSON.
#[derive(Clone, PartialEq)]
pub(super) struct FoundObject {
    /// Which object.
    pub(super) reference: Arc<ObjectRef>,
    /// Compact JSON.
    pub(super) text: Arc<str>,
    /// Upper bound of the bytes that it takes once it is parsed.
    pub(super) weight: usize,
}

impl FoundObject {
    /// An object with its compact JSON.
    pub(super) fn new(reference: ObjectRef, text: String) -> Self {
        Self {
            reference: reference.into(),
            weight: room::of_text(text.as_bytes()),
            text: text.into(),
        }
    }
}

/// Why a file cannot be used. Contains no value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileFault {
    /// The reason in one word.
    pub(super) reason: KnownReason,
    /// Document, line, column or field, and what is wrong there.
    pub(super) message: String,
    /// The object concerned, if it is known.
    pub(super) objects: Vec<Arc<ObjectRef>>,
}

impl FileFault {
    /// A file that is no manifest.
    pub(super) fn invalid(message: String) -> Self {
        Self {
            reason: KnownReason::ManifestInvalid,
            message,
            objects: Vec::new(),
        }
    }

    /// A file that cannot be read from the disk.
    pub(super) fn unread(cause: &std::io::Error) -> Self {
        Self {
            reason: KnownReason::ReadFailed,
            message: format!("failed to read it: {cause}"),
            objects: Vec::new(),
        }
    }
}

/// Every object of a file, in its order; Lists are flattened, `stringData` becomes part of `data`. The first fault
/// refuses the whole file, so that no part of a half-written file is used.
pub(super) fn objects(
    bytes: &[u8],
    cluster: &str,
    limits: SizeLimits,
) -> Result<Vec<FoundObject>, FileFault> {
    let list = (bytes.len() > LARGE).then(|| List::of(bytes)).flatten();
    match list.map(|list| items(&list, bytes.len(), cluster, limits)) {
        Some(Ok(found)) => Ok(found),
        // The file may have a form that only the full parser understands.
        Some(Err(fault)) => documents(bytes, cluster, limits).map_err(|_| fault),
        None => documents(bytes, cluster, limits),
    }
}

/// Every object of a file, document by document.
fn documents(
    bytes: &[u8],
    cluster: &str,
    limits: SizeLimits,
) -> Result<Vec<FoundObject>, FileFault> {
    let mut found = Vec::new();
    parse_each(bytes, budget(limits), |parsed| {
        let place = format!("document {}, line {}", parsed.number, parsed.line);
        let value = parsed
            .value
            .map_err(|error| unparsable(parsed.number, &error))?;
        flatten(value, &place, LIST_DEPTH, &mut |object, place| {
            allow_one_more(found.len(), bytes.len())?;
            found.push(one(object, place, cluster, limits.object_bytes)?);
            Ok(())
        })
    })?;
    Ok(found)
}

/// Every object of one List, item by item.
fn items(
    list: &List<'_>,
    bytes: usize,
    cluster: &str,
    limits: SizeLimits,
) -> Result<Vec<FoundObject>, FileFault> {
    let fault = |mut error: DocumentError, offset: usize| {
        error.line = error.line.map(|line| line + offset);
        unparsable(1, &error)
    };
    let no_list = || FileFault::invalid("document 1: it is not a List".to_owned());
    let head = parse_one(list.head.as_bytes(), budget(limits)).map_err(|error| fault(error, 0))?;
    let Value::Object(head) = head else {
        return Err(no_list());
    };
    let kind = list_of(&head).ok_or_else(no_list)?;
    let (counted, costly) = (AtomicUsize::new(0), Mutex::new(()));
    let parse = |index: usize, piece: Piece<'_>, found: &mut Vec<FoundObject>| {
        if !list.is_yaml()
            && piece.text.len() <= COSTLY
            && let Some(one) = compact::object(piece.text, cluster, limits.object_bytes)
        {
            allow_one_more(counted.fetch_add(1, Ordering::Relaxed), bytes)?;
            found.push(one);
            return Ok(());
        }
        let alone = (piece.text.len() > COSTLY).then(|| costly.lock());
        let value = parse_one(piece.text.as_bytes(), budget(limits))
            .map_err(|error| fault(error, piece.offset))?;
        let item = match value {
            Value::Array(mut one) if list.is_yaml() && one.len() == 1 => {
                one.pop().unwrap_or_default()
            }
            value if !list.is_yaml() => value,
            _ => return Err(no_list()),
        };
        let place = format!("document 1, line {}, items[{index}]", piece.offset + 1);
        let item = of_kind(item, kind.as_deref(), head.get("apiVersion"));
        drop(alone);
        flatten(item, &place, LIST_DEPTH - 1, &mut |object, place| {
            allow_one_more(counted.fetch_add(1, Ordering::Relaxed), bytes)?;
            found.push(one(object, place, cluster, limits.object_bytes)?);
            Ok(())
        })
    };
    let found = in_batches(BATCH, list.pieces().enumerate(), |batch| {
        let mut found = Vec::with_capacity(batch.len());
        let mut pieces = batch.into_iter();
        pieces.try_for_each(|(index, piece)| parse(index, piece, &mut found))?;
        Ok(found)
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Fails if a file of this size may not have one more object.
fn allow_one_more(objects: usize, bytes: usize) -> Result<(), FileFault> {
    if objects < MANY.max(bytes / LEAST) {
        return Ok(());
    }
    let most = format!("more than {MANY} objects must have {LEAST} bytes each on average");
    Err(FileFault::invalid(format!(
        "it has too many small objects: {most}"
    )))
}

/// The value of a file of one document; `None` if the file is no such file.
pub(super) fn document(bytes: &[u8], limits: SizeLimits) -> Option<Value> {
    parse_one(bytes, budget(limits)).ok()
}

/// The parser's limits for a file.
fn budget(limits: SizeLimits) -> document::ParseLimits {
    document::ParseLimits {
        bytes: usize::try_from(limits.file_bytes).unwrap_or(usize::MAX),
        nodes: NODES,
        depth: DEPTH,
    }
}

/// The fault of a document: what is wrong, and where. The parser's error contains no value of it.
fn unparsable(number: usize, error: &DocumentError) -> FileFault {
    FileFault::invalid(format!("document {number}, {error}"))
}

/// The reference of a parsed object; `None` if it has none.
pub(super) fn reference(document: &Value, cluster: &str) -> Option<ObjectRef> {
    name(document.as_object()?, cluster).ok()
}

/// A callback with an object and its place in the file.
type EachObject<'a> = &'a mut dyn FnMut(Map<String, Value>, &str) -> Result<(), FileFault>;

/// Calls `each` with every object of a document that may be a list.
fn flatten(
    document: Value,
    place: &str,
    depth: usize,
    each: EachObject<'_>,
) -> Result<(), FileFault> {
    let Value::Object(mut object) = document else {
        return Err(FileFault::invalid(format!("{place}: it is not a mapping")));
    };
    let Some(item_kind) = list_of(&object) else {
        return each(object, place);
    };
    if depth == 0 {
        return Err(FileFault::invalid(format!(
            "{place}: lists are nested too deeply"
        )));
    }
    let items = match object.remove("items") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(items)) => items,
        Some(_) => {
            return Err(FileFault::invalid(format!(
                "{place}: `items` is not a list"
            )));
        }
    };
    let version = object.get("apiVersion");
    for (index, item) in items.into_iter().enumerate() {
        let item = of_kind(item, item_kind.as_deref(), version);
        flatten(item, &format!("{place}, items[{index}]"), depth - 1, each)?;
    }
    Ok(())
}

/// Checks one object for the fields that every object must have.
fn one(
    mut object: Map<String, Value>,
    place: &str,
    cluster: &str,
    limit: usize,
) -> Result<FoundObject, FileFault> {
    let reference =
        name(&object, cluster).map_err(|field| FileFault::invalid(format!("{place}: {field}")))?;
    if reference.kind == "Secret" && reference.api_version == "v1" {
        fold_string_data(&mut object)
            .map_err(|field| FileFault::invalid(format!("{place}: {field}")))?;
        join_lines(&mut object);
    }
    let object = Value::Object(object);
    // Faster than `to_string`, which writes every token through a formatter.
    let text = serde_json::to_string(&object)
        .map_err(|_| FileFault::invalid(format!("{place}: it cannot be written as JSON")))?;
    if text.len() > limit {
        return Err(FileFault {
            reason: KnownReason::ObjectTooLarge,
            message: format!(
                "{place}: {reference} has {} bytes, the limit is {limit}",
                text.len()
            ),
            objects: vec![reference.into()],
        });
    }
    Ok(FoundObject::new(reference, text))
}

/// The reference of an object, or the field that is wrong.
fn name(object: &Map<String, Value>, cluster: &str) -> Result<ObjectRef, String> {
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => return Err("`metadata` is missing".to_owned()),
        Some(_) => return Err("`metadata` is not a mapping".to_owned()),
    };
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(namespace)) if namespace.is_empty() => None,
        Some(Value::String(namespace)) => Some(namespace.clone()),
        Some(_) => return Err("`metadata.namespace` is not text".to_owned()),
    };
    Ok(ObjectRef {
        cluster: cluster.to_owned(),
        api_version: required(object, "apiVersion", "apiVersion")?,
        kind: required(object, "kind", "kind")?,
        namespace,
        name: required(metadata, "name", "metadata.name")?,
    })
}

/// A text that must be present and not empty; `path` names it in the error.
fn required(map: &Map<String, Value>, key: &str, path: &str) -> Result<String, String> {
    match map.get(key) {
        None | Some(Value::Null) => Err(format!("`{path}` is missing")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("`{path}` is empty")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("`{path}` is not text")),
    }
}

/// Removes line ends from `data`, as an API server does: `base64` wraps its lines.
fn join_lines(object: &mut Map<String, Value>) {
    let data = object.get_mut("data").and_then(Value::as_object_mut);
    for value in data.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = value {
            text.retain(|letter| letter != '\n' && letter != '\r');
        }
    }
}

/// Moves `stringData` into `data`, where it takes precedence, as on an API server.
fn fold_string_data(object: &mut Map<String, Value>) -> Result<(), String> {
    let plain = match object.remove("stringData") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(plain)) => plain,
        Some(_) => return Err("`stringData` is not a mapping".to_owned()),
    };
    let data = object.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Value::Object(data) = data else {
        return Err("`data` is not a mapping".to_owned());
    };
    for (key, value) in plain {
        let Value::String(value) = value else {
            return Err("a value of `stringData` is not text".to_owned());
        };
        data.insert(key, Value::String(STANDARD.encode(value)));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Vec<FoundObject>, FileFault> {
        objects(text.as_bytes(), "local", SizeLimits::default())
    }

    fn names(text: &str) -> Vec<String> {
        read(text)
            .unwrap()
            .iter()
            .map(|found| found.reference.to_string())
            .collect()
    }

    fn message(text: &str) -> String {
        read(text).err().unwrap().message
    }

    #[test]
    fn reads_documents_lists_and_empty_files() {
        let item =
            |name: &str| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
        assert_eq!(names(""), Vec::<String>::new());
        assert_eq!(names("# nothing\n---\n---\n"), Vec::<String>::new());
        assert_eq!(
            names(&format!("---\n{}\n---\n\n---\n{}\n", item("a"), item("b"))),
            ["Namespace a", "Namespace b"]
        );
        let list = format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}\n- {{apiVersion: v1, kind: List, items: [{}]}}\n",
            item("a"),
            item("b")
        );
        assert_eq!(names(&list), ["Namespace a", "Namespace b"]);
        assert_eq!(names("apiVersion: v1\nkind: List\n"), Vec::<String>::new());
        let json = br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
        assert_eq!(
            objects(json, "hub", SizeLimits::default()).unwrap()[0]
                .reference
                .cluster,
            "hub"
        );
    }

    #[test]
    fn typed_lists_give_their_items_a_kind() {
        let list = "apiVersion: v1\nkind: SecretList\nmetadata: {resourceVersion: '1'}\nitems: [{metadata: {name: a}}]\n";
        assert_eq!(names(list), ["Secret a"]);
        let object =
            "apiVersion: example.dev/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [{x: y}]\n";
        assert_eq!(names(object), ["AllowList a"]);
    }

    #[test]
    fn large_and_small_lists_read_the_same() {
        let item = |index: usize| {
            let (dash, text) = ("- apiVersion: v1\n  kind: ConfigMap\n", "y".repeat(600));
            let anchored = if index.is_multiple_of(2) {
                "a: &x 'one\n\n      two'\n    b: *x"
            } else {
                "a: |\n      - x\n    b: [x,\n      y]"
            };
            format!(
                "{dash}  metadata: {{name: c-{index}}}\n  data:\n    {anchored}\n    c: {text}\n"
            )
        };
        let of = |count: usize| -> String { (0..count).map(item).collect() };
        let large = format!("apiVersion: v1\nitems:\n{}kind: List\n", of(2_000));
        assert!(large.len() > LARGE && List::of(large.as_bytes()).is_some());
        let pieces = read(&large).unwrap();
        let whole = documents(large.as_bytes(), "local", SizeLimits::default()).unwrap();
        assert!(pieces == whole && pieces.len() == 2_000);
        let values: Vec<Value> = serde_yaml::from_str::<Value>(&large).unwrap()["items"]
            .as_array()
            .unwrap()
            .clone();
        let json = json!({"apiVersion": "v1", "items": values, "kind": "ConfigMapList"});
        for text in [json.to_string(), format!("{json:#}")] {
            assert!(read(&text).unwrap() == whole);
        }
        // One List is cut inside a quoted text, one refers to an anchor of an earlier item: both need the full parser.
        for odd in [
            "- {apiVersion: v1, kind: ConfigMap, metadata: {name: q}, data: {x: \"a\n- b\"}}\n",
            "- {apiVersion: v1, kind: ConfigMap, metadata: {name: q}, data: {x: *x}}\n",
        ] {
            let text = large.replace("kind: List\n", &format!("{odd}kind: List\n"));
            assert_eq!(read(&text).unwrap().len(), 2_001, "{odd}");
        }
        for (broken, said) in [
            ("- {kind: A}\n", "items[2000]: `metadata` is missing"),
            ("- {a: [}\n", "document 1, line "),
        ] {
            let text = large.replace("kind: List\n", &format!("{broken}kind: List\n"));
            assert!(message(&text).contains(said), "{}", message(&text));
        }
    }

    #[test]
    fn refuses_what_would_cost_more_than_eight_times_its_size() {
        const BYTES: usize = 4 << 20;
        let lines = |line: &str| line.repeat(BYTES / line.len());
        for (what, text) in [
            ("lines", lines("- a\n")),
            ("dashes", lines("- - - - - - - - a\n")),
            ("flow", format!("[{}a]", lines("a,"))),
            ("JSON", format!("[{}1]", lines("1,"))),
            ("JSON maps", format!("[{}1]", lines("{\"a\":1},"))),
            ("JSON documents", lines("{} ")),
            ("anchors", lines("- &a a\n- *a\n")),
            (
                "items",
                format!("apiVersion: v1\nkind: List\nitems:\n{}", lines("- a\n")),
            ),
            (
                "items of JSON",
                format!("{{\"kind\": \"List\", \"items\": [{}1]}}", lines("1,")),
            ),
            ("documents", lines("--- a\n")),
            (
                "keys",
                (0..BYTES / 16).map(|at| format!("{at:013}: \n")).collect(),
            ),
        ] {
            assert!(message(&text).len() < 300, "{what}");
        }
        let large = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n{}",
            lines("- a\n")
        );
        assert!(
            message(&large).contains("more than eight times its size"),
            "{}",
            message(&large)
        );
    }

    #[test]
    fn refuses_many_small_objects_before_they_are_stored() {
        let small = "{\"kind\":\"A\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}";
        assert_eq!(read(&small.repeat(MANY)).unwrap().len(), MANY);
        let documents = small.repeat(MANY + 1);
        let typed = format!(
            "{{\"kind\":\"AList\",\"items\":[{}]}}",
            vec![small; 40_000].join(",")
        );
        assert!(typed.len() > LARGE);
        for text in [documents, typed] {
            assert!(
                message(&text).contains("must have 96 bytes each"),
                "{}",
                message(&text)
            );
        }
        let padded = format!("{small}{}", " ".repeat(LEAST - small.len()));
        assert_eq!(read(&padded.repeat(MANY * 2)).unwrap().len(), MANY * 2);
    }

    #[test]
    fn accepts_byte_order_marks_and_foreign_line_ends() {
        let text = "\u{feff}apiVersion: v1\r\nkind: Secret\r\nmetadata:\r\n  name: a\r\n  namespace: n\r\n";
        assert_eq!(names(text), ["Secret n/a"]);
    }

    #[test]
    fn string_data_overrides_data() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {x: b2xk, y: a2VwdA==}\nstringData: {x: new}\n";
        let found = read(text).unwrap();
        let body: Value = serde_json::from_str(&found[0].text).unwrap();
        assert_eq!(
            body["data"],
            serde_json::json!({"x": "bmV3", "y": "a2VwdA=="})
        );
        assert!(body.get("stringData").is_none());
        let wrapped =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  x: |\n    bm\n    V3\n";
        let found = objects(wrapped.as_bytes(), "local", SizeLimits::default()).unwrap();
        let body: Value = serde_json::from_str(&found[0].text).unwrap();
        assert_eq!(body["data"], serde_json::json!({"x": "bmV3"}));
        let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nstringData: {x: new}\n";
        assert!(
            read(other).unwrap()[0].text.contains("stringData"),
            "only Secrets have it"
        );
    }

    #[test]
    fn errors_name_the_field_and_not_the_value() {
        let good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n";
        for (text, expected) in [
            (
                "kind: A\nmetadata: {name: a}\n",
                "document 2, line 5: `apiVersion` is missing",
            ),
            (
                "apiVersion: v1\nmetadata: {name: a}\n",
                "document 2, line 5: `kind` is missing",
            ),
            (
                "apiVersion: v1\nkind: A\n",
                "document 2, line 5: `metadata` is missing",
            ),
            (
                "apiVersion: v1\nkind: A\nmetadata: {}\n",
                "document 2, line 5: `metadata.name` is missing",
            ),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: 12}\n",
                "document 2, line 5: `metadata.name` is not text",
            ),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: [canary]}\n",
                "document 2, line 5: `metadata.namespace` is not text",
            ),
            ("- canary\n", "document 2, line 5: it is not a mapping"),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {p: 12}\n",
                "document 2, line 5: a value of `stringData` is not text",
            ),
            (
                "apiVersion: v1\nkind: List\nitems: [{kind: A}]\n",
                "document 2, line 5, items[0]: `metadata` is missing",
            ),
        ] {
            assert_eq!(message(&format!("{good}{text}")), expected);
        }
    }

    #[test]
    fn parse_errors_give_the_position_and_no_content() {
        let message = message(
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  x: \"canary\n  y: canary: canary\n",
        );
        assert!(message.starts_with("document 1, line "), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }

    #[test]
    fn refuses_an_object_over_the_limit() {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{x: {}}}\n",
            "y".repeat(100)
        );
        let limits = |object_bytes| SizeLimits {
            object_bytes,
            ..SizeLimits::default()
        };
        let fault = objects(text.as_bytes(), "local", limits(100))
            .err()
            .unwrap();
        assert_eq!(
            (fault.reason, fault.objects.len()),
            (KnownReason::ObjectTooLarge, 1)
        );
        assert!(objects(text.as_bytes(), "local", limits(300)).is_ok());
    }

    /// Any value with these texts and keys.
    pub(in crate::directory) fn values(
        texts: impl Strategy<Value = String> + 'static,
        keys: impl Strategy<Value = String> + Clone + 'static,
    ) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            texts.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(keys.clone(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// A value that a broken manifest may hold; its texts are all canaries.
    fn value() -> impl Strategy<Value = Value> {
        let keys = ["canary", "name", "namespace", "items", "data"];
        let key = proptest::sample::select(keys.map(str::to_owned).to_vec());
        values(Just("canary".to_owned()), key)
    }

    proptest! {
        #[test]
        fn any_bytes_give_objects_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(objects(&bytes, "local", SizeLimits::default()));
        }

        #[test]
        fn no_error_shows_document_content(
            fields in proptest::collection::btree_map(
                prop_oneof![Just("kind"), Just("metadata"), Just("data"), Just("stringData"), Just("items")],
                value(),
                0..5,
            ),
            cut in 0..400usize,
        ) {
            let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
            for (key, value) in fields {
                object[key] = value;
            }
            let text = object.to_string();
            let texts = [text.clone(), text.chars().take(cut).collect(), serde_yaml::to_string(&object).unwrap()];
            for text in texts {
                if let Err(fault) = objects(text.as_bytes(), "local", SizeLimits::default()) {
                    prop_assert!(!fault.message.contains("canary"), "{}", fault.message);
                }
            }
        }
    }
}
