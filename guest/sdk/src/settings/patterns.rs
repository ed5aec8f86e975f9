//! Patterns in settings: which names, labels and claims a rule selects. In all guests the one star of a pattern stands
//! for any text, also for an empty one.

use std::collections::BTreeMap;

/// Why a pattern with several stars is refused.
const STARS: &str = "has a pattern with more than one star";
/// Why a key without patterns is refused.
const NOTHING: &str = "has a key without values, which no cluster could have";

/// Whether one of the patterns matches a text.
pub fn fits(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| says(pattern, text))
}

/// Whether every key has a text, and each text [`fits`] what is wanted of it.
pub fn all_fit(wanted: &BTreeMap<String, Vec<String>>, there: &BTreeMap<String, String>) -> bool {
    let mut wanted = wanted.iter();
    wanted.all(|(key, patterns)| there.get(key).is_some_and(|text| fits(patterns, text)))
}

/// What is wrong with patterns, for the check of settings.
pub fn fault(patterns: &[String]) -> Option<&'static str> {
    let is_wrong = |pattern: &String| pattern.matches('*').count() > 1;
    patterns.iter().any(is_wrong).then_some(STARS)
}

/// What is wrong with patterns by key, for the check of settings. Each key must have at least one pattern.
pub fn fault_of_keys(wanted: &BTreeMap<String, Vec<String>>) -> Option<&'static str> {
    if wanted.values().any(Vec::is_empty) {
        return Some(NOTHING);
    }
    wanted.values().find_map(|patterns| fault(patterns))
}

fn says(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text
            .strip_prefix(start)
            .is_some_and(|rest| rest.ends_with(end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_never_for_the_same_text_twice() {
        for (pattern, text, fit) in [
            ("*", "", true),
            ("prod-*", "prod-", true),
            ("prod-*", "prod-eu", true),
            ("prod-*", "test-prod-eu", false),
            ("*-eu", "prod-eu", true),
            ("p*d", "prod", true),
            ("a*a", "a", false),
            ("prod", "prod", true),
            ("prod", "prod-eu", false),
            ("", "prod", false),
        ] {
            assert_eq!(says(pattern, text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn every_key_must_be_there_and_fit_and_none_fits_no_pattern() {
        let map = |value: &str| BTreeMap::from([("env".to_owned(), value.to_owned())]);
        let wants = |values: &[&str]| {
            let values = values.iter().map(|one| (*one).to_owned()).collect();
            BTreeMap::from([("env".to_owned(), values)])
        };
        assert!(all_fit(&wants(&["test", "prod-*"]), &map("prod-eu")));
        assert!(!all_fit(&wants(&["test", "prod-*"]), &map("stage")));
        assert!(!all_fit(&wants(&["*"]), &BTreeMap::new()));
        assert!(!all_fit(&wants(&[]), &map("prod")));
        assert!(all_fit(&BTreeMap::new(), &map("prod")));
        assert_eq!(fault_of_keys(&wants(&["a*", "*"])), None);
        assert_eq!(fault_of_keys(&wants(&["a*b*"])), Some(STARS));
        assert_eq!(fault_of_keys(&wants(&[])), Some(NOTHING));
    }
}
