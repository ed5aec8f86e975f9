//! The released generations of the contract do not change: every file below `wit/released` has the digest that it had when it
//! was released.

use crate::Source;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The folder of the releases.
const FOLDER: &str = "wit/released/";
/// The list of digests in it.
const LIST: &str = "wit/released/digests";
/// How many generations the host serves.
const SERVED: usize = 3;

/// What is wrong with the releases.
pub fn check(sources: &[Source]) -> Vec<String> {
    let of = |path: &str| sources.iter().find(|source| source.path == path);
    let list = of(LIST).map_or("", |list| list.text.as_str());
    let listed: BTreeMap<_, _> = list
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(digest, path)| (path, digest))
        .collect();
    let released = sources.iter().filter_map(|source| {
        let below = source.path.strip_prefix(FOLDER)?;
        below.contains('/').then_some((below, &source.text))
    });
    let released: BTreeMap<_, _> = released.collect();
    let mut findings = Vec::new();
    for (path, text) in &released {
        let found = digest(text);
        match listed.get(path) {
            Some(digest) if *digest == found => {}
            Some(_) => findings.push(format!(
                "{FOLDER}{path}: it was released and may not change; put the change into the draft"
            )),
            None => findings.push(format!("{LIST}: add the line `{found}  {path}`")),
        }
    }
    let gone = listed.keys().filter(|path| !released.contains_key(*path));
    findings.extend(gone.map(|path| format!("{FOLDER}{path}: it was released and may not go")));
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

/// The digest of a text, as `sha256sum` writes it.
fn digest(text: &str) -> String {
    let bytes = Sha256::digest(text);
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
            Source::new(LIST, &format!("{}  0.1.0/types.wit\n", digest(WIT))),
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
    fn the_three_newest_generations_need_bindings() {
        let with = |versions: [&str; 4]| {
            found(|all| {
                for version in versions {
                    let path = format!("{version}/types.wit");
                    all.push(Source::new(&format!("{FOLDER}{path}"), ""));
                    all[2].text += &format!("{}  {path}\n", digest(""));
                }
            })
        };
        let findings = with(["0.3.0", "0.3.1", "0.4.0", "0.10.0"]);
        let named = |name: &str| findings.iter().any(|finding| finding.contains(name));
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(named("v0_3.rs") && named("v0_4.rs") && named("v0_10.rs"));
    }
}
