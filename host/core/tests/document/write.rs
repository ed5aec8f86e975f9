//! Writing: the text reads back equal, and no reader of YAML 1.1 misinterprets it.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use transom_core::document::emit::{to_yaml, to_yaml_in_order};
use transom_core::document::{ParseLimits, client_go, parse_one};

/// Limits that no text here exceeds.
const LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 20,
    nodes: 100_000,
    depth: 128,
};

#[test]
fn formats_like_kubernetes() {
    let value = json!({
        "apiVersion": "v1", "empty": {}, "none": [], "nothing": null, "long": "LS0tLS1CRUdJTiBDRVJU/+==",
        "items": [{"a": 1, "b": [true, [2, [], {"c": "d: e"}]]}, "x", []],
        "text": "two\nlines", "url": "https://[::1]:6443/x", "words": "plain words, with (all) marks: of@prose",
    });
    let expected = "\
apiVersion: v1
empty: {}
items:
- a: 1
  b:
  - true
  - - 2
    - []
    - c: \"d: e\"
- x
- []
long: LS0tLS1CRUdJTiBDRVJU/+==
none: []
nothing: null
text: \"two\\nlines\"
url: \"https://[::1]:6443/x\"
words: \"plain words, with (all) marks: of@prose\"
";
    assert_eq!(to_yaml(&value), expected);
    assert_eq!(
        to_yaml_in_order(&json!({"a": 1, "b": 2, "c": {}}), &["c", "x", "b"]),
        "c: {}\nb: 2\na: 1\n"
    );
    assert_eq!(to_yaml(&json!("x")), "x\n");
    assert_eq!(to_yaml(&json!({})), "{}\n");
}

#[test]
fn quotes_whatever_a_reader_could_misinterpret() {
    let words = "y Y n N yes Yes YES no No NO on On ON off Off OFF true True TRUE false False FALSE null Null NULL ~ \
        012 0o14 0x1F 0b1 1_000 1e3 1E3 .5 5. +1 -1 .inf -.Inf .nan 1:30 190:20:30 1.5:30 2026-01-01 2026-01-01T00:00:00Z = << \
        <<: - -- --- ... ? : a: :a a:b: # #a & &a * *a ! !a !!str | > % %a @ @a ` `a ' \" [ ] { } , [a] {a} 0 00 1 1.0 \
        infinity.not";
    for word in words
        .split_whitespace()
        .filter(|word| *word != "infinity.not")
    {
        assert_eq!(
            to_yaml(&json!(word)),
            format!("{}\n", json!(word)),
            "{word}"
        );
        assert_eq!(
            to_yaml(&json!({word: 1})),
            format!("{}: 1\n", json!(word)),
            "{word}"
        );
    }
    for text in [
        "", " ", " a", "a ", "a\tb", "a\nb", "a\rb", "a #b", "a: b", "a:\tb", "\u{7}", "é", "a\\b",
    ] {
        assert!(to_yaml(&json!(text)).starts_with('"'), "{text:?}");
    }
    for text in [
        "\u{85}", "\u{a0}", "\u{2028}", "\u{2029}", "\u{feff}", "\u{7f}", "\u{fffe}", "\0",
    ] {
        assert!(to_yaml(&json!(text)).starts_with('"'), "{text:?}");
    }
    for text in [
        "\u{85}", "\u{2028}", "\u{2029}", "\u{feff}", "\u{7f}", "\u{9f}", "\u{fffe}", "\0",
        "\u{1b}",
    ] {
        assert!(to_yaml(&json!(text)).is_ascii(), "{text:?}");
    }
}

#[test]
fn floats_are_floats_for_every_reader() {
    for (number, expected) in [
        (1e300, "1.0e+300\n"),
        (1.5e-9, "1.5e-9\n"),
        (-0.0, "-0.0\n"),
        (0.1, "0.1\n"),
        (1e16, "1.0e+16\n"),
    ] {
        assert_eq!(to_yaml(&json!(number)), expected);
    }
}

#[test]
fn long_keys_read_back() {
    for length in [127, 128, 129, 1_024, 5_000] {
        let value =
            json!({"a": [{"\u{1}".repeat(length): {"k".repeat(length): ["x", {}], "z": 1}}]});
        assert_eq!(
            serde_yaml::from_str::<Value>(&to_yaml(&value)).unwrap(),
            value,
            "{length}"
        );
    }
}

/// This many maps and lists around a value.
fn deep(value: Value, levels: usize) -> Value {
    (0..levels).fold(value, |below, level| match level % 3 {
        0 => json!({"k": below, "l": [1]}),
        1 => json!([below, "x, y"]),
        _ => json!([[], below]),
    })
}

#[test]
fn deep_values_stay_small_and_read_back() {
    let bottom =
        json!({"n".repeat(1_500): vec![1; 1_000], "a": "}, ]: # \u{85}", "b": {}, "c": []});
    for levels in 0..90 {
        let value = deep(bottom.clone(), levels);
        let text = to_yaml(&value);
        let read: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read, value, "{levels}: {text}");
        let read = parse_one(text.as_bytes(), LIMITS).unwrap();
        assert_eq!(read, value, "{levels}: {text}");
        let indent = text
            .lines()
            .map(|line| line.len() - line.trim_start().len());
        assert!(indent.max() <= Some(64), "{levels}: {text}");
        assert!(text.len() < 100_000, "{levels}: {} bytes", text.len());
    }
    // Up to there, each value has its own line.
    assert!(!to_yaml(&deep(json!({"a": 1}), 32)).contains('{'));
}

/// Any value; texts often contain characters with a meaning in YAML.
fn values() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![
        any::<String>(),
        "[-a-zA-Z0-9 :#~.\"'\\\\,?\\[\\]{}&*!|>%@`=<\n\t]{0,12}",
        "(yes|No|on|0x1|1e3|null|<<|=)"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(texts.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A value without its leaves: numbers are written for YAML 1.1.
fn fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, item)| (key.clone(), fields(item)))
            .collect(),
        Value::Array(items) => items.iter().map(fields).collect(),
        _ => Value::Null,
    }
}

proptest! {
    #[test]
    fn written_documents_read_back_equal(value in values()) {
        let text = to_yaml(&value);
        let read: Value = serde_yaml::from_str(&text).unwrap();
        prop_assert_eq!(read, value, "{}", text);
    }

    /// A field that clients do not know must not become one that they know. What they write is a map.
    #[test]
    fn what_is_written_as_client_go_does_has_the_same_fields(value in values()) {
        let value = json!({"user": value});
        let text = client_go::to_yaml(&value);
        let read = parse_one(text.as_bytes(), LIMITS).unwrap();
        prop_assert_eq!(fields(&read), fields(&value), "{}", text);
    }

    #[test]
    fn deep_documents_read_back_equal(value in values(), levels in 20_usize..60) {
        let value = deep(value, levels);
        let text = to_yaml(&value);
        let read: Value = serde_yaml::from_str(&text).unwrap();
        prop_assert_eq!(read, value, "{}", text);
    }
}
