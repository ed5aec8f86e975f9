//! What is read, what is refused, and what an error says.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use transom_core::document::{
    DocumentError, DocumentFault, ParseLimits, flatten_list, parse_many, parse_one,
};

const LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 20,
    nodes: 10_000,
    depth: 20,
};

fn read(text: &str) -> Result<Value, DocumentError> {
    parse_one(text.as_bytes(), LIMITS)
}

#[test]
fn yaml_and_json_read_the_same() {
    let expected = json!({"a": [1, -2, 1.5, true, null, "x"], "b": {"8080": "y", "c": ""}});
    for text in [
        "a: [1, -2, 1.5, true, ~, x]\nb:\n  8080: y\n  c: ''\n",
        "\u{feff}a:\r\n- 1\r\n- -2\r\n- 1.5\r\n- true\r\n- null\r\n- x\r\nb: {8080: y, c: ''}\r\n",
        "{\"a\": [1, -2, 1.5, true, null, \"x\"],\t\"b\": {\"8080\": \"y\", \"c\": \"\"}}",
        "--- # one\na: &a [1, -2, 1.5, true, null, x]\nb: {8080: y, c: ''}\n...\n---\n",
    ] {
        assert_eq!(
            parse_one(text.as_bytes(), LIMITS).as_ref(),
            Ok(&expected),
            "{text}"
        );
    }
    for text in ["", "\n", "# nothing\n", "---\n---\n", "null", "\u{feff}"] {
        assert_eq!(
            parse_one(text.as_bytes(), LIMITS),
            Ok(Value::Null),
            "{text:?}"
        );
    }
}

#[test]
fn the_dialect_is_yaml_1_2() {
    let text = "a: yes\nb: 012\nc: 1_000\nd: 2026-01-01\ne: on\nf: 1:30\ng: 0x10\nh: 0o10\n";
    let expected = json!({"a": "yes", "b": "012", "c": "1_000", "d": "2026-01-01", "e": "on", "f": "1:30", "g": 16, "h": 8});
    assert_eq!(parse_one(text.as_bytes(), LIMITS), Ok(expected));
}

#[test]
fn a_number_beyond_64_bits_is_a_float_as_in_json() {
    for text in ["123456789012345678901234567890", "-99999999999999999999"] {
        let json: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse_one(text.as_bytes(), LIMITS), Ok(json), "{text}");
    }
}

#[test]
fn every_error_has_a_position() {
    use DocumentFault::{
        DuplicateKey, InvalidUtf8, KeyNotText, MergeKey, Nul, Number, SeveralDocuments, Syntax,
        Tag, TooLarge,
    };

    let cases = [
        ("a: 1\nb: 2\na: 3\n", DuplicateKey, (3, 1), "?"),
        ("{\"a\": 1, \"a\": 2}", DuplicateKey, (1, 12), "?"),
        (
            "users:\n- user:\n    token: x\n    token: y\n",
            DuplicateKey,
            (4, 5),
            "users[0].user.token",
        ),
        ("spec:\n  [a]: 1\n", KeyNotText, (2, 3), "spec"),
        ("spec:\n  hunter2: .nan\n", Number, (2, 12), "spec.?"),
        ("spec: -.inf\n", Number, (1, 7), "spec"),
        ("spec: !hunter2 x\n", Tag, (1, 7), "spec"),
        ("spec: !hunter2 {a: b}\n", Tag, (1, 7), "spec"),
        ("a: 1\nspec:\n  <<: [1]\n", MergeKey, (3, 3), "spec"),
        ("a: 1\n---\nb: 2\n", SeveralDocuments, (3, 0), ""),
        ("{}{}", SeveralDocuments, (1, 0), ""),
        ("a: [1\nb: 2\n", Syntax, (2, 2), "?[1]"),
        ("# one\n---\nname: *hunter2\n", Syntax, (3, 7), "name"),
        ("a: \0\n", Nul, (1, 0), ""),
    ];
    for (text, fault, (line, column), path) in cases {
        let error = read(text).unwrap_err();
        assert_eq!((error.fault, error.path.as_str()), (fault, path), "{text}");
        assert_eq!(
            (error.line, error.column.unwrap_or_default()),
            (Some(line), column),
            "{text}"
        );
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
    }
    let error = parse_one(b"a: 1\nb: \xff\n", LIMITS).unwrap_err();
    assert_eq!((error.fault, error.line), (InvalidUtf8, Some(2)));
    assert_eq!(
        read(&"x".repeat(LIMITS.bytes + 1)).unwrap_err().fault,
        TooLarge
    );
}

#[test]
fn a_quoted_merge_key_is_a_key() {
    for text in ["\"<<\": 1", "'<<': 1", "{\"<<\": 1}", "{'<<': 1}"] {
        assert_eq!(
            parse_one(text.as_bytes(), LIMITS),
            Ok(json!({"<<": 1})),
            "{text}"
        );
    }
}

