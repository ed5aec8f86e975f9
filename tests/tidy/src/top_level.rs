//! The names at the top level. Hidden names are exempt: they are settings of tools.

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
pub fn check(names: &[String]) -> Vec<String> {
    names
        .iter()
        .filter(|name| !name.starts_with('.') && !ALLOWED.contains(&name.as_str()))
        .map(|name| format!("{name}: put it below host, guest, wit, policies or tests"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_unknown_names_but_not_hidden_ones() {
        let names = ["Cargo.toml", ".ci", "docs", "host"].map(str::to_owned);
        let found = check(&names);
        assert!(
            found.len() == 1 && found[0].starts_with("docs:"),
            "{found:?}"
        );
    }
}
