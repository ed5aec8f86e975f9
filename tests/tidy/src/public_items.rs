//! Counts the public items of a library. Only a report: the budget of 40 is for discussion and fails no test.

use crate::code;
use crate::tree::Source;
use std::collections::BTreeMap;

/// Public items of each library under `host` and `guest`, by folder of the package; methods and fields do not count.
pub fn count(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| source.is("rs") && !source.is_test())
    {
        let Some((folder, _)) = source.path.split_once("/src/") else {
            continue;
        };
        let code = code::only(&source.text);
        let items = code.lines().filter(|line| is_item(line)).count();
        *counts.entry(folder.to_owned()).or_default() += items;
    }
    counts
}

/// A declaration at the outermost level; modules and `use` only expose items that are counted where they are declared.
fn is_item(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub ") else {
        return false;
    };
    [
        "fn", "async fn", "const fn", "struct", "enum", "trait", "type", "const", "static", "union",
    ]
    .iter()
    .any(|keyword| {
        rest.strip_prefix(keyword)
            .is_some_and(|name| name.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_items_but_not_methods() {
        let text = "pub mod a;\npub struct B;\nimpl B {\n    pub fn c() {}\n}\npub(crate) fn d() {}\npub const fn e() {}\npub use f::G;\n// pub enum H\n";
        let counts = count(&[
            Source::new("host/x/src/lib.rs", text),
            Source::new("host/x/src/y.rs", "pub enum Z {}\n"),
        ]);
        assert_eq!(counts, BTreeMap::from([("host/x".to_owned(), 3)]));
    }
}
