//! Mutations of values and of bytes, regardless of their meaning.

use super::Dice;
use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Bytes that are known to break parsers of YAML, JSON and base64.
const BYTES: [&[u8]; 38] = [
    b"&a ",
    b"*a",
    b"<<: *a\n",
    b"!!binary ",
    b"!!str ",
    b"!x ",
    b"---\n",
    b"...\n",
    b"%YAML 1.2\n",
    b"\t",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"{",
    b"}",
    b"[",
    b"]",
    b": ",
    b"- ",
    b"? ",
    b"|\n",
    b">-\n",
    b"\"",
    b"'",
    b"#",
    b"\\",
    b"\r",
    b"[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"@",
    b"`",
    b"null",
    b"0o17",
    b".nan",
    b"aside~0~",
    b"99999999999999999999999999999999999999999999",
];
/// Names of our fields.
const NAMES: [&str; 11] = [
    "name",
    "kind",
    "metadata",
    "x",
    "server",
    "exec",
    "status",
    "kubeconfig",
    "taints",
    "<<",
    "",
];

/// Texts that fields do not expect.
const TEXTS: [&str; 38] = [
    "",
    " ",
    "\n",
    "../../../etc/passwd",
    "\u{1b}[31mX",
    "\u{e9}\u{202e}",
    "null",
    "~",
    "0x10",
    "1_000",
    "2026-01-01",
    ".inf",
    "https://evil:9@h/",
    "http://[fe80::1%25eth0]:1",
    "https://kube-apiserver.evil.svc",
    "https://a#b",
    "klusterlet-x",
    "*",
    "*-*",
    "{primary.name}",
    "{primary.namespace}-*",
    "{",
    "{primary.uid}",
    "a*b*c*d",
    "builtin:taints",
    "builtin:kubeconfig",
    "builtin:trigger",
    "builtin:",
    "/dev/null",
    "/etc/passwd",
    "source",
    "AsSource",
    "Never",
    "Exec",
    "data.x",
    "spec.taints",
    "primary",
    "https://evil.example:1/x?y",
];

/// A value that a field does not expect.
fn special(dice: &mut Dice) -> Value {
    let mut all = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(0.5),
        json!("a".repeat(300)),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"a": {}}),
        json!(vec!["x"; 50]),
        json!({"name": null}),
        json!(["patch"]),
        json!(["create", "update", "delete"]),
        json!(4_294_967_296_u64),
    ];
    all.extend(TEXTS.map(Value::from));
    dice.pick(&all).clone()
}

/// Every path in a value below its root, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let below = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.push(below(key));
                places(value, &below(key), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                found.push(below(&index.to_string()));
                places(item, &below(&index.to_string()), found);
            }
        }
        _ => {}
    }
}

/// Changes a value at some paths: replaces, removes, duplicates or renames it, or inserts one from elsewhere.
pub(super) fn value(value: &mut Value, times: usize, dice: &mut Dice) {
    for _ in 0..times {
        let mut all = Vec::new();
        places(value, "", &mut all);
        let Some(place) = (!all.is_empty()).then(|| dice.pick::<String>(&all).clone()) else {
            return;
        };
        let elsewhere = value
            .pointer(dice.pick::<String>(&all))
            .cloned()
            .unwrap_or_default();
        let Some((parent, key)) = place.rsplit_once('/') else {
            continue;
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        let new = if dice.chance(80) {
            special(dice)
        } else {
            elsewhere
        };
        let (how, name) = (dice.below(10), (*dice.pick(&NAMES)).to_owned());
        match value.pointer_mut(parent) {
            Some(Value::Object(map)) => in_map(map, &key, how, new, name),
            Some(Value::Array(items)) => in_list(items, key.parse().unwrap_or_default(), how, new),
            _ => {}
        }
    }
}

fn in_map(map: &mut Map<String, Value>, key: &str, how: usize, new: Value, name: String) {
    match how {
        0..=5 => drop(map.insert(key.to_owned(), new)),
        6 | 7 => drop(map.remove(key)),
        _ => {
            let moved = map.remove(key).unwrap_or_default();
            map.insert(name, moved);
        }
    }
}

fn in_list(items: &mut Vec<Value>, index: usize, how: usize, new: Value) {
    match (how, items.get(index).cloned()) {
        (0..=5, Some(_)) => items[index] = new,
        (6 | 7, Some(_)) => drop(items.remove(index)),
        (_, Some(item)) => items.insert(index, item),
        (_, None) => {}
    }
}

/// Changes some bytes: replaces, removes or duplicates them, inserts bytes that break parsers, or cuts off the end.
pub(super) fn bytes(bytes: &mut Vec<u8>, times: usize, dice: &mut Dice) {
    for _ in 0..times {
        if bytes.is_empty() {
            return;
        }
        let at = dice.below(bytes.len());
        let line = bytes[..at]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let end = |length: usize| (at + 1 + length).min(bytes.len());
        match dice.below(20) {
            0..=4 => bytes[at] = dice.byte(),
            5..=7 => drop(bytes.drain(at..end(dice.below(40)))),
            8..=14 => drop(bytes.splice(at..at, dice.pick(&BYTES).iter().copied())),
            15 | 16 => {
                let copied = bytes[at..end(dice.below(200))].to_vec();
                let to = dice.below(bytes.len());
                drop(bytes.splice(to..to, copied));
            }
            17 => bytes.truncate(at),
            _ => drop(bytes.splice(line..line, dice.pick(&BYTES).iter().copied())),
        }
    }
}

/// A policy, mutated as a value and sometimes as bytes, too.
pub(super) fn policy(path: &Path, dice: &mut Dice) -> Result<Vec<u8>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("failed to read `{}`", path.display()))?;
    let mut policy: Value = serde_yaml::from_str(&text)?;
    value(&mut policy, 1 + dice.below(4), dice);
    let mut text = serde_yaml::to_string(&policy)?.into_bytes();
    if dice.chance(20) {
        bytes(&mut text, 1 + dice.below(3), dice);
    }
    Ok(text)
}
