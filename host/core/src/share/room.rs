//! Estimates how much memory an object takes once it is decoded. The estimate may be too high, but not too low.

use crate::document::cost::{ENTRY, ITEM, MAP, TEXT};
use memchr::memchr2;
use serde_json::Value;

/// The most bytes that compact JSON takes once it is decoded; computed from the text, before decoding.
pub fn of_text(json: &[u8]) -> usize {
    let (mut bytes, mut at) = (json.len(), 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        bytes += match byte {
            b'"' => {
                at += quoted_length(json.get(at..).unwrap_or_default());
                TEXT
            }
            b'{' => MAP,
            b':' => ENTRY,
            b'[' | b',' => ITEM,
            _ => 0,
        };
    }
    bytes
}

/// Whether compact JSON takes more than so many bytes once it is decoded. No byte counts for more than the beginning of
/// a map does: a short text is not looked at.
pub fn exceeds(json: &[u8], most: usize) -> bool {
    json.len().saturating_mul(1 + MAP) > most && of_text(json) > most
}

/// The bytes of a JSON text up to the quote that ends it, and the quote.
pub(crate) fn quoted_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += found;
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            // The byte after it is part of the text.
            _ => at += 2,
        }
    }
    bytes.len()
}

/// The most bytes that a value takes, counted as [`of_text`] counts its text.
pub fn of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => ITEM,
        Value::String(text) => ITEM + TEXT + text.len(),
        Value::Array(items) => ITEM + items.iter().map(of_value).sum::<usize>(),
        Value::Object(fields) => {
            MAP + fields
                .iter()
                .map(|(key, value)| ENTRY + TEXT + key.len() + of_value(value))
                .sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_quoted_text_ends_at_its_first_quote_without_a_backslash() {
        for (text, length) in [
            (r#"a"b"#, 2),
            (r#"""#, 1),
            (r#"a\""b"c"#, 4),
            (r#"\\"x"#, 3),
            (r#"\\\"x""#, 6),
            ("abc", 3),
            ("a\\", 2),
            ("", 0),
        ] {
            assert_eq!(quoted_length(text.as_bytes()), length, "{text}");
        }
    }

    #[test]
    fn no_text_exceeds_what_it_weighs() {
        for text in ["{{{{", "[[[[", ",,,,", "::::", r#""""""#, "{}", "1", ""] {
            let weight = of_text(text.as_bytes());
            assert!(!exceeds(text.as_bytes(), weight), "{text}");
            assert_eq!(
                weight > 0,
                exceeds(text.as_bytes(), weight.saturating_sub(1)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_weighs_what_its_values_and_letters_take() {
        for (value, least, most) in [
            (
                json!({"data": {"a": "x".repeat(1 << 20)}}),
                1 << 20,
                (1 << 20) + 4_000,
            ),
            (
                json!(vec![json!({"a": 1}); 10_000]),
                640 * 10_000,
                900 * 10_000,
            ),
            (json!(vec![0; 10_000]), 64 * 10_000, 100 * 10_000),
            (json!({"a": "{[,:".repeat(10_000)}), 40_000, 45_000),
            (json!({"a": "\\\"{".repeat(10_000)}), 30_000, 60_000),
        ] {
            let weight = of_text(value.to_string().as_bytes());
            assert!(
                (least..most).contains(&weight),
                "{weight}, not {least} to {most}"
            );
            assert!(
                (least..most).contains(&of_value(&value)),
                "{}",
                of_value(&value)
            );
        }
    }
}
