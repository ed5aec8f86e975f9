//! Whether a value says what is wanted in the form in which an API server keeps it: with defaults in maps, also those
//! in lists, without empty fields, and with quantities, durations and times written in another way.

use crate::time;
use serde_json::{Number, Value};

/// The largest part of a quantity that an API server keeps is a billionth.
const NANO_DIGITS: i32 = 9;

/// Whether a value that an API server keeps is what was wanted. Only the answer to a write may be held against it: a
/// text that merely reads like a quantity may be wanted as it is.
pub fn is_kept(there: Option<&Value>, wanted: &Value) -> bool {
    let Some(there) = there else {
        return is_empty(wanted);
    };
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| is_kept(there.get(key), value))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            let mut pairs = there.iter().zip(wanted);
            there.len() == wanted.len() && pairs.all(|(there, wanted)| is_kept(Some(there), wanted))
        }
        (there, wanted) => there == wanted || is_scalar_of(there, wanted),
    }
}

/// Whether an API server may leave out a field with this value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}

/// Whether two values that are neither lists nor maps are the same number, quantity, duration or time.
fn is_scalar_of(there: &Value, wanted: &Value) -> bool {
    if let (Value::Number(there), Value::Number(wanted)) = (there, wanted) {
        return there.as_f64() == wanted.as_f64();
    }
    let (Some(there), Some(wanted)) = (text(there), text(wanted)) else {
        return false;
    };
    let same =
        |of: fn(&str) -> Option<i128>| of(&there).is_some_and(|one| of(&wanted) == Some(one));
    let instant = |text: &str| time::parse_rfc3339(text).map(i128::from);
    same(quantity) || same(duration) || same(instant)
}

/// The text of a scalar; a quantity may be given as a number.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(Number::to_string(number)),
        _ => None,
    }
}

/// The billionths of a quantity such as `1500m`, `1.5`, `2Gi` or `1e3`.
fn quantity(text: &str) -> Option<i128> {
    let (number, suffix) = split(text)?;
    let (mantissa, decimals) = decimal(number)?;
    let (exponent, factor) = scale(suffix)?;
    shifted(
        mantissa.checked_mul(factor)?,
        NANO_DIGITS + exponent - decimals,
    )
}

/// What a suffix of a quantity stands for: a power of ten, and a factor.
fn scale(suffix: &str) -> Option<(i32, i128)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((*exponent, 1));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some((0, 1024_i128.checked_pow(u32::try_from(at).ok()? + 1)?));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-30..=30).contains(&exponent).then_some((exponent, 1))
}

/// The nanoseconds of a duration such as `1h30m` or `0.5s`.
fn duration(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128); 7] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let (number, after) = split(rest).filter(|_| rest.starts_with(is_digit))?;
        let unit = after.split(is_digit).next().unwrap_or_default();
        let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let (mantissa, decimals) = decimal(number)?;
        sum = sum.checked_add(shifted(mantissa.checked_mul(nanos)?, -decimals)?)?;
        rest = after.strip_prefix(unit)?;
    }
    (!text.is_empty()).then_some(sign * sum)
}

fn is_digit(one: char) -> bool {
    one.is_ascii_digit()
}

/// The number at the start of a text, and what follows; none where no number is.
fn split(text: &str) -> Option<(&str, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = unsigned.trim_start_matches(|one: char| is_digit(one) || one == '.');
    let number = text.strip_suffix(rest)?;
    number.contains(is_digit).then_some((number, rest))
}

/// A decimal number as an integer, and how many of its digits are decimals.
fn decimal(number: &str) -> Option<(i128, i32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat().parse().ok()?;
    Some((digits, i32::try_from(fraction.len()).ok()?))
}

/// A number times a power of ten; none where it is too large, or not whole.
fn shifted(number: i128, exponent: i32) -> Option<i128> {
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    match exponent {
        0.. => number.checked_mul(power),
        _ => (number % power == 0).then_some(number / power),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_durations_and_times_are_kept_in_another_form() {
        for (wanted, there) in [
            (json!("1000m"), json!("1")),
            (json!(1), json!("1")),
            (json!(0.5), json!("500m")),
            (json!("1024Mi"), json!("1Gi")),
            (json!("1e3"), json!("1k")),
            (json!("+1.50"), json!("1500m")),
            (json!("-0.001"), json!("-1m")),
            (json!("60m"), json!("1h0m0s")),
            (json!("90000ms"), json!("1m30s")),
            (json!("1.5h"), json!("1h30m0s")),
            (
                json!("2026-11-21T09:15:30+01:00"),
                json!("2026-11-21T08:15:30Z"),
            ),
            (json!(1.0), json!(1)),
        ] {
            assert!(is_kept(Some(&there), &wanted), "{wanted} {there}");
        }
        for (wanted, there) in [
            (json!("1000m"), json!("2")),
            (json!("1Gi"), json!("1G")),
            (json!("1h"), json!("1m")),
            (json!("a"), json!("b")),
            (json!("1x"), json!("1y")),
            (json!(""), json!("0")),
            (json!("."), json!("0")),
            (json!("m"), json!("0")),
            (
                json!("99999999999999999999999999999999999999999"),
                json!("1"),
            ),
            (json!("1e99"), json!("1")),
            (json!(true), json!("true")),
            (json!(1), json!(2)),
        ] {
            assert!(!is_kept(Some(&there), &wanted), "{wanted} {there}");
        }
    }

    #[test]
    fn defaults_are_added_and_empty_fields_left_out_everywhere() {
        let wanted = json!({"a": [{"kind": "Group", "name": "g", "empty": ""}], "none": {"n": null, "l": []},
            "no": false, "zero": 0});
        let there = json!({"a": [{"kind": "Group", "name": "g", "apiGroup": "x"}], "more": 1});
        assert!(is_kept(Some(&there), &wanted));
        for other in [
            json!({"a": []}),
            json!({"a": [{"kind": "Group", "name": "g"}, {"kind": "Group", "name": "h"}]}),
            json!({"a": [{"kind": "Group"}]}),
            json!({"a": [{"kind": "Group", "name": "g"}], "zero": 1}),
            json!(null),
        ] {
            assert!(!is_kept(Some(&other), &wanted), "{other}");
        }
        assert!(!is_kept(None, &json!("x")) && !is_kept(None, &json!({"a": 1})));
    }
}
