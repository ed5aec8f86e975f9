//! The order in which yaml.v2 writes the keys of a map.

use std::cmp::Ordering;

/// Compares keys as yaml.v2 does: letters after everything else, numbers by their value.
pub(super) fn natural(one: &str, other: &str) -> Ordering {
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
