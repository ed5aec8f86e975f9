//! The rules of this workspace that neither the compiler nor clippy checks, as functions from sources to findings: one
//! sentence for each violation. Changes no files; `tests/workspace.rs` applies each rule to the real tree.

pub mod contract;
pub mod dependencies;
pub mod files;
pub mod pages;
pub mod released;
pub mod rows;

use std::path::{Path, PathBuf};
use std::{fs, io};

/// One text file of the workspace.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A source from values.
    pub fn new(path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self { path, text }
    }

    /// Whether its path ends in `.extension`.
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }

    /// Whether it is a Rust file with tests only.
    pub fn is_test(&self) -> bool {
        let in_tests = self.path.starts_with("tests/") && !self.path.starts_with("tests/fixtures/");
        let named = self.path.contains("/tests/") || self.path.ends_with("/tests.rs");
        self.is("rs") && (in_tests || named)
    }

    /// The index of the line at which the tests begin; clippy checks that no code follows them. The first line of a
    /// file with tests only, the number of lines of a file without tests.
    pub fn tests_start(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let begins = |at: &usize| {
            // Attributes of the module may follow, each on one line or several.
            let mut rest = lines[*at + 1..].iter().map(|line| line.trim_end());
            let starts = |line: &str| line.starts_with("mod ") || line.starts_with("pub");
            let module = rest.find(|line| starts(line) || line.ends_with([';', '{', '}']));
            lines[*at] == "#[cfg(test)]"
                && module.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
        };
        let start = (0..lines.len()).find(begins).unwrap_or(lines.len());
        if self.is_test() { 0 } else { start }
    }

    /// The text contains the word, not as part of a longer one.
    pub fn has_word(&self, word: &str) -> bool {
        let in_word = |char: char| char.is_alphanumeric() || char == '_';
        self.text.match_indices(word).any(|(at, _)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + word.len()..].chars().next();
            !before.is_some_and(in_word) && !after.is_some_and(in_word)
        })
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every UTF-8 text file of the workspace, without `target` and `.git`.
///
/// # Errors
/// When a folder cannot be listed.
pub fn sources() -> io::Result<Vec<Source>> {
    let (root, mut sources) = (root(), Vec::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.ends_with("target") || path.ends_with(".git") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let (Ok(short), Ok(text)) =
                (path.strip_prefix(&root), fs::read_to_string(&path))
            {
                sources.push(Source::new(&short.to_string_lossy(), &text));
            }
        }
    }
    Ok(sources)
}
