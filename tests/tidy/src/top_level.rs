//! The names at the top level. Hidden names are exempt: they are settings of tools.

use crate::finding::{Finding, Rule};

/// Seven names of the basic structure, their companions, and what cargo builds.
const ALLOWED: [&str; 11] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "guest",
    "host",
    "policies",
    "target",
    "tests",
    "wit",
];

/// Names that do not belong there.
pub fn check(names: &[String]) -> Vec<Finding> {
    names
        .iter()
        .filter(|name| !name.starts_with('.') && !ALLOWED.contains(&name.as_str()))
        .map(|name| Finding {
            rule: Rule::TopLevel,
            place: name.clone(),
            amount: 1,
            sentence:
                "does not belong at the top level; put it below host, guest, wit, policies or tests"
                    .to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_unknown_names_but_not_hidden_ones() {
        let names = ["Cargo.toml", ".ci", "docs", "host"].map(str::to_owned);
        let found: Vec<String> = check(&names)
            .into_iter()
            .map(|finding| finding.place)
            .collect();
        assert_eq!(found, ["docs"]);
    }
}
