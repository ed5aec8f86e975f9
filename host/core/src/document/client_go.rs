//! Writes a value as block YAML, byte for byte as client-go does (sigs.k8s.io/yaml over yaml.v2): order of keys,
//! quotes, blocks and folded lines. Only for YAML 1.1 readers; [`super::emit`] writes for all.

mod shape;

use serde_json::{Map, Value};
use shape::{Style, TextShape, is_break, is_printable};
use std::cmp::Ordering;
use std::fmt::Write as _;

/// A line with spaces is folded at the first single space beyond this column.
const WIDTH: usize = 80;
/// The longest key that is written before its colon; a longer one needs `? `.
const LONGEST_SIMPLE_KEY: usize = 128;

/// Writes a value; lines end with a line feed.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::with_capacity(1_024);
    inside(&mut out, value, 0);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn entries(out: &mut String, map: &Map<String, Value>, indent: usize) {
    let mut sorted: Vec<_> = map.iter().collect();
    sorted.sort_by(|(one, _), (other, _)| natural(one, other));
    for (at, (name, item)) in sorted.into_iter().enumerate() {
        new_line(out, indent, at > 0);
        if name.len() > LONGEST_SIMPLE_KEY || name.contains(is_break) {
            out.push_str("? ");
            text(out, name, indent + 2);
            new_line(out, indent, true);
            out.push_str(": ");
            inside(out, item, indent + 2);
            continue;
        }
        key(out, name);
        out.push(':');
        match item {
            Value::Object(map) if !map.is_empty() => {
                new_line(out, indent + 2, true);
                entries(out, map, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                new_line(out, indent, true);
                list(out, items, indent);
            }
            other => {
                out.push(' ');
                scalar(out, other, indent + 2);
            }
        }
    }
}

/// Compares keys as yaml.v2 does: letters after everything else, numbers by their value.
fn natural(one: &str, other: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let Some((at, (x, y))) = a.iter().zip(&b).enumerate().find(|(_, (x, y))| x != y) else {
        return a.len().cmp(&b.len());
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => x.cmp(y),
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => numbers(&a, &b, at).then(x.cmp(y)),
    }
}

/// Compares the numbers that begin here, by value and then by length.
fn numbers(a: &[char], b: &[char], at: usize) -> Ordering {
    let digits = |letters: &[char]| -> String {
        letters
            .iter()
            .skip(at)
            .take_while(|letter| letter.is_ascii_digit())
            .collect()
    };
    let (x, y) = (digits(a), digits(b));
    // A zero after other digits is part of their number, not the beginning of one.
    let before = a
        .get(..at)
        .unwrap_or_default()
        .iter()
        .rev()
        .take_while(|letter| letter.is_ascii_digit());
    let goes_on = (x.starts_with('0') || y.starts_with('0'))
        && before.into_iter().any(|letter| *letter != '0');
    let value = |digits: &str| {
        format!("{}{digits}", if goes_on { "1" } else { "" })
            .trim_start_matches('0')
            .to_owned()
    };
    let (v, w) = (value(&x), value(&y));
    v.len()
        .cmp(&w.len())
        .then(v.cmp(&w))
        .then(x.len().cmp(&y.len()))
}

fn list(out: &mut String, items: &[Value], indent: usize) {
    for (at, item) in items.iter().enumerate() {
        new_line(out, indent, at > 0);
        out.push_str("- ");
        inside(out, item, indent + 2);
    }
}

/// Writes a value that begins on the line of its indicator.
fn inside(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => entries(out, map, indent),
        Value::Array(items) if !items.is_empty() => list(out, items, indent),
        other => scalar(out, other, indent),
    }
}

/// Begins a line where wanted. A block may have ended its last line already.
fn new_line(out: &mut String, indent: usize, wanted: bool) {
    if wanted {
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out.extend(std::iter::repeat_n(' ', indent));
    }
}

