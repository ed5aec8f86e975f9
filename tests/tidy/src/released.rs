//! The released generations of the contract do not change: every file below `wit/released` has the digest that it had
//! when it was released.

use crate::Source;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The folder of the releases.
const FOLDER: &str = "wit/released/";
/// The list of digests in it.
const LIST: &str = "wit/released/digests";
/// How many generations the host serves.
const SERVED: usize = 3;

/// The folder of the components that were built with a release.
const COMPONENTS: &str = "tests/fixtures/released/";

/// What is wrong with the components of the releases, given each file below their folder by its path, with its bytes.
pub fn components(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let list = files.get("digests").map(Vec::as_slice).unwrap_or_default();
    let released = files.iter().filter(|(path, _)| path.ends_with(".wasm"));
    let released = released.map(|(path, bytes)| (path.as_str(), digest(bytes)));
    unchanged(
        COMPONENTS,
        &String::from_utf8_lossy(list),
        &released.collect(),
    )
}

/// What differs between files and the list of their digests.
fn unchanged(folder: &str, list: &str, released: &BTreeMap<&str, String>) -> Vec<String> {
    let lines = list.lines().filter_map(|line| line.split_once("  "));
    let listed: BTreeMap<_, _> = lines.map(|(digest, path)| (path, digest)).collect();
    let mut findings = Vec::new();
    for (path, found) in released {
        match listed.get(path) {
            Some(digest) if digest == found => {}
            Some(_) => findings.push(format!(
                "{folder}{path}: it was released and may not change; put the change into the draft"
            )),
            None => findings.push(format!("{folder}digests: add the line `{found}  {path}`")),
        }
    }
    let gone = listed.keys().filter(|path| !released.contains_key(*path));
    findings.extend(gone.map(|path| format!("{folder}{path}: it was released and may not go")));
    findings
}

/// What is wrong with the releases.
pub fn check(sources: &[Source]) -> Vec<String> {
    let of = |path: &str| sources.iter().find(|source| source.path == path);
    let list = of(LIST).map_or("", |list| list.text.as_str());
    let released = sources.iter().filter_map(|source| {
        let below = source.path.strip_prefix(FOLDER)?;
        below
            .contains('/')
            .then(|| (below, digest(source.text.as_bytes())))
    });
    let released: BTreeMap<_, _> = released.collect();
    let mut findings = unchanged(FOLDER, list, &released);
    let versions: BTreeSet<_> = released
        .keys()
        .filter_map(|path| Version::of(path.split('/').next()?))
        .collect();
    let generations: BTreeSet<_> = versions.iter().map(|one| (one.0, one.1)).collect();
    for (major, minor) in generations.iter().rev().take(SERVED) {
        let bindings = format!("host/engine/src/bindings/v{major}_{minor}.rs");
        if of(&bindings).is_none() {
            findings.push(format!("{bindings}: a generation that is served needs it"));
        }
    }
    let draft = of("wit/types.wit").and_then(|types| {
        let package = types
            .text
            .lines()
            .find_map(|line| line.strip_prefix("package transom:policy@"))?;
        Version::of(package.trim_end_matches(';'))
    });
    if let Some(draft) = draft.filter(|draft| versions.contains(draft)) {
        let Version(major, minor, patch) = draft;
        findings.push(format!(
            "wit/types.wit: {major}.{minor}.{patch} is released; give the draft another version"
        ));
    }
    findings
}

/// A version, by its three numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

impl Version {
    fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let version = Self(next()?, next()?, next()?);
        numbers.next().is_none().then_some(version)
    }
}

/// The digest of bytes, as `sha256sum` writes it.
fn digest(bytes: &[u8]) -> String {
    let bytes = Sha256::digest(bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIT: &str = "package transom:policy@0.1.0;\n";

    /// A tree with one release and the draft after it, changed in one way.
    fn found(change: impl FnOnce(&mut Vec<Source>)) -> Vec<String> {
        let mut sources = vec![
            Source::new("wit/released/README.md", "# Releases"),
            Source::new("wit/released/0.1.0/types.wit", WIT),
            Source::new(
                LIST,
                &format!("{}  0.1.0/types.wit\n", digest(WIT.as_bytes())),
            ),
            Source::new("wit/types.wit", "package transom:policy@0.2.0;\n"),
            Source::new("host/engine/src/bindings/v0_1.rs", ""),
        ];
        change(&mut sources);
        check(&sources)
    }

    #[test]
    fn a_release_never_changes() {
        assert_eq!(found(|_| ()), [""; 0]);
        assert_eq!(found(Vec::clear), [""; 0]);
        type Change = fn(&mut Vec<Source>);
        let changes: [(Change, &str); 6] = [
            (|all| all[1].text.push(' '), "may not change"),
            (|all| drop(all.remove(1)), "may not go"),
            (|all| all[2].text.clear(), "add the line"),
            (
                |all| all.push(Source::new("wit/released/0.1.0/more.wit", "")),
                "add the line",
            ),
            (|all| drop(all.pop()), "bindings/v0_1.rs"),
            (|all| WIT.clone_into(&mut all[3].text), "another version"),
        ];
        for (change, why) in changes {
            let findings = found(change);
            assert!(
                findings.len() == 1 && findings[0].contains(why),
                "{why}: {findings:?}"
            );
        }
    }

    #[test]
    fn a_component_of_a_release_never_changes() {
        let line = |bytes: &[u8]| format!("{}  0.1.0/x.wasm\n", digest(bytes));
        let found = |list: &str, bytes: Option<&[u8]>| {
            let mut files = BTreeMap::from([("digests".to_owned(), list.as_bytes().to_vec())]);
            files.extend(bytes.map(|bytes| ("0.1.0/x.wasm".to_owned(), bytes.to_vec())));
            components(&files).concat()
        };
        assert_eq!(found(&line(b"\0asm"), Some(b"\0asm")), "");
        assert!(found(&line(b"\0asm"), Some(b"\xffasm")).contains("may not change"));
        assert!(found(&line(b"\0asm"), None).contains("may not go"));
        assert!(found("", Some(b"\0asm")).contains("add the line"));
    }

    #[test]
    fn the_three_newest_generations_need_bindings() {
        let with = |versions: [&str; 4]| {
            found(|all| {
                for version in versions {
                    let path = format!("{version}/types.wit");
                    all.push(Source::new(&format!("{FOLDER}{path}"), ""));
                    all[2].text += &format!("{}  {path}\n", digest(b""));
                }
            })
        };
        let findings = with(["0.3.0", "0.3.1", "0.4.0", "0.10.0"]);
        let named = |name: &str| findings.iter().any(|finding| finding.contains(name));
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(named("v0_3.rs") && named("v0_4.rs") && named("v0_10.rs"));
    }
}
