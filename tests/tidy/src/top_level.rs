//! What the top level shows. Never looks at hidden names: they are settings of tools.

use crate::finding::{Finding, Rule};

/// Seven names that make the frame, their companions, and what cargo builds.
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
            sentence: "does not belong at the top level; put it below host, guest, wit, policies or tests".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_found_and_hidden_names_are_not() {
        let names = ["Cargo.toml", ".ci", "docs", "host"].map(str::to_owned);
        let found: Vec<String> = check(&names).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["docs"]);
    }
}
