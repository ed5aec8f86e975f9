//! Vague words in names of modules and types. Functions and variables are exempt.

use crate::tree::Source;

/// Forbidden names of files, folders and modules.
const MODULES: [&str; 9] = [
    "utils",
    "util",
    "common",
    "helpers",
    "helper",
    "manager",
    "constants",
    "consts",
    "misc",
];
/// Forbidden endings of types.
const TYPES: [&str; 4] = ["Manager", "Helper", "Helpers", "Utils"];

/// Modules and types with vague names.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.is("rs"))
        .flat_map(|source| [modules(source), types(source)].concat())
        .collect()
}

fn modules(source: &Source) -> Vec<String> {
    let inline = source
        .text
        .lines()
        .filter_map(|line| name_after(line, "mod"));
    let parts = source
        .path
        .split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let mut vague: Vec<&str> = parts
        .chain(inline)
        .filter(|name| MODULES.contains(name))
        .collect();
    vague.sort_unstable();
    vague.dedup();
    vague
        .into_iter()
        .map(|name| {
            finding(
                source,
                &format!(
                    "module `{name}` is called by its shape; name what it does, or put each item beside its first user"
                ),
            )
        })
        .collect()
}

fn types(source: &Source) -> Vec<String> {
    let names = source.text.lines().filter_map(|line| {
        ["struct", "enum", "trait", "type", "union"]
            .iter()
            .find_map(|keyword| name_after(line, keyword))
    });
    names
        .filter(|name| TYPES.iter().any(|end| name.ends_with(end)))
        .map(|name| {
            finding(
                source,
                &format!("type `{name}` hides what it does behind its last word; name the one thing it does"),
            )
        })
        .collect()
}

/// The name that a line declares with this keyword.
fn name_after<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    let before: Vec<&str> = words.by_ref().take_while(|word| *word != keyword).collect();
    let declares = before
        .iter()
        .all(|word| word.starts_with("pub") || word.ends_with(')'));
    let name = words
        .next()?
        .split(|char: char| !(char.is_alphanumeric() || char == '_'))
        .next()?;
    (declares && !name.is_empty()).then_some(name)
}

fn finding(source: &Source, sentence: &str) -> String {
    format!("{}: {sentence}", source.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(path, text)])
    }

    #[test]
    fn finds_vague_modules_as_file_folder_and_inline() {
        assert_eq!(sentences("a/src/utils.rs", "").len(), 1);
        assert_eq!(sentences("a/src/common/x.rs", "").len(), 1);
        assert_eq!(
            sentences("a/src/x.rs", "pub(crate) mod helpers {\n}\n").len(),
            1
        );
    }

    #[test]
    fn finds_vague_types_with_their_name() {
        let found = sentences("a/src/x.rs", "pub struct QueueManager<T> {\n");
        assert!(found[0].contains("type `QueueManager`"), "{found:?}");
        assert_eq!(
            sentences("a/src/x.rs", "trait ParseHelper: Sized {\n").len(),
            1
        );
    }

    #[test]
    fn ignores_words_in_comments_uses_and_longer_names() {
        assert!(
            sentences(
                "a/src/x.rs",
                "// struct AManager\nuse b::QueueManager;\nlet utils = 1;\nmod utilsation;\n"
            )
            .is_empty()
        );
    }
}