/// Like yaml.v2 under client-go: the later one wins, but in a list of maps the earlier one.
#[test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
fn merge_keys_resolve_in_document_order() {
    let anchors = "x: &a {s: a, t: a}\ny: &b {s: b, p: b}\nz:";
    for (text, expected) in [
        ("\n  <<: *a\n  s: own\n", json!({"s": "own", "t": "a"})),
        ("\n  s: own\n  <<: *a\n", json!({"s": "a", "t": "a"})),
        ("\n  <<: [*a, *b]\n", json!({"s": "a", "t": "a", "p": "b"})),
        (
            "\n  <<: *b\n  <<: *a\n",
            json!({"s": "a", "t": "a", "p": "b"}),
        ),
        (" {<<: {s: in, <<: *b}}\n", json!({"s": "b", "p": "b"})),
        (" {<<: []}\n", json!({})),
        (
            " {<<: *a, <<: {s: c}, s: own}\n",
            json!({"s": "own", "t": "a"}),
        ),
    ] {
        let text = format!("{anchors}{text}");
        assert_eq!(
            read(&text).map(|value| value["z"].clone()),
            Ok(expected),
            "{text}"
        );
    }
    for wrong in ["x", "~", "1", "[1]", "[*a, x]", "[[*a]]"] {
        assert_eq!(
            read(&format!("{anchors} {{<<: {wrong}}}\n"))
                .unwrap_err()
                .fault,
            DocumentFault::MergeKey,
            "{wrong}"
        );
    }
    let twice = read(&format!("{anchors} {{<<: *a, s: 1, s: 2}}\n")).unwrap_err();
    assert_eq!(
        (twice.fault, twice.path.as_str()),
        (DocumentFault::DuplicateKey, "?.?")
    );
    // Merged content costs as often as it is used.
    let fields: String = (0..500).map(|number| format!("k{number}: 1, ")).collect();
    let many = "- {<<: *a}\n".repeat(100);
    assert_eq!(
        read(&format!("a: &a {{{fields}}}\nb:\n{many}"))
            .unwrap_err()
            .fault,
        DocumentFault::TooManyValues
    );
    let mut bomb = "a0: &a0 {k: {x: 1, y: 1, z: 1}}\n".to_owned();
    for at in 1..40 {
        let before = at - 1;
        writeln!(
            bomb,
            "a{at}: &a{at} {{<<: *a{before}, l{at}: *a{before}, m{at}: *a{before}}}"
        )
        .unwrap();
    }
    assert_eq!(read(&bomb).unwrap_err().fault, DocumentFault::TooManyValues);
}

#[test]
fn bounds_the_cost_of_a_document() {
    let mut nested = String::from("a0: &a0 [x, x, x, x, x, x, x, x]\n");
    for at in 1..30 {
        let aliases = vec![format!("*a{}", at - 1); 8].join(", ");
        writeln!(nested, "a{at}: &a{at} [{aliases}]").unwrap();
    }
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(100_000),
        vec!["*a"; 1_000].join(", ")
    );
    let many = DocumentFault::TooManyValues;
    let cases = [
        ("aliases", nested, many),
        ("aliases of one long text", long, many),
        ("values", format!("[{}]", "1,".repeat(20_000)), many),
        (
            "values as JSON",
            format!("[{}1]", "1,".repeat(20_000)),
            many,
        ),
        ("lists in block style", "- ".repeat(500_000), many),
        ("lists", "[".repeat(1 << 20), DocumentFault::TooDeep),
        ("maps", "{".repeat(1 << 20), DocumentFault::TooDeep),
        (
            "maps in lists",
            "[a: ".repeat(1 << 18),
            DocumentFault::TooDeep,
        ),
        (
            "deep JSON",
            format!("{}{}", "[".repeat(21), "]".repeat(21)),
            DocumentFault::TooDeep,
        ),
        (
            "deep YAML",
            format!("a: {}{}", "[".repeat(20), "]".repeat(20)),
            DocumentFault::TooDeep,
        ),
    ];
    for (name, text, fault) in cases {
        assert_eq!(read(&text).unwrap_err().fault, fault, "{name}");
    }
    assert!(
        parse_one(
            format!("{}{}", "[".repeat(20), "]".repeat(20)).as_bytes(),
            LIMITS
        )
        .is_ok()
    );
}

#[test]
fn expands_aliases_within_the_budget() {
    let text = "a: &a {b: [1, 2]}\nc: *a\nd: *a\n";
    assert_eq!(
        parse_one(text.as_bytes(), LIMITS),
        Ok(json!({"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": {"b": [1, 2]}}))
    );
}