fn scalar(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(value) => float(out, value),
            None => out.push_str(&number.to_string()),
        },
        Value::String(value) => text(out, value, indent),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Writes a float as Go does: the shortest digits, in exponent form for exponents below -4 and from 6 on.
fn float(out: &mut String, value: f64) {
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let _ = match exponent {
        -4..6 => write!(out, "{value}"),
        _ => write!(out, "{mantissa}e{exponent:+03}"),
    };
}

/// Writes a simple key: it is never folded and never a block.
fn key(out: &mut String, name: &str) {
    match TextShape::of(name).style(name) {
        Style::Plain => out.push_str(name),
        Style::Single => quote_once(out, name, None),
        Style::Double | Style::Literal => quote_twice(out, name, None),
    }
}

fn text(out: &mut String, value: &str, indent: usize) {
    match TextShape::of(value).style(value) {
        Style::Plain if !value.contains(' ') => out.push_str(value),
        Style::Plain => fold(out, value, indent, String::push),
        Style::Single => quote_once(out, value, Some(indent)),
        Style::Double => quote_twice(out, value, Some(indent)),
        Style::Literal => literal(out, value, indent),
    }
}

/// Writes letters; breaks the line at a single space beyond the width.
fn fold(out: &mut String, value: &str, indent: usize, mut write: impl FnMut(&mut String, char)) {
    let mut before = None;
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let single = before != Some(' ') && letters.peek().is_some_and(|next| *next != ' ');
        if letter == ' ' && single && column(out) > WIDTH && before.is_some() {
            new_line(out, indent, true);
        } else {
            write(out, letter);
        }
        before = Some(letter);
    }
}

fn column(out: &str) -> usize {
    out.chars()
        .rev()
        .take_while(|letter| *letter != '\n')
        .count()
}

fn quote_once(out: &mut String, value: &str, indent: Option<usize>) {
    out.push('\'');
    let write = |out: &mut String, letter: char| match letter {
        '\'' => out.push_str("''"),
        other => {
            out.push(other);
            // A line break here is never a line feed; the indent follows it.
            out.extend(std::iter::repeat_n(
                ' ',
                indent.filter(|_| is_break(other)).unwrap_or_default(),
            ));
        }
    };
    match indent {
        Some(indent) => fold(out, value, indent, write),
        None => value.chars().for_each(|letter| write(out, letter)),
    }
    out.push('\'');
}

fn quote_twice(out: &mut String, value: &str, indent: Option<usize>) {
    out.push('"');
    let mut before = None;
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let foldable = indent.filter(|_| {
            letter == ' ' && before.is_some_and(|before| before != ' ') && letters.peek().is_some()
        });
        match foldable.filter(|_| column(out) > WIDTH) {
            Some(indent) => {
                new_line(out, indent, true);
                if letters.peek() == Some(&' ') {
                    out.push('\\');
                }
            }
            None => escaped(out, letter),
        }
        before = Some(letter);
    }
    out.push('"');
}

fn escaped(out: &mut String, letter: char) {
    let short = match letter {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ if is_printable(letter) => return out.push(letter),
        _ => {
            let number = u32::from(letter);
            let _ = match number {
                0..=0xff => write!(out, "\\x{number:02X}"),
                0x100..=0xffff => write!(out, "\\u{number:04X}"),
                _ => write!(out, "\\U{number:08X}"),
            };
            return;
        }
    };
    out.extend(['\\', short]);
}

/// Writes a literal block; its header says how the text begins and ends.
fn literal(out: &mut String, value: &str, indent: usize) {
    out.push('|');
    if value.starts_with([' ', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
        out.push('2');
    }
    let ends = value
        .chars()
        .rev()
        .take_while(|letter| is_break(*letter))
        .count();
    match ends {
        0 => out.push('-'),
        1 if value.chars().nth(1).is_some() => {}
        _ => out.push('+'),
    }
    out.push('\n');
    let mut at_start = true;
    for letter in value.chars() {
        if at_start && !is_break(letter) {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        out.push(letter);
        at_start = is_break(letter);
    }
}
