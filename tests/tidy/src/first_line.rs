//! The first line of a file says what it is for. Checks only that it exists.

use crate::tree::Source;

/// Files without a header.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().filter_map(finding).collect()
}

fn finding(source: &Source) -> Option<String> {
    let wanted = wanted(source)?;
    // A shebang and the package of a WIT file must come before anything else.
    let skipped = |line: &&str| {
        line.starts_with("#!/")
            || source.is("wit") && (line.starts_with("package ") || line.is_empty())
    };
    let first = source
        .text
        .lines()
        .find(|line| !skipped(line))
        .unwrap_or_default();
    let says = first
        .strip_prefix(wanted)
        .is_some_and(|words| words.trim().len() > 2);
    (!says).then(|| {
        let path = &source.path;
        format!("{path}: begin it with a `{wanted}` line that says what it is for")
    })
}

/// The required start of the line in this kind of file; none for files without comments (data, cases, manifests of
/// packages).
fn wanted(source: &Source) -> Option<&'static str> {
    let path = source.path.as_str();
    if path.contains("/cases/") || path.ends_with("/Cargo.toml") || path.ends_with("Cargo.lock") {
        return None;
    }
    if source.is("rs") {
        return Some("//!");
    }
    if source.is("wit") {
        return Some("//");
    }
    if source.is("md") {
        return Some("# ");
    }
    let commented = ["toml", "yaml", "yml", "sh"]
        .iter()
        .any(|extension| source.is(extension));
    (commented || source.text.starts_with("#!/")).then_some("#")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> bool {
        !check(&[Source::new(path, text)]).is_empty()
    }

    #[test]
    fn finds_files_without_a_header() {
        assert!(found("a/src/b.rs", "use x;\n"));
        assert!(found("a/src/b.rs", ""));
        assert!(found("a/src/b.rs", "//!\n"));
        assert!(found("a/build.rs", "// a plain comment\n"));
        assert!(found("wit/a.wit", "package a:b;\n\ninterface c {\n"));
        assert!(found(".ci/run", "#!/usr/bin/env bash\nset -e\n"));
        assert!(found("policies/a/policy.yaml", "apiVersion: v1\n"));
    }

    #[test]
    fn accepts_files_with_a_header_and_data_files() {
        assert!(!found("a/src/b.rs", "//! Says it.\n"));
        assert!(!found("wit/a.wit", "package a:b;\n\n/// Says it.\n"));
        assert!(!found(".ci/run", "#!/usr/bin/env bash\n# Says it.\n"));
        assert!(!found("policies/a/cases/b/given.yaml", "apiVersion: v1\n"));
        assert!(!found("a/b.json", "{}"));
        assert!(!found("a/Cargo.toml", "[package]\n"));
    }
}