#[test]
fn one_broken_document_does_not_hide_the_others() {
    let text = "%YAML 1.1\n---\na: 1\n---\n# nothing\n---\nb: [\n---\n\nc: 3\n--- {\"d\": 4}\n---\n{\"e\":\n 5}\n{\"f\": 6}\n";
    let found: Vec<_> = parse_many(text.as_bytes(), LIMITS)
        .into_iter()
        .map(|parsed| {
            (
                parsed.number,
                parsed.line,
                parsed.value.map_err(|error| (error.fault, error.line)),
            )
        })
        .collect();
    let expected = vec![
        (1, 1, Ok(json!({"a": 1}))),
        (2, 7, Err((DocumentFault::Syntax, Some(8)))),
        (3, 10, Ok(json!({"c": 3}))),
        (4, 11, Ok(json!({"d": 4}))),
        (5, 13, Ok(json!({"e": 5}))),
        (6, 15, Ok(json!({"f": 6}))),
    ];
    assert_eq!(found, expected);
    assert!(parse_many(b"", LIMITS).is_empty());
}

/// This would take minutes if each line were counted from the beginning of the text.
#[test]
fn many_json_documents_have_their_own_places() {
    let many = 100_000;
    let text = format!(
        "{}  [1] {{\"é\": 1, \"a\": 2,\n\"a\": 3}}",
        "{} [2]\n".repeat(many)
    );
    let found = parse_many(text.as_bytes(), LIMITS);
    let lines: Vec<_> = found.iter().map(|parsed| parsed.line).collect();
    let expected = (1..=many).flat_map(|line| [line, line]);
    assert!(lines.iter().copied().eq(expected.chain([many + 1; 2])));
    for (text, place) in [
        ("[1]{\"a\": 1, \"a\": 2}", (1, 15)),
        ("\n[1]\n{} {\"a\": 1, \"a\": 2}", (3, 15)),
        ("[1]\r\n {\"a\": 1,\n\"a\": 2}", (3, 3)),
        ("--- [\"é\"]\n[1] {\"a\": 1, \"a\": 2}", (2, 16)),
    ] {
        let error = parse_many(text.as_bytes(), LIMITS).pop().unwrap().value;
        let error = error.unwrap_err();
        let found = (error.line.unwrap(), error.column.unwrap());
        assert_eq!(
            (error.fault, found),
            (DocumentFault::DuplicateKey, place),
            "{text}"
        );
    }
}

/// Compared with kubectl; parsers of YAML 1.2 read most of them differently (host/adr/0019).
#[test]
fn line_ends_and_comments_are_those_of_client_go() {
    for (text, expected) in [
        ("token: |\n  fake", json!({"token": "fake"})),
        ("token: >\n  fake", json!({"token": "fake"})),
        ("token: |\n  fake\n", json!({"token": "fake\n"})),
        ("a: 1 # x\u{85}b: 2", json!({"a": 1, "b": 2})),
        ("a: \"b\u{85}c\"", json!({"a": "b c"})),
        ("a: \"b\u{2028}c\"", json!({"a": "b\u{2028}c"})),
        ("a: 'b'#c", json!({"a": "b"})),
    ] {
        assert_eq!(read(text), Ok(expected), "{text:?}");
    }
    assert_eq!(read("a: b\n\t\n").unwrap_err().fault, DocumentFault::Syntax);
}

#[test]
fn flattens_lists() {
    let list = json!({"kind": "List", "items": [{"kind": "Secret"}, {"kind": "PodList", "items": [{"kind": "Pod"}]}]});
    assert_eq!(
        flatten_list(list),
        [json!({"kind": "Secret"}), json!({"kind": "Pod"})]
    );
    // An API server leaves kind and version out of the items of a typed List.
    let typed =
        json!({"apiVersion": "v1", "kind": "SecretList", "items": [{"metadata": {"name": "a"}}]});
    assert_eq!(
        flatten_list(typed),
        [json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})]
    );
    for other in [
        json!({"kind": "WatchList"}),
        json!({"kind": "AllowList", "metadata": {"name": "a"}, "items": [{"kind": "Secret"}]}),
        json!({"kind": "Menu", "items": [1]}),
        json!([1]),
        json!("x"),
    ] {
        assert_eq!(flatten_list(other.clone()), [other]);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_many(&bytes, LIMITS);
    }

    #[test]
    fn no_yaml_text_makes_it_panic_or_leaks_into_errors(parts in prop::collection::vec(prop::sample::select(vec![
        "hunter", ": ", "- ", "\n", "  ", "[", "]", "{", "}", ", ", "&a ", "*a", "!t ", "|\n", ">\n", "'", "\"", "? ",
        "---\n", "...\n", "%YAML 1.2\n", "#", "<<", "~", "\t", "\r\n", "1e9", ".nan", "\u{85}", "\u{feff}", "\\",
    ]), 0..60)) {
        let text = parts.concat();
        for parsed in parse_many(text.as_bytes(), LIMITS) {
            if let Err(error) = parsed.value {
                prop_assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
            }
        }
    }

    #[test]
    fn agrees_with_the_underlying_parser(text in "([a-c]: ([a-z0-9.~'-]{0,6}|\\[[a-z0-9, ]{0,9}\\])\n){0,3}") {
        let bare = serde_yaml::from_str::<Value>(&text);
        if let Ok(ours) = parse_one(text.as_bytes(), LIMITS) {
            prop_assert_eq!(ours, bare.unwrap());
        }
    }
}
