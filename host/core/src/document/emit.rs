//! Writes a value as block YAML that reads the same under YAML 1.1 and 1.2: every text that a reader could take for
//! something else is quoted. What lies very deep is written as JSON is, on one line.

use crate::redact::visible::is_hidden;
use serde_json::{Map, Number, Value};
use std::fmt::Write as _;

/// Keys up to this many bytes may stand before a colon; YAML ends such keys at 1,024 characters, and quoting
/// makes at most six of one byte.
const LONGEST_SIMPLE_KEY: usize = 128;

/// Lines are indented by at most this many spaces, those of 32 levels: otherwise a small deep value is a hundred times
/// as large as YAML as it is as JSON.
const LARGEST_INDENT: usize = 64;

/// Writes a value; keys in the order of the map, lines end with a line feed.
pub fn to_yaml(value: &Value) -> String {
    to_yaml_in_order(value, &[])
}

/// Writes a value; these keys of its top level come first, in this order.
pub fn to_yaml_in_order(value: &Value, first: &[&str]) -> String {
    let mut out = String::with_capacity(1_024);
    match value {
        Value::Object(map) if !map.is_empty() => {
            let named = first.iter().filter_map(|key| map.get_key_value(*key));
            let others = map.iter().filter(|(key, _)| !first.contains(&key.as_str()));
            for (at, (key, item)) in named.chain(others).enumerate() {
                entry(&mut out, key, item, 0, at > 0);
            }
        }
        other => block(&mut out, other, 0),
    }
    out.push('\n');
    out
}

/// Writes a value at the cursor; further lines begin with `indent` spaces.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        deep if indent > LARGEST_INDENT => flow(out, deep),
        Value::Object(map) if !map.is_empty() => entries(out, map, indent),
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                new_line(out, indent, at > 0);
                out.push_str("- ");
                block(out, item, indent + 2);
            }
        }
        other => scalar(out, other),
    }
}

fn entries(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (at, (key, item)) in map.iter().enumerate() {
        entry(out, key, item, indent, at > 0);
    }
}

/// Writes `key: value`; a list stands on the lines below its key, at the same indent, as Kubernetes does.
fn entry(out: &mut String, key: &str, item: &Value, indent: usize, on_new_line: bool) {
    new_line(out, indent, on_new_line);
    if key.len() > LONGEST_SIMPLE_KEY {
        out.push_str("? ");
        text(out, key);
        new_line(out, indent, true);
    } else {
        text(out, key);
    }
    out.push(':');
    match item {
        Value::Object(map) if !map.is_empty() && indent < LARGEST_INDENT => {
            new_line(out, indent + 2, true);
            entries(out, map, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            new_line(out, indent, true);
            block(out, item, indent);
        }
        other => {
            out.push(' ');
            match other {
                Value::Object(_) => flow(out, other),
                other => scalar(out, other),
            }
        }
    }
}

/// Writes a value on one line. Texts are quoted: a comma or a bracket would end them.
fn flow(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for (at, (key, item)) in map.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(if key.len() > LONGEST_SIMPLE_KEY {
                    "? "
                } else {
                    ""
                });
                quoted(out, key);
                out.push_str(": ");
                flow(out, item);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                flow(out, item);
            }
            out.push(']');
        }
        Value::String(value) => quoted(out, value),
        other => scalar(out, other),
    }
}

fn new_line(out: &mut String, indent: usize, wanted: bool) {
    if wanted {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent));
    }
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(value) => number(out, value),
        Value::String(value) => text(out, value),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Writes a float with a point and a signed exponent: YAML 1.1 takes `1e300` for text.
fn number(out: &mut String, value: &Number) {
    let written = value.to_string();
    let Some((mantissa, exponent)) = written.split_once('e') else {
        return out.push_str(&written);
    };
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['+', '-']) {
        ""
    } else {
        "+"
    };
    out.extend([mantissa, point, "e", sign, exponent]);
}

fn text(out: &mut String, value: &str) {
    if is_plain(value) {
        out.push_str(value);
    } else {
        quoted(out, value);
    }
}

/// Whether a text may stand unquoted: it begins like a word or a path, holds nothing that is special to YAML, and is
/// no word that a reader takes for a boolean or for null. Numbers and dates begin with other characters.
fn is_plain(value: &str) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !(first.is_ascii_alphabetic() || *first == b'/') || matches!(last, b' ' | b':') {
        return false;
    }
    let safe = |byte: &u8| PLAIN.get(usize::from(*byte)).copied().unwrap_or(false);
    bytes.iter().all(safe)
        && !(bytes.contains(&b':') && value.contains(": "))
        && !is_word_of_yaml(value)
}

/// The bytes that may stand inside an unquoted text.
static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b' ' | b'_' | b'.' | b'/' | b':' | b'@' | b'+' | b'=' | b',' | b'-' | b'(' | b')'
            );
        byte += 1;
    }
    table
};

/// The words that YAML 1.1 or 1.2 takes for a boolean or for null, in any case of letters.
fn is_word_of_yaml(value: &str) -> bool {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    value.len() <= 5 && WORDS.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// Writes a text in double quotes, as JSON does, and escapes everything that a reader might fold, strip or refuse.
fn quoted(out: &mut String, value: &str) {
    out.push('"');
    for letter in value.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            hidden if is_hidden(hidden) => {
                let _ = match u32::from(hidden) {
                    code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
            other => out.push(other),
        }
    }
    out.push('"');
}
