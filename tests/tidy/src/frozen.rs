//! A released contract never changes. Each file under `wit/released/` is recorded with its sha256; no test updates the
//! record.

use crate::tree::Source;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// The folder of released generations of the contract.
pub const FOLDER: &str = "wit/released/";
/// The record: lines of `<sha256>  <path from the root>`, as `sha256sum` writes them.
pub const RECORD: &str = "tests/tidy/released.sha256";

/// Released files that differ from their record, lack one, or were removed.
pub fn check(sources: &[Source]) -> Vec<String> {
    let record = sources
        .iter()
        .find(|source| source.path == RECORD)
        .map_or("", |source| &source.text);
    let recorded: BTreeMap<&str, &str> = record.lines().filter_map(entry).collect();
    let released: BTreeMap<&str, String> = sources
        .iter()
        .filter(|source| source.path.starts_with(FOLDER))
        .map(|source| (source.path.as_str(), sha256(&source.text)))
        .collect();
    let changed = released
        .iter()
        .filter_map(|(path, digest)| match recorded.get(path) {
            None => Some(format!(
                "{path}: is released but not recorded; add `{digest}  {path}` to {RECORD}"
            )),
            Some(known) if known != digest => Some(format!(
                "{path}: is released and was changed; undo it and make a new generation"
            )),
            Some(_) => None,
        });
    let gone = recorded.keys().filter(|path| !released.contains_key(*path));
    changed
        .chain(gone.map(|path| format!("{path}: is released and is gone; bring it back")))
        .collect()
}

fn entry(line: &str) -> Option<(&str, &str)> {
    if line.starts_with('#') {
        return None;
    }
    let (digest, path) = line.split_once("  ")?;
    Some((path, digest))
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "wit/released/0.1.0/a.wit";

    fn sentences(released: Option<&str>, recorded: Option<&str>) -> Vec<String> {
        let mut sources = Vec::new();
        sources.extend(released.map(|text| Source::new(PATH, text)));
        sources.extend(
            recorded.map(|text| {
                Source::new(RECORD, &format!("# released\n{}  {PATH}\n", sha256(text)))
            }),
        );
        check(&sources)
    }

    #[test]
    fn accepts_unchanged_contracts() {
        assert!(sentences(Some("a"), Some("a")).is_empty());
        assert!(sentences(None, None).is_empty());
    }

    #[test]
    fn finds_changed_missing_and_unrecorded_contracts() {
        assert!(sentences(Some("b"), Some("a"))[0].contains("was changed"));
        assert!(sentences(None, Some("a"))[0].contains("is gone"));
        assert!(sentences(Some("a"), None)[0].contains("not recorded"));
    }

    #[test]
    fn digests_match_sha256sum() {
        assert_eq!(
            sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
