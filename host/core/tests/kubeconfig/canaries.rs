//! Canaries in every field of a kubeconfig, with correct and wrong types: no error or debug output contains one.

use crate::fixture::{LIMITS, assemble, rewired, two, with};
use serde_json::{Value, json};
use transom_core::kubeconfig::Source;

const CANARY: &str = "Canary7f3a";

/// Every path in a value, as JSON pointers.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| places(item, &format!("{here}/{key}"), found)),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| places(item, &format!("{here}/{at}"), found));
        }
        _ => {}
    }
}

/// A text with a canary in an allowed or a forbidden place.
fn texts(pointer: &str) -> Vec<String> {
    let wrong = [
        json!(CANARY),
        json!({CANARY: CANARY}),
        json!([CANARY, {CANARY: [CANARY]}]),
        json!(format!(
            "https://{CANARY}:{CANARY}@{CANARY}/?{CANARY}#{CANARY}"
        )),
        json!([{"name": CANARY, "cluster": {"server": CANARY}, "user": {"token": [CANARY]}, "context": CANARY}]),
    ];
    let mut all = Vec::new();
    for value in wrong {
        let mut source = two();
        if let Some(place) = source.pointer_mut(pointer) {
            *place = value;
        }
        let json = source.to_string();
        all.push(serde_yaml::to_string(&source).unwrap_or_default());
        all.push(json.replacen(
            &format!("\"{CANARY}\""),
            &format!("!{CANARY} \"{CANARY}\""),
            1,
        ));
        all.push(json.replacen(&format!("\"{CANARY}\""), &format!("*{CANARY}"), 1));
        all.push(json.replacen(&format!("\"{CANARY}\""), &format!("\"{CANARY}"), 1));
        all.push(json.replacen(&format!("\"{CANARY}\""), &format!("\"\\q{CANARY}\""), 1));
        all.push(json);
    }
    all
}

#[test]
fn leaks_no_canary() {
    let more = [
        (
            "/users/0/user/exec",
            json!({"command": "x", "args": ["y"], "env": [{"name": "n", "value": "v"}]}),
        ),
        (
            "/users/0/user/auth-provider",
            json!({"name": "x", "config": {"id-token": "y"}}),
        ),
        ("/users/0/user/as-user-extra", json!({"a": ["b"]})),
        ("/users/0/user/password", json!("x")),
        (
            "/extensions",
            json!([{"name": "a", "extension": {"b": "c"}}]),
        ),
    ];
    let full = more
        .into_iter()
        .fold(two(), |value, (pointer, field)| with(value, pointer, field));
    let mut pointers = Vec::new();
    places(&full, "", &mut pointers);
    let mut heard = 0;
    for text in pointers.iter().flat_map(|pointer| texts(pointer)) {
        let said = match Source::parse(text.as_bytes(), &LIMITS) {
            Err(error) => format!("{error} {error:?}"),
            Ok(source) => match assemble(&source, &rewired(&source.view())) {
                Err(error) => format!("{source:?} {error} {error:?}"),
                Ok(result) => format!("{source:?} {result:?}"),
            },
        };
        assert!(
            !said.contains(CANARY) && !said.to_lowercase().contains(&CANARY.to_lowercase()),
            "{said}"
        );
        heard += 1;
    }
    assert!(heard > 1_000, "{heard} texts");
}
