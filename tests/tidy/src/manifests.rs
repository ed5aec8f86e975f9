//! Manifests of packages: lints and versions come from the root. The root manifest itself is exempt.

use crate::tree::Source;

/// Manifests that do not inherit.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml"))
        .flat_map(of_manifest)
        .collect()
}

fn of_manifest(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    if !source.text.contains("[lints]\nworkspace = true") {
        findings.push(finding(
            source,
            "add `[lints]` with `workspace = true`: every package has the same lints",
        ));
    }
    if !source.text.contains("\ndescription = \"") {
        findings.push(finding(
            source,
            "add a `description`: one sentence on what the package is for",
        ));
    }
    let mut section = "";
    for line in source.text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies")
            && is_dependency(line)
            && !line.contains("workspace = true")
        {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            findings.push(finding(
                source,
                &format!(
                    "write `{name}.workspace = true` and put the version in the root manifest"
                ),
            ));
        }
    }
    findings
}

fn is_dependency(line: &str) -> bool {
    !line.starts_with('#') && line.contains('=')
}

fn finding(source: &Source, sentence: &str) -> String {
    format!("{}: {sentence}", source.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\ndescription = \"b\"\n\n[lints]\nworkspace = true\n\n[dependencies]\nserde.workspace = true\nx = { workspace = true, features = [\"y\"] }\n";

    fn findings(text: &str) -> usize {
        check(&[Source::new("host/a/Cargo.toml", text)]).len()
    }

    #[test]
    fn accepts_a_manifest_that_inherits() {
        assert_eq!(findings(GOOD), 0);
    }

    #[test]
    fn finds_what_does_not_inherit() {
        assert_eq!(
            findings(&GOOD.replace("[lints]\nworkspace = true\n", "")),
            1
        );
        assert_eq!(findings(&GOOD.replace("description = \"b\"\n", "")), 1);
        assert_eq!(findings(&format!("{GOOD}tokio = \"1\"\n")), 1);
        assert_eq!(
            findings(&format!(
                "{GOOD}\n[dev-dependencies]\ntempfile = {{ version = \"3\" }}\n"
            )),
            1
        );
    }
}
